"""What Hidden Token Attribution is put together from."""
