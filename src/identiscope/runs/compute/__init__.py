"""What fills a Run."""
