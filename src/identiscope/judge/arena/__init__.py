"""The arena: every method under every test, with controls, intervals and comparisons."""
