"""Methods that say what attention may be, the outcome of the running model being what it is."""
