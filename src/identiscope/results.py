"""Results: labelled arrays that say where they come from, as an `xarray.Dataset`, saved as one safetensors file.

A dataset's attributes hold its provenance: `method`, `version`, and whatever the caller adds (model, text,
options). `save_result` writes arrays as tensors and everything else as JSON in the file's header, so that
nothing but safetensors is needed to read it, and reading it runs no code.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from safetensors.numpy import load_file, save

from identiscope import __version__
from identiscope.errors import InputError
from identiscope.files import write_file

FORMAT = "identiscope-result-1"


def make_result(
    method: str,
    arrays: Mapping[str, tuple[Sequence[str], Any]],
    *,
    coordinates: Mapping[str, Sequence[Any] | Any] | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """A labelled result.

    >>> make_result("null_share", {"null_share": (("layer", "head"), shares)}, coordinates={"layer": range(6)})

    arrays: name → (axis names, values); values may be torch tensors. coordinates: labels by axis name, or
    name → (axis name, labels) for labels that are not the axis itself, such as tokens, which repeat.
    provenance: JSON values; they become attributes of the dataset.

    Half a surrogate pair, which some vocabularies have as a token and which no table or file can hold, becomes its
    escape, six plain characters: `\\ud800`.
    """
    data = {name: (tuple(axes), _numpy(values)) for name, (axes, values) in arrays.items()}
    labels = {name: _coordinate(name, values) for name, values in (coordinates or {}).items()}
    return xr.Dataset(data, coords=labels, attrs={"method": method, "version": __version__, **_plain(provenance or {})})


def save_result(result: xr.Dataset, path: str | Path) -> Path:
    """Write a result to one safetensors file."""
    arrays: dict[str, np.ndarray] = {}
    variables: dict[str, dict[str, Any]] = {}
    for name, variable in result.variables.items():
        values = variable.values
        entry: dict[str, Any] = {"axes": list(variable.dims), "coordinate": name in result.coords}
        if values.dtype.kind in "biuf":
            arrays[str(name)] = np.asarray(values, order="C")
        else:
            entry["values"] = [str(value) for value in values.ravel().tolist()]
            entry["shape"] = list(values.shape)
        variables[str(name)] = entry
    attributes = json.dumps(_plain(dict(result.attrs)))
    header = {"format": FORMAT, "variables": json.dumps(variables), "attributes": attributes}
    return write_file(path, save(arrays, metadata=header))


def load_result(path: str | Path) -> xr.Dataset:
    """Read a result that `save_result` wrote."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no file {path}.")
    try:
        with safe_open(str(path), framework="numpy") as file:
            header = file.metadata() or {}
        arrays = load_file(str(path))
    except SafetensorError as error:
        raise InputError(f"{path} is not a result of identiscope, or is damaged: {error}.") from error
    if header.get("format") != FORMAT:
        raise InputError(f"{path} is a safetensors file, but not a result of identiscope ({FORMAT}).")
    variables: dict[str, Any] = {}
    coordinates: dict[str, Any] = {}
    try:
        for name, entry in json.loads(header["variables"]).items():
            values = arrays[name] if name in arrays else np.array(entry["values"], dtype=object).reshape(entry["shape"])
            (coordinates if entry["coordinate"] else variables)[name] = (tuple(entry["axes"]), values)
        return xr.Dataset(variables, coords=coordinates, attrs=json.loads(header["attributes"]))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged: its header does not describe a result ({error}).") from error


def _plain(value: Any) -> Any:
    """The same in what JSON knows, so that a result can always be saved."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple, set, frozenset, range)):
        return [_plain(part) for part in value]
    return value if isinstance(value, (int, float, bool)) or value is None else _writable(str(value))


def _writable(value: Any) -> Any:
    """Text as UTF-8 can write it; anything else as it is."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8") if isinstance(value, str) else value


def _numpy(values: Any) -> np.ndarray:
    """A torch tensor without asking torch, which this module does not import; text as it can be written."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    kind = array.dtype.kind
    return np.vectorize(_writable, otypes=[object])(array).astype(kind) if kind in "UO" else array


def _coordinate(name: str, values: Any) -> tuple[str, np.ndarray]:
    axis, labels = values if isinstance(values, tuple) and len(values) == 2 else (name, values)
    return axis, _labels(labels)


def _labels(values: Any) -> np.ndarray:
    array = _numpy(list(values) if not hasattr(values, "shape") else values)
    return array.astype(object) if array.dtype.kind == "U" else array
