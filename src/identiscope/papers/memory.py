"""Refuse what this machine cannot hold, before it is asked for it."""

import os

from identiscope.errors import InputError


def check_memory(needed: int, what: str) -> None:
    """An error if so many bytes are more than half of the machine's memory."""
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not every system says
        there = 2**35
    if needed > there // 2:
        raise InputError(
            f"{what} would take about {needed / 2**30:,.1f} GiB of memory; this machine has {there / 2**30:,.1f}."
            " Choose smaller sizes."
        )
