"""What heads look at, with intervals: what each mean weight could be while every output stays what it is."""

from collections.abc import Sequence

import torch
from torch import Tensor

from identiscope.linalg.allowed import Allowed, describe_allowed
from identiscope.methods.heads.attended import ATTENDED, attended_cells
from identiscope.methods.heads.head_sink import received
from identiscope.methods.heads.numbers import HeadNumbers
from identiscope.methods.heads.statistic_interval import statistic_interval
from identiscope.methods.maps.factored import RawRows

#: The statistics that have intervals here, `sink` being the key with the largest mean weight.
WITH_INTERVAL = (*ATTENDED, "sink")


def attends_interval(
    attention: Tensor,
    value: Tensor,
    projection: Tensor,
    raw: RawRows,
    queries: int,
    special: Tensor,
    key_tokens: Sequence[str],
    query_tokens: Sequence[str],
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    *,
    on: str = ",".join(WITH_INTERVAL),
    sample: int = 8,
    seed: int = 0,
) -> HeadNumbers:
    """Mean weights as head_attends has them, on some rows, and their exact bounds over all maps with this output.

    A mean weight is linear in each row, so that two linear programs a row give [`lower`, `upper`]. `sink` is the key
    with the largest mean weight of the head. `_error`s are what drawing rows leaves open: zero where all were taken.

    on: which statistics, with commas; the others are NaN. sample: rows of each statistic that are looked at, drawn from
    those that have such a key. seed: of these.

    >>> from identiscope.methods.maps.factored import rows_of
    >>> attention, none = torch.full((1, 3, 3), 1 / 3), torch.zeros(3, dtype=torch.bool)
    >>> given = torch.ones(1, 3, 1), torch.ones(1, 1, 1), rows_of(attention), 3, none, "abc", "abc"
    >>> found = attends_interval(attention, *given).numbers
    >>> [round(float(found[f"self{end}"]), 2) for end in ("", "_lower", "_upper")]
    [0.33, 0.0, 1.0]
    """
    wanted = [name.strip() for name in on.split(",")]
    described = describe_allowed(allowed, queries, len(key_tokens), attention.device)
    own = special.to(attention.device)
    found = attended_cells(key_tokens, own, described, same=list(key_tokens) == list(query_tokens)).cells
    sinks = received(attention, described).nan_to_num(nan=-1.0).argmax(-1)
    at_sinks = torch.nn.functional.one_hot(sinks, len(key_tokens)).double()[:, None].expand(-1, queries, -1)
    numbers: dict[str, Tensor] = {}
    for name in WITH_INTERVAL:
        cells = at_sinks if name == "sink" else found[list(ATTENDED).index(name)]
        # Rows that may see such a key; of the others nothing is asked. Sinks of several heads must all be seen.
        seen = described.whole[:, sinks].all(-1) if name == "sink" else cells.any(-1)
        rows = torch.where(seen)[0].tolist()
        for end in ("", "_lower", "_upper", "_error", "_lower_error", "_upper_error"):
            numbers[f"{name}{end}"] = torch.full((len(attention),), torch.nan, dtype=torch.float64)
        if name in wanted and rows:
            bounds = statistic_interval(
                value, projection, raw, queries, special, key_tokens, query_tokens, described, precision,
                on=cells.double().cpu(), rows=rows, sample=sample, seed=seed,
            ).arrays()  # fmt: skip
            for end in ("", "_lower", "_upper"):
                plain = end.removeprefix("_") or "statistic"
                numbers[f"{name}{end}"] = bounds[plain][1]
                numbers[f"{name}{end}_error"] = bounds[f"{plain}_error"][1]
    return HeadNumbers({name: values.to(attention.device) for name, values in numbers.items()})
