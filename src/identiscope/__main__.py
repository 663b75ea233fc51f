"""`python -m identiscope`."""

from identiscope.cli import run

run()
