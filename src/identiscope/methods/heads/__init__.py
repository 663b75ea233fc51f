"""A few numbers for each head."""
