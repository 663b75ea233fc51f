"""One file per method: pure functions on tensors that know nothing of models, labels or files."""
