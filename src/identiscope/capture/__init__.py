"""A model and a text become a Trace. The only part of identiscope that imports transformers."""

from identiscope.capture.arrays import from_arrays
from identiscope.capture.capturing import stream, trace
from identiscope.capture.models import Model, load
from identiscope.capture.replay import Replay
from identiscope.capture.site import Site, SiteCheck
from identiscope.capture.substitution import Rerun, substitute
from identiscope.capture.trace import Stream, Trace, Verification
from identiscope.capture.watch.watching import watching

__all__ = [
    "Model",
    "Replay",
    "Rerun",
    "Site",
    "SiteCheck",
    "Stream",
    "Trace",
    "Verification",
    "from_arrays",
    "load",
    "stream",
    "substitute",
    "trace",
    "watching",
]
