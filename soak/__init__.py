"""Long trials of the whole: many threads, random input, a server under load. Each says what it came to."""
