"""Norms of the blocks of a transformer's Jacobian."""
