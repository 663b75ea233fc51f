"""Attention that is identifiable by design (Bhardwaj et al. 2021)."""
