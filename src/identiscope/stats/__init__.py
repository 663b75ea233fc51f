"""Statistics that know no transformer."""
