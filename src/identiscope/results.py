"""Results: labelled arrays that say where they come from, as an `xarray.Dataset`, saved as one safetensors file.

A dataset's attributes hold its provenance: `method`, `version`, and whatever the caller adds (model, text,
options). `save_result` writes arrays as tensors and everything else as JSON in the file's header, so that
nothing but safetensors is needed to read it, and reading it runs no code.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from safetensors.numpy import save

from identiscope.errors import InputError
from identiscope.files import printable, write_file
from identiscope.tensor_files import read_json, read_tensors
from identiscope.version import __version__

FORMAT = "identiscope-result-2"
# The format before: hidden states were numbered, the input being 0, where now the blocks that wrote them are.
OLD_FORMAT = "identiscope-result-1"
_NUMBERED_STATES = re.compile(
    r"hidden_token_attribution|attribution_intervals|self_contributions|contributions_.+|comparison_with_attention|"
    r"token_identifiability.*|token_losses|run_(attribution|tokens)(_means)?"
)
_SITE_KINDS = ("encoder-self", "decoder-self", "cross")


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
    """Read a result that `save_result` wrote.

    One that was written before layers were blocks, counted from 0, is given with the labels that it would have now.
    """
    arrays, header = read_tensors(path, (FORMAT, OLD_FORMAT), "a result of identiscope")
    whole = printable(path)
    described, attributes = (read_json(header.get(name, ""), whole) for name in ("variables", "attributes"))
    try:
        if not isinstance(attributes, dict):
            raise ValueError("the attributes are no object")
        parts: dict[bool, dict[str, Any]] = {True: {}, False: {}}
        for name, entry in described.items():
            axes = [str(axis) for axis in entry["axes"]]
            values = arrays[name] if name in arrays else _texts(entry)
            if len(set(axes)) != len(axes) or len(axes) != values.ndim:
                raise ValueError(f"{name} has the axes {axes} and {values.ndim} dimensions")
            parts[entry["coordinate"]][name] = (axes, values)
        result = xr.Dataset(parts[False], coords=parts[True], attrs=attributes)
        return _relabelled(result) if header["format"] == OLD_FORMAT else result
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{whole} is damaged: its header does not describe a result ({str(error)[:200]}).") from error


def _relabelled(result: xr.Dataset) -> xr.Dataset:
    """A result of the format before, in the words of this one."""
    attributes = dict(result.attrs)
    method = str(attributes.get("method"))
    if attributes.get("kind") in _SITE_KINDS:
        attributes["attention"] = attributes.pop("kind")
    if _NUMBERED_STATES.fullmatch(method):
        axes = [name for name in ("layer", "trained_on") if name in result.coords]
        result = result.assign_coords({name: result[name].copy(data=result[name].values - 1) for name in axes})
        options = attributes.get("options")
        if isinstance(options, dict) and isinstance(options.get("layers"), list):
            attributes["options"] = options | {"layers": [layer - 1 for layer in options["layers"]]}
    if method == "token_identifiability":
        attributes["method"] = "token_identifiability_same_layer"
    result.attrs = attributes
    return result


def _texts(entry: Mapping[str, Any]) -> np.ndarray:
    """The values that are written in the header."""
    if not all(isinstance(value, str) for value in entry["values"]):
        raise ValueError("a value that should be text is none")
    values = np.empty(len(entry["values"]), dtype=object)
    values[:] = entry["values"]
    return values.reshape([int(size) for size in entry["shape"]])


@contextmanager
def using(result: xr.Dataset, wanted: str | None = None, function: str | None = None) -> Iterator[None]:
    """Refuse the result of another method, and say what is missing in one that is not whole.

    function: what makes such a result, if its name is not that of the method.

    >>> with using(result, "structure_extraction", "extract_structure"):
    ...     result["threshold"]
    """
    method = result.attrs.get("method")
    if wanted is not None and method != wanted:
        raise InputError(f"a result of {method!r} was given; expected one of {function or wanted}.")
    try:
        yield
    except KeyError as error:
        raise InputError(f"this result of {method!r} is not whole: it has no {str(error)[:100]}.") from error


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
