"""How plain loops over arrays become machine code.

numba compiles a function when it is first called and keeps the result on disk. Importing numba takes half a second, so
modules of compiled functions are imported where they are used.
"""

import hashlib
import logging
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numba.core import event
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

#: Sums may be reordered and products fused, so that loops run on vectors; infinity and NaN keep their meaning.
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "arcp"}}


def compiled(function: Any) -> Any:
    """Compile a function, with `OPTIONS`, when it is first called."""
    try:
        made = njit(cache=True, **OPTIONS)(function)
    except RuntimeError:  # no folder to keep compiled code in
        return njit(**OPTIONS)(function)
    kept: Any = getattr(getattr(made, "_cache", None), "_cache_file", None)
    if not hasattr(kept, "_source_stamp"):
        # Another numba. Without the digest below old code might be taken for new: nothing is kept then.
        return njit(**OPTIONS)(function)
    kept._source_stamp = (kept._source_stamp, digest_of_loops(Path(__file__).parent))
    return made


@cache
def digest_of_loops(folder: Path) -> str:
    """Of all modules below a folder that compile. numba looks at the file of a function, not at those of the functions
    that it calls, and would go on with their old code when they change."""
    files = sorted(path for path in folder.rglob("*.py") if "@compiled" in path.read_text("utf-8"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


class _Compiling(event.Listener):  # type: ignore[misc]
    """numba's word that it compiles, which it does not give for what it finds on disk. (A base class of numba's.)"""

    def on_start(self, event: Any) -> None:
        """Something begins to be compiled."""
        tell_of_compiling()

    def on_end(self, event: Any) -> None:
        """Something has been compiled."""


@cache
def tell_of_compiling() -> None:
    """Tell the logger `identiscope.compiling`, once, why the first use on a machine takes longer."""
    logging.getLogger("identiscope.compiling").info(
        "first use on this machine: loops are compiled, which takes some seconds; they are kept for the next time"
    )


event.register("numba:compile", _Compiling())
