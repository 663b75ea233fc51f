"""Maps of attention: layer, head, query, key."""
