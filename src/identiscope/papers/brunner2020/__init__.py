"""On Identifiability in Transformers (Brunner et al., ICLR 2020)."""
