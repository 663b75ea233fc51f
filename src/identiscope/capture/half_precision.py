"""Whether this processor computes in half precision, tried where a failure costs nothing.

A virtual machine may announce instructions (Intel's AMX) that the machine below it does not run: the first product in
bfloat16 then ends the process, and no `except` sees it. So one such product is tried in a process of its own.
"""

import subprocess
import sys
from collections.abc import Iterable
from functools import cache

import torch

from identiscope.errors import ModelError

HALF = (torch.float16, torch.bfloat16)

_TRIAL = "import torch; one = torch.ones(64, 64, dtype=torch.{name}); torch.nn.functional.linear(one, one)"


def check_half_precision(dtypes: Iterable[torch.dtype], what: str) -> None:
    """Refuse a half precision in which a product on the CPU would end the process."""
    for dtype in sorted(set(dtypes) & set(HALF), key=str):
        if _announces_tiles() and not _computes(dtype):
            name = str(dtype).removeprefix("torch.")
            raise ModelError(
                f"{what} computes in {name} on the CPU, and this processor does not: it announces instructions (AMX)"
                " that it cannot run, and a product ends the process. Give dtype='float32', or set the environment"
                " variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before Python is started."
            )


def _announces_tiles() -> bool:
    """Whether the processor says that it has AMX: there is no other reason to try."""
    says = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return bool(says is not None and says())


@cache
def _computes(dtype: torch.dtype) -> bool:
    """Whether one product in a process of its own came to its end, in the environment that this one has."""
    trial = _TRIAL.format(name=str(dtype).removeprefix("torch."))
    try:
        done = subprocess.run([sys.executable, "-c", trial], capture_output=True, timeout=120)
    except (OSError, subprocess.SubprocessError):  # nothing was learnt
        return True
    # An ordinary exception is said by torch when it matters; a signal is said by nobody.
    return done.returncode >= 0
