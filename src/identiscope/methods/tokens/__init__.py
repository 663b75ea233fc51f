"""Whether a hidden embedding can be traced to its token."""
