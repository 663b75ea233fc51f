"""The structure-aware draft: norms, subspaces and a reversing model."""
