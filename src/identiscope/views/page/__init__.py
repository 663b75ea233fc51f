"""The page: its data, its script, one file."""
