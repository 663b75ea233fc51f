"""What the heads of a layer may be together, its output being what it is."""
