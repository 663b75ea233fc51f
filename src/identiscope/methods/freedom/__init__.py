"""What rows of attention may be, their output being what it is."""
