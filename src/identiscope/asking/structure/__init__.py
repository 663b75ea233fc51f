"""What texts have in common, asked of many traces."""
