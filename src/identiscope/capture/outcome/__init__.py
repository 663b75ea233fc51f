"""What is explained: one number that a model gives for a text."""
