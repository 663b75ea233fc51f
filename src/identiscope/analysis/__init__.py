"""Methods applied to a Trace: tensors go in, labelled results come out."""
