"""What inseq's `FeatureAttributionOutput.save` writes, as lines of a file of scores. Checked with inseq 0.7.1.

Objects are `{"__instance_type__": …, "attributes": …}`, or their attributes alone. Attributions of a text [token, step]
or [token, step, channel] are base64 of a safetensors file, or, as older versions wrote them, `{"__ndarray__": lists}`.
"""

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from identiscope.errors import InputError

#: What the name of a method begins with, so that inseq's `attention` and ours are two.
_PREFIX = "inseq_"
_TENSOR = "attribution"
_PLAIN = ("F16", "F32", "F64")


def inseq_output(whole: Any) -> dict[str, Any] | None:
    """The attributes of a saved output of inseq; None if this is none."""
    saved = _attributes(whole)
    return saved if isinstance(saved, dict) and isinstance(saved.get("sequence_attributions"), list) else None


def inseq_lines(saved: dict[str, Any], path: str) -> Iterator[dict[str, Any]]:
    """A line for each generated token: its prefix is a text of its own, with scores of what comes next."""
    method = str((_attributes(saved.get("info")) or {}).get("attribution_method", "scores"))
    name = f"{_PREFIX}{method}"
    for number, sequence in enumerate(saved["sequence_attributions"], 1):
        where = f"{path}: sequence {number}"
        try:
            one = _attributes(sequence)
            encoded, begin = one.get("source_attributions") is not None, int(one["attr_pos_start"])
            scores, ids = _array(one["target_attributions"]), [int(_attributes(token)["id"]) for token in one["target"]]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{where} is none that inseq wrote ({error!r:.80}).") from error
        if encoded:
            raise InputError(f"{where} is of an encoder and a decoder; give the scores of its tokens as JSON lines.")
        if scores.ndim == 3:
            scores = np.linalg.norm(scores, axis=-1)  # inseq's own way from channels to tokens
        if scores.ndim != 2 or scores.shape[0] != len(ids) or not 0 < begin <= len(ids) - scores.shape[1] + 1:
            raise InputError(f"{where} has attributions of shape {list(scores.shape)} for {len(ids)} tokens.")
        for step in range(scores.shape[1]):
            # Behind the prefix of a step are tokens that were not there yet, which inseq fills with NaN.
            prefix = begin + step
            yield {"method": name, "ids": ids[:prefix], "scores": scores[:prefix, step].tolist()}


def _attributes(value: Any) -> Any:
    return value["attributes"] if isinstance(value, dict) and "__instance_type__" in value else value


def _array(value: Any) -> NDArray[np.float64]:
    if isinstance(value, str):
        from safetensors import SafetensorError, deserialize

        try:
            parts = dict(deserialize(base64.b64decode(value, validate=True)))  # type: ignore[no-untyped-call]
        except SafetensorError as error:
            raise ValueError(str(error)) from error
        part = parts[_TENSOR]
        if part["dtype"] not in _PLAIN:
            raise ValueError(f"scores of {part['dtype']}; save them as float16 or float32")
        return np.frombuffer(part["data"], f"<f{int(part['dtype'][1:]) // 8}").reshape(part["shape"]).astype(np.float64)
    return np.array(value["__ndarray__"] if isinstance(value, dict) else value, np.float64)
