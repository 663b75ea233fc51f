"""Texts from files, their hidden states on disk, and how they are split."""
