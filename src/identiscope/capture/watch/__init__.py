"""What attention calls of a running model are seen, and how."""
