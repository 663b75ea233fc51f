"""What maps of several texts have in common."""
