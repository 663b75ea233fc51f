"""Who computes the shards of a Run: this process, processes of this machine, or a Ray cluster."""
