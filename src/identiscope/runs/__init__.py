"""Results of a corpus, on disk."""
