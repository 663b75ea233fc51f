"""Another attention map of one head that gives the same output, with its certificate."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.allowed import Allowed, describe_allowed
from identiscope.linalg.devices import on_cpu
from identiscope.linalg.simplex.polytope import worst_certificate
from identiscope.methods.equal_keys import Equal
from identiscope.methods.freedom.alternatives import (
    Alternative,
    alternative_along,
    alternative_avoiding,
    alternative_farthest,
    alternative_favouring,
)
from identiscope.methods.freedom.polytopes import HeadRows, head_rows, output_radii, whole_numbers
from identiscope.methods.freedom.realisable_alternative import realisable_alternative
from identiscope.methods.maps.factored import RawRows
from identiscope.progress import Progress

How = Literal["farthest", "avoid", "favour", "along", "realisable"]
Finder = Callable[[int], Alternative]
Direction = Tensor | np.ndarray | Sequence[float]


@dataclass(frozen=True, eq=False)
class AttentionAlternative:
    """The map [query, key] beside the raw one, how far each row is from it, and what is known of it."""

    alternative: Tensor
    raw: Tensor
    total_variation: Tensor
    jensen_shannon: Tensor
    merged_total_variation: Tensor
    facts: dict[str, Any]
    extra: dict[str, tuple[tuple[str, ...], Tensor]] = field(default_factory=dict)

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes."""
        return {
            "alternative": (("query", "key"), self.alternative),
            "raw": (("query", "key"), self.raw),
            "total_variation": (("query",), self.total_variation),
            "jensen_shannon": (("query",), self.jensen_shannon),
            "merged_total_variation": (("query",), self.merged_total_variation),
            **self.extra,
        }


def attention_alternative(
    value: Tensor,
    projection: Tensor,
    raw: RawRows,
    queries: int,
    allowed: Allowed = None,
    precision: torch.dtype | None = None,
    key_channels: int | None = None,
    copies: Tensor | None = None,
    output_size: Tensor | None = None,
    rerun: Callable[[Tensor], dict[str, float]] | None = None,
    *,
    how: How = "farthest",
    rows: int | Sequence[int] | None = None,
    token: int | Sequence[int] | None = None,
    direction: Direction | None = None,
    measure: Literal["total_variation", "jensen_shannon"] = "total_variation",
    starts: int = 2,
    seed: int = 0,
    merged: bool = False,
    equal: Equal = "tokens",
    epsilon: float = 0.0,
    progress: Progress | None = None,
) -> AttentionAlternative:
    """Another attention map of one head that gives the same output, on axes query and key.

    how: `farthest` (the farthest found, by `measure`; its distance is a lower bound), `avoid` or `favour` the
    key position(s) `token`, `along` a `direction` [key] projected on the null space, `realisable`: a map that
    some query and key of the head's own width produce by a softmax. rows: change only these queries. token: key
    position(s) to avoid or favour. direction: one number for each key. measure: by which `farthest` is judged.
    starts: how many searches `farthest` makes. seed: of these. merged: add up equal keys where a distance is taken, and
    avoid or favour a token with all its copies. equal: which keys are copies: those of one token (`tokens`), or those
    whose rows of T are equal at the precision of the pass (`values`). epsilon: by which share of the attention block's
    output the head may move it (`farthest`, `avoid` and `favour`); 0 is not at all.

    `total_variation` and `jensen_shannon` [query] say how far each row is from the raw one, and
    `merged_total_variation` how far with equal keys added up: weight that moved to a copy of its key has not moved. The
    certificate of the changed rows is in the attributes: `least_weight`, `row_sum_error`, `output_error`,
    `output_error_relative`; and so are `rows_left_alone`, those of the rows that may see no such `token`.

    With `epsilon` each row's output may move by ε times the length of the attention block's output there, b_O included;
    `output_share` [query] is by how much it does. What that changes in the running model is in the attributes, if there
    is a model: `hidden_states_moved` and `logits_moved`, the largest difference over the largest value, and the same
    with random rows as far away (`…_at_random`); `identiscope.prove` shows more.

    `along` also gives `lambda_max` [query] (§3.3), the step along the direction whose part in the null space has
    length one, NaN for rows that were not asked for. `realisable` gives the factors of its logits, `logit_query`
    [query, channel] and `logit_key` [key, channel], of which each row is a softmax over the keys it may see, scaled
    to the row sum; and `solved` [query], false where the output could not be met to 1e-10.

    >>> from identiscope.methods.maps.factored import rows_of
    >>> map = rows_of(torch.tensor([[[0.75, 0.25]]]))
    >>> attention_alternative(torch.ones(1, 2, 1), torch.ones(1, 1, 1), map, 1, how="avoid", token=0).alternative
    tensor([[0., 1.]], dtype=torch.float64)
    """
    if how not in get_args(How):
        raise InputError(f"how={how!r} was given; expected one of {', '.join(get_args(How))}.")
    own = on_cpu(raw(slice(0, queries))[0]).double()
    keys = value.shape[1]
    sees = on_cpu(describe_allowed(allowed, queries, keys, value.device).block(slice(0, queries))).expand(queries, keys)
    chosen = list(range(queries)) if rows is None else _places(rows, "rows", "query rows", queries)
    tokens = [] if token is None else _places(token, "token", "key positions", keys)
    radii = output_radii(epsilon, output_size)
    if radii is not None and how in ("along", "realisable"):
        raise InputError(f"epsilon={epsilon} was given with how={how!r}, which keeps the output; leave it at 0.")
    head = head_rows(value, projection, raw, 0, queries, allowed, precision, radii)
    groups = head.groups(equal, copies)
    if merged and tokens:
        tokens = torch.isin(groups, groups[tokens]).nonzero()[:, 0].tolist()
    if how == "realisable":
        if rows is not None or key_channels is None:
            raise InputError("a realisable map is of all rows of a captured head; leave rows out, and trace a model.")
        made = realisable_alternative(
            value, projection, raw, head=0, key_channels=key_channels, queries=queries, allowed=allowed,
            precision=precision, seed=seed,
        )  # fmt: skip
        extra: dict[str, tuple[tuple[str, ...], Tensor]] = {
            "logit_query": (("query", "channel"), made.query),
            "logit_key": (("key", "channel"), made.key),
            "solved": (("query",), made.solved),
        }
        facts: dict[str, Any] = asdict(made.certificate) | {"rows_left_alone": []}
        if value.device.type != "cpu":
            facts["on_cpu"] = "least squares"
        return AttentionAlternative(
            made.attention, own, made.total_variation, made.jensen_shannon,
            _merged_distance(own, on_cpu(made.attention), groups), facts, extra,
        )  # fmt: skip
    left_alone = _cannot_see(sees, how, chosen, tokens) if how in ("avoid", "favour") else []
    options: dict[str, Any] = {"measure": measure, "starts": starts, "seed": seed}
    options["groups"] = groups if merged else None
    finder = _finder(head, how, sees, tokens, direction, options)
    moving = [row for row in chosen if row not in left_alone]
    changed, certificate, distances, steps = _row_by_row(own, moving, finder, progress)
    extra = {"lambda_max": (("query",), steps)} if how == "along" else {}
    if radii is not None:
        moved = ((changed - own) @ (head.value[0].double() @ head.factor.triangle[0].mT)).norm(dim=-1)
        size = radii / epsilon
        extra["output_share"] = ("query",), torch.where(size > 0, moved / torch.where(size > 0, size, 1.0), 0.0)
    facts = certificate | {"rows_left_alone": left_alone}
    if radii is not None and rerun is not None:
        facts |= rerun(changed)
    return AttentionAlternative(
        changed, own, distances[0], distances[1], _merged_distance(own, changed, groups), facts, extra
    )


