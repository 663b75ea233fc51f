"""Is the answer right? Truths to hold it against: planted mechanisms, erasure, causal yardsticks."""
