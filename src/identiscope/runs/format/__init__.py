"""What a Run directory holds: read, checked and sealed."""