def _merged_distance(raw: Tensor, other: Tensor, groups: Tensor) -> Tensor:
    """Total variation [query] of maps [query, key] with the keys of a group added up."""
    change = torch.zeros(len(raw), int(groups.max()) + 1, dtype=torch.float64)
    return 0.5 * change.index_add_(1, groups, other - raw).abs().sum(1)


def _finder(
    head: HeadRows,
    how: str,
    sees: Tensor,
    keys: list[int],
    direction: Direction | None,
    options: dict[str, Any],
) -> Finder:
    """A function from a query to its alternative."""
    if how == "farthest":
        return lambda query: alternative_farthest(head, query=query, **options)
    if how == "along":
        if direction is None:
            raise InputError('how="along" needs a direction [key].')
        way = _direction(direction)
        return lambda query: alternative_along(head, way, query=query)
    function = alternative_avoiding if how == "avoid" else alternative_favouring
    # On a key that the row may not see it has no weight in any case.
    return lambda query: function(head, query=query, keys=[key for key in keys if bool(sees[query, key])])


def _cannot_see(sees: Tensor, how: str, rows: list[int], keys: list[int]) -> list[int]:
    """Those of the rows that may look at none of the keys; an error if that is all of them."""
    if not keys:
        raise InputError(f"how={how!r} needs token=, one key position or several.")
    any_of_them = sees[:, keys].any(1)
    blind = [row for row in rows if not bool(any_of_them[row])]
    if len(blind) == len(rows):
        able = any_of_them.nonzero()[:, 0].tolist()
        those = f"rows {able[0]} to {able[-1]} hold those that may" if able else "no row of this head may"
        raise InputError(
            f"how={how!r} was asked for with token={keys} and rows={rows}, but none of these rows may look at it; "
            f"{those}. Choose such a row, or another token."
        )
    return blind


def _row_by_row(
    raw: Tensor, rows: list[int], finder: Finder, progress: Progress | None
) -> tuple[Tensor, dict[str, Any], tuple[Tensor, Tensor], Tensor]:
    changed, distances = raw.clone(), torch.zeros(2, len(raw), dtype=torch.float64)
    steps = torch.full((len(raw),), torch.nan, dtype=torch.float64)
    certificates = []
    for done, row in enumerate(rows, 1):
        alternative = finder(row)
        changed[row] = alternative.row
        distances[0, row], distances[1, row] = alternative.total_variation, alternative.jensen_shannon
        if alternative.lambda_max is not None:
            steps[row] = alternative.lambda_max
        certificates.append(alternative.certificate)
        if progress is not None:
            progress(done, len(rows))
    return changed, asdict(worst_certificate(certificates)), (distances[0], distances[1]), steps


def _places(given: Any, name: str, what: str, count: int) -> list[int]:
    """One position or several, each within the text."""
    expected = f"{what} 0 to {count - 1}"
    places = whole_numbers(given, name, expected)
    if any(not 0 <= place < count for place in places):
        raise InputError(f"{name}={given!r} was given; the text has {expected}.")
    return places


def _direction(given: Any) -> Tensor:
    """A direction [key] of torch, NumPy or a list as float64."""
    try:
        values = on_cpu(given) if isinstance(given, Tensor) else np.asarray(given, dtype=np.float64)
        return torch.as_tensor(values, dtype=torch.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"direction={given!r} was given, expected one number for each key: {error}") from error
