"""What a hidden token is made of: layer, token, input."""
