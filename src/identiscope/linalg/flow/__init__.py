"""Flows through layers of tokens."""
