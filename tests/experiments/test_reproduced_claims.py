"""Whether a claim is said to hold follows from the numbers: each on made-up results for which it does, and does not."""

import numpy as np
import pytest
import xarray as xr

from identiscope.experiments import brunner2020_attention, brunner2020_attribution, brunner2020_tokens, structure_draft


def rates(cosine: list[float], squared: list[float]) -> xr.Dataset:
    return xr.Dataset(
        {"rate": (("probe", "layer"), [cosine, squared]), "random_guess": ("layer", [0.017] * len(cosine))},
        {"probe": ["linear cosine", "linear l2"]},
    )


def holds(claims: object) -> list[bool | None]:
    return [claim.holds for claim in claims]  # type: ignore[attr-defined]


def test_rates_by_layer() -> None:
    good = rates([0.99, 0.95, 0.93], [0.98, 0.9, 0.7])
    assert holds(brunner2020_tokens._rate_claims(good, "MRPC", True)) == [True, True, True, True]
    bad = rates([0.99, 0.7, 0.85], [0.98, 0.9, 0.7])
    assert holds(brunner2020_tokens._rate_claims(bad, "MRPC", True)) == [True, False, False, False]
    # Of another model the numbers are not judged; what falls with depth is.
    assert holds(brunner2020_tokens._rate_claims(bad, "MRPC", False)) == [None, None, False, False]


@pytest.mark.parametrize(("first", "last", "expected"), [(0.6, 0.97, [True, True]), (0.9, 0.5, [False, False])])
def test_probes_on_other_layers(first: float, last: float, expected: list[bool]) -> None:
    across = xr.Dataset(
        {"rate": (("probe", "trained_on", "layer"), [[[1.0, first], [last, 0.94]]])}, {"probe": ["linear cosine"]}
    )
    assert holds(brunner2020_tokens._across_claims(across)) == expected


def test_a_peak_that_is_none_is_not_judged() -> None:
    def types(separator: float, first: float) -> xr.Dataset:
        axes, names = ("layer", "head", "from", "to"), {"from": ["all"], "to": ["[SEP]", "[CLS]"]}
        raw, effective = np.full((2, 1, 1, 2), 0.02), np.full((2, 1, 1, 2), 0.01)
        raw[1, 0, 0] = 0.4, 0.05
        effective[1, 0, 0] = separator, first
        return xr.Dataset({"raw": (axes, raw), "effective": (axes, effective)}, names)

    assert holds(brunner2020_attention._special_claims(types(0.05, 0.0))) == [True, None]
    assert holds(brunner2020_attention._special_claims(types(0.35, 0.0))) == [False, None]


def test_correlation_by_length() -> None:
    def found(short: float, long: list[float]) -> xr.Dataset:
        values = np.array([short, *long])[:, None, None]
        return xr.Dataset({"correlation": (("text", "layer", "head"), values), "length": ("text", [20, 50, 80, 120])})

    claims = brunner2020_attention._correlation_claims
    assert holds(claims(found(1.0, [0.9, 0.6, 0.4]), 32)) == [True, True]
    assert holds(claims(found(0.9, [0.4, 0.6, 0.9]), 32)) == [False, False]


def test_self_contribution() -> None:
    def own(median: list[float], other: list[float]) -> xr.Dataset:
        return xr.Dataset({"median": ("layer", median), "not_largest": ("layer", other)})

    claims = brunner2020_attribution._self_claims
    assert holds(claims(own([0.3, 0.2, 0.1], [0.0, 0.1, 0.3]), True)) == [None, None, True, True]
    assert holds(claims(own([0.3, 0.1, 0.2], [0.2, 0.1, 0.1]), False)) == [False, False]


def test_neighbours_near_and_far() -> None:
    def claims(early: bool, near: bool) -> list[bool | None]:
        share = np.array([[0.6, 0.2], [0.4, 0.8]])
        relative = xr.Dataset({"relative": (("layer", "distance"), share if early else share[::-1])}, {"layer": [1, 2]})
        offsets = np.arange(-5, 6)
        line = np.where(near, 1.0 / (1 + np.abs(offsets)), np.abs(offsets) / 5.0)
        by_offset = xr.Dataset({"mean": (("layer", "offset"), np.stack([line, line]))}, {"offset": offsets})
        return holds(brunner2020_attribution._near_claims(relative, by_offset))

    assert claims(True, True) == [True, True, True]
    assert claims(False, False) == [False, False, False]


@pytest.mark.parametrize(
    ("low", "difference", "expected"),
    [(1.5, (-0.3, -0.1), [True, True]), (0.8, (0.1, 0.3), [False, False]), (0.8, (-0.1, 0.1), [False, None])],
)
def test_perturbations(low: float, difference: tuple[float, float], expected: list[bool | None]) -> None:
    distances = ["structure", "frobenius"]
    found = xr.Dataset(
        {
            "break_over_keep": ("outcome", [low + 0.2]),
            "break_over_keep_low": ("outcome", [low]),
            "correlation": (("distance", "outcome"), [[0.5], [0.4]]),
            "difference_low": (("distance", "outcome"), [[0.0], [difference[0]]]),
            "difference_high": (("distance", "outcome"), [[0.0], [difference[1]]]),
        },
        {"distance": distances, "outcome": ["logits"]},
    )
    assert holds(structure_draft._perturbation_claims(found)) == expected
