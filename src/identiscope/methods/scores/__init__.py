"""What an outcome rests on: one number for each input."""
