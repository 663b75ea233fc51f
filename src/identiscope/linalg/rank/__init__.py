"""Ranks and projections of the prefixes of a text."""
