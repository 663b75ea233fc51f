"""Ranks, projectors, the simplex's quadratic and linear programs; the only home of a tolerance."""
