"""Is the answer determined? The same computation described differently, and the answer asked again."""
