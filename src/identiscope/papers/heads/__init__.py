"""What was published about heads, and what comes out of a survey: Clark, Kovaleva, Voita, Michel, Gu."""
