"""Each published experiment as a short script: what is run, what was published, what came out."""
