"""What is said of one head in words, from its numbers."""

import math
from collections.abc import Mapping

#: Where the strongest key of a row may be: column → in words.
_PEAKS = {
    "peak_two_before": "the token two before",
    "peak_previous": "the previous token",
    "peak_self": "the token itself",
    "peak_next": "the next token",
    "peak_two_after": "the token two after",
}
#: What has an interval: name → in words.
_ATTENDED = {
    "previous": "the previous token",
    "next": "the next token",
    "self": "the token itself",
    "special": "special tokens",
    "punctuation": "punctuation",
    "duplicate": "earlier copies of the token",
    "induction": "what followed an earlier copy",
}
_CLASSES = ("vertical", "diagonal", "vertical_diagonal", "block", "heterogeneous")
#: Rows that must have their strongest key at one place for that to be said first; Voita et al. say 0.9 for positional.
_MOST, _POSITIONAL = 0.5, 0.9


def head_sentences(numbers: Mapping[str, float]) -> list[str]:
    """A few sentences of a head; numbers: every statistic by name, NaN or missing where there is none.

    >>> head_sentences({"peak_previous": 0.93, "zero_change": 0.02, "zero_change_error": 0.01})[0]
    'Looks at the previous token in 93 % of rows: positional.'
    """
    said = [_looks(numbers), _weighs(numbers), _sink(numbers), _class(numbers), _without(numbers), _against(numbers)]
    return [sentence for sentence in said if sentence]


def _number(numbers: Mapping[str, float], name: str) -> float:
    return float(numbers.get(name, math.nan))


def _looks(numbers: Mapping[str, float]) -> str:
    shares = {name: _number(numbers, name) for name in _PEAKS if not math.isnan(_number(numbers, name))}
    best = max(shares, key=lambda name: shares[name], default="")
    if not best or shares[best] < _MOST:
        broad = _number(numbers, "entropy")
        return "" if math.isnan(broad) else f"Looks at no one offset; the entropy of its rows is {broad:.1f} bits."
    positional = ": positional" if shares[best] >= _POSITIONAL else ""
    return f"Looks at {_PEAKS[best]} in {shares[best]:.0%} of rows{positional}.".replace("%", " %")


def _weighs(numbers: Mapping[str, float]) -> str:
    weights = {name: _number(numbers, f"raw_to_{name}") for name in _ATTENDED}
    known = {name: weight for name, weight in weights.items() if not math.isnan(weight)}
    best = max(known, key=lambda name: known[name], default="")
    if not best:
        return ""
    real = _number(numbers, f"simplex_to_{best}")
    said = f"Gives {known[best]:.2f} of its weight to {_ATTENDED[best]}"
    said += "" if math.isnan(real) else f" ({real:.2f} in the map that no rewriting changes)"
    weight, lower, upper = (_number(numbers, f"interval_{best}{end}") for end in ("", "_lower", "_upper"))
    if math.isnan(lower):
        return f"{said}."
    share = f"; {lower / weight:.2f} of that is determined" if weight > 0 else ""
    return f"{said}; on the rows drawn {weight:.2f}, and {lower:.2f} to {upper:.2f} give the same output{share}."


def _sink(numbers: Mapping[str, float]) -> str:
    share = _number(numbers, "is_sink")
    if math.isnan(share) or share < _MOST:
        return ""
    places = {"sink_on_first": "the first token", "sink_on_punctuation": "punctuation"}
    where = [words for name, words in places.items() if _number(numbers, name) >= _MOST]
    weight, lower = _number(numbers, "interval_sink"), _number(numbers, "interval_sink_lower")
    known = f"; at least {lower:.2f} of {weight:.2f} must be there" if not math.isnan(lower) else ""
    return f"A sink{f' on {where[0]}' if where else ''} in {share:.0%} of texts{known}.".replace("%", " %")


def _class(numbers: Mapping[str, float]) -> str:
    shares = {name: _number(numbers, name) for name in _CLASSES if not math.isnan(_number(numbers, name))}
    best = max(shares, key=lambda name: shares[name], default="")
    if not best:
        return ""
    name = best.replace("_", " + ")
    return f"Its map is {name} in {shares[best]:.0%} of texts.".replace("%", " %")


def _without(numbers: Mapping[str, float]) -> str:
    change, error = _number(numbers, "zero_change"), _number(numbers, "zero_change_error")
    if math.isnan(change):
        return ""
    bar = "" if math.isnan(error) else f" ± {error:.2g}"
    size = _number(numbers, "zero_size")
    return f"Without it the outcome changes by {change:+.2g}{bar}; its size is {size:.2g} in the mean over texts."


def _against(numbers: Mapping[str, float]) -> str:
    layer, head = _number(numbers, "matched_layer"), _number(numbers, "matched_head")
    if math.isnan(head):
        return ""
    cosine, moved, changed = (_number(numbers, name) for name in ("map_cosine", "map_change", "changed_statistics"))
    return (
        f"In the other model it is head {layer:.0f}.{head:.0f}: the cosine of their maps is {cosine:.2f},"
        f" {moved:.2f} of the weight stands elsewhere, and {changed:.0f} statistics changed."
    )
