"""Whether an answer holds: certificates, proofs in the running model, verdicts."""
