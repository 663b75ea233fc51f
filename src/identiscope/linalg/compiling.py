"""How plain loops over arrays become machine code.

numba compiles a function when it is first called and keeps the result on disk. Importing numba takes half a second, so
modules of compiled functions are imported where they are used.
"""

import logging
from functools import cache
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
        return njit(cache=True, **OPTIONS)(function)
    except RuntimeError:  # no folder to keep compiled code in
        return njit(**OPTIONS)(function)


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
