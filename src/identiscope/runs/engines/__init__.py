"""Where the work of a Run is done."""
