"""All prefixes of a causal text: their ranks, and the rows of attention projected on each."""
