"""Published works again: what is run, what was published, what came out."""
