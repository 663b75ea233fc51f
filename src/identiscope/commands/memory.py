"""What is said of memory where it ran out."""

import sys


def free_in_words() -> str:
    """How much memory is free, if that can be told without loading more into it."""
    if "identiscope.capture.room" not in sys.modules:
        return ""
    from identiscope.capture.room import free_on_cpu

    free = free_on_cpu()
    return f", of which {free} are free on the CPU" if free else ""
