"""Methods whose columns have a faster way than one trace after the other; a file has the name of its method."""
