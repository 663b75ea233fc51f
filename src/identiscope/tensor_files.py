"""Read a safetensors file of one of identiscope's formats, whatever its bytes are."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from identiscope.errors import InputError
from identiscope.files import check_readable, printable, reading


def read_tensors(
    path: str | Path, kinds: str | Sequence[str], what: str, framework: str = "numpy"
) -> tuple[dict[str, Any], dict[str, str]]:
    """The tensors of a file by name, and its header.

    kinds: the format that its header must name, or several, the newest first; what: the same in words, for errors.
    framework: "numpy" or "pt".
    """
    known = [kinds] if isinstance(kinds, str) else list(kinds)
    from safetensors import safe_open

    place = check_readable(path)
    try:
        with reading(path), safe_open(place, framework=framework) as file:
            header = dict(file.metadata() or {})
            if header.get("format") not in known:
                raise InputError(f"{printable(path)} is a safetensors file, but not {what} ({known[0]}).")
            return {name: file.get_tensor(name) for name in file.keys()}, header  # noqa: SIM118  (it is no mapping)
    except InputError:
        raise
    except Exception as error:  # safetensors, and what makes arrays of it, raise nearly every kind
        raise InputError(f"{printable(path)} is not {what}, or is damaged: {str(error)[:200]}.") from error


def read_json(text: str | bytes, whole: str) -> Any:
    """A JSON value; whole: what it is part of, for the error."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"{whole} is damaged: what should be JSON is not ({reason[:200]}).") from error
