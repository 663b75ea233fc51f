"""The page, live."""
