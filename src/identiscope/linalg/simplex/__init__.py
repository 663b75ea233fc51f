"""Rows of attention: points of a simplex with a given output."""
