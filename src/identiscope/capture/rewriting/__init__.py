"""The same function written down with other weights: what an explanation must not depend on."""
