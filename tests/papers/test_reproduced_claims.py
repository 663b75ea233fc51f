"""Every claim can fail: each holds of a model that does as the paper says, and not of models with nothing to find."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import xarray as xr

import null_models as made
from identiscope.papers.brunner2020.attention_claims import (
    correlation_claims,
    example_layer,
    passage_claims,
    peak_claims,
    separator_claims,
)
from identiscope.papers.brunner2020.attribution_claims import (
    class_token_claims,
    near_claims,
    self_claims,
    tag_claims,
)
from identiscope.papers.brunner2020.layer_claims import (
    across_claims,
    checkpoint_claims,
    neighbour_claims,
    previous_claims,
)
from identiscope.papers.brunner2020.tokens.claims import fraction_claims, gap_claims, rate_claims
from identiscope.papers.structure_draft.claims import (
    classifier_claims,
    map_claims,
    perturbation_claims,
    threshold_claims,
)
from identiscope.views.plots.figures import Claim
from null_models import LAYERS, holding

Claims = Callable[[Any], Iterable[Claim]]


def check(claims: Claims, good: Any, nulls: dict[str, Any], kept: dict[str, set[str]] | None = None) -> None:
    """All hold of `good`; every one fails of some null, and of each null all but those `kept` (by a word in them)."""
    answers = holding(claims(good))
    assert answers and all(answer is True for answer in answers.values()), answers
    failed: set[str] = set()
    for name, null in nulls.items():
        found = holding(claims(null))
        words = (kept or {}).get(name, set())
        wrong = [
            statement for statement, holds in found.items() if holds and not any(word in statement for word in words)
        ]
        assert not wrong, (name, wrong)
        failed |= {statement for statement, holds in found.items() if not holds}
    assert failed >= set(answers), set(answers) - failed
    for claim in claims(good):
        assert all((claim.statement, claim.source, claim.published, claim.rule, claim.here))


# Attention.


def correlations(short: float, long: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    lengths = np.array([20, 25, 30, *np.linspace(40, 120, len(long)).astype(int)])
    values = np.concatenate([np.full(3, short), long])[:, None, None] * np.ones((1, 2, 3))
    return values, lengths, 32


def test_correlation_by_length() -> None:
    noise = np.random.default_rng(0).normal(0, 0.02, 20)
    falling = np.linspace(0.9, 0.4, 20) + noise
    check(
        lambda given: correlation_claims(*given),
        correlations(1.0, falling),
        {
            "a direction is lost in short texts too": correlations(0.98, falling),
            "shuffled lengths": correlations(1.0, np.random.default_rng(1).permutation(falling)),
            "nothing is null": correlations(1.0, np.ones(20)),
        },
        {
            "a direction is lost in short texts too": {"beyond"},
            "shuffled lengths": {"up to"},
            "nothing is null": {"up"},
        },
    )


RAW = {"[CLS]": 0.06, "[SEP]": 0.5, ". or ,": 0.25, "other": 0.3}
NULL_TYPES = {
    # Uniform attention to tokens, of which a projection leaves a part, the same of all.
    "uniform attention": made.types(
        dict.fromkeys(RAW, 0.2), {"[CLS]": 0.025, "[SEP]": 0.05, ". or ,": 0.1, "other": 0.825}
    ),
    "shuffled labels": made.types(dict.fromkeys(RAW, 0.3), RAW),
    "random maps": made.types(dict.fromkeys(RAW, 0.3), RAW, noise=2.0),
}


def test_peaks_of_attention() -> None:
    kept = {"[CLS]": 0.05, "[SEP]": 0.05, ". or ,": 0.2, "other": 0.6}
    good = made.types(kept, RAW)
    check(peak_claims, good, NULL_TYPES)
    check(separator_claims, good, NULL_TYPES)
    check(passage_claims, good, NULL_TYPES)
    assert example_layer(12) == 3 and example_layer(6) == 1
    # A layer is a block, from 0, as everywhere: twelve of them peak in the middle.
    (passage,) = passage_claims(good)
    assert "at layer 3," in passage.statement and next(peak_claims(good)).here.startswith("layer 6:")


def test_a_peak_that_is_none_is_not_judged() -> None:
    low = made.types({"[CLS]": 0.0, "[SEP]": 0.0, ". or ,": 0.5, "other": 0.5}, {**RAW, "[SEP]": 0.05})
    (answer,) = [claim.holds for claim in peak_claims(low) if "“[SEP]”" in claim.statement]
    assert answer is None


# Tokens.

DEPTH = np.arange(LAYERS) / (LAYERS - 1)
FLAT = np.full(LAYERS, 0.9)
GUESSING = np.full(LAYERS, 0.017)


def probes(cosine: np.ndarray, squared: np.ndarray, naive: np.ndarray) -> xr.Dataset:
    return made.rates({"linear cosine": cosine, "linear l2": squared, "naive cosine": naive, "naive l2": naive - 0.01})


def test_rates_by_layer() -> None:
    late = 1 - 0.8 * np.clip(np.arange(LAYERS) - 3, 0, None) / LAYERS
    good = probes(1 - 0.07 * DEPTH, 0.98 - 0.2 * DEPTH, late)
    nulls = {
        "nothing changes": probes(FLAT, FLAT, FLAT),
        "shuffled labels": probes(GUESSING, GUESSING, GUESSING),
        "rises": probes(0.8 + 0.1 * DEPTH, 0.85 + 0.1 * DEPTH, 0.5 + 0.4 * DEPTH),
    }
    kept = {"nothing changes": {"remain mostly", "guessing reaches"}, "shuffled labels": {"guessing reaches"},
            "rises": {"remain mostly", "guessing reaches"}}  # fmt: skip
    elsewhere = {"other data": good.assign(random_guess=("layer", [0.2] * LAYERS))}
    check(lambda given: rate_claims(given, "MRPC", True), good, nulls | elsewhere, kept | {"other data": {""}})
    # Numbers of another model, or on other data, are not judged; what falls with depth is.
    answers = holding(rate_claims(good, "MRPC", False))
    numbers = [holds for name, holds in answers.items() if "guessing" in name or "recovers tokens" in name]
    assert numbers == [None, None]
    assert sum(holds is True for holds in answers.values()) == 4


def gaps(linear: float, mlp: float) -> xr.Dataset:
    found = made.rates({"linear l2": FLAT - linear, "mlp l2": FLAT - mlp})
    return found.assign(train_rate=(("probe", "layer"), np.stack([FLAT, FLAT])))


def test_both_probes_overfit_to_the_same_degree() -> None:
    nulls = {"the MLP alone overfits": gaps(0.01, 0.2), "neither overfits": gaps(0.0, 0.0)}
    check(gap_claims, gaps(0.1, 0.12), nulls)
    (without,) = gap_claims(gaps(0.1, 0.1).sel(probe=["linear l2"]))
    assert without.holds is None


def across(matrix: np.ndarray) -> xr.Dataset:
    return made.rates(
        {"linear cosine": matrix, "linear l2": matrix, "mlp l2": matrix, "mlp cosine": matrix},
        axes=("trained_on", "layer"),
    )


@pytest.mark.parametrize("probe", ["linear cosine", "linear l2", "mlp l2", "mlp cosine"])
def test_probes_on_other_layers(probe: str) -> None:
    trained, tested = np.meshgrid(np.arange(LAYERS), np.arange(LAYERS), indexing="ij")
    good = 0.99 - 0.04 * np.clip(tested - trained, 0, None) - 0.004 * tested
    flat = np.full((LAYERS, LAYERS), 0.94)
    alike = 0.9 - 0.03 * np.abs(tested - trained)
    nulls = {"nothing changes": across(flat), "as far either way": across(alike)}
    kept = {"nothing changes": {"recovers there"}, "as far either way": {"drops", "70 %"}}
    check(lambda given: across_claims(given, probe, True), across(good), nulls, kept)


def previous(cosine: np.ndarray, squared: np.ndarray) -> xr.Dataset:
    return made.rates({"naive cosine": cosine, "naive l2": squared, "linear cosine": cosine})


def test_layer_to_previous_layer() -> None:
    nulls = {
        "nothing changes": previous(FLAT + 0.05, FLAT + 0.05),
        "shuffled labels": previous(GUESSING, GUESSING),
        "uniform mixing": previous(np.zeros(LAYERS), np.zeros(LAYERS)),
    }
    check(previous_claims, previous(0.995 - 0.01 * DEPTH, 0.985 - 0.03 * DEPTH), nulls, {"nothing changes": {"naive"}})


def tuned(cosine: float, squared: float) -> xr.Dataset:
    """Fall of the last layer."""
    values = {"naive cosine": np.stack([FLAT, FLAT]), "naive l2": np.stack([FLAT, FLAT])}
    values["naive cosine"][1, -1] -= cosine
    values["naive l2"][1, -1] -= squared
    found = made.rates(values, axes=("checkpoint", "layer"))
    return found.assign_coords(checkpoint=["before", "fine-tuned"])


def test_fine_tuning() -> None:
    nulls = {"nothing changes": tuned(0.0, 0.0), "both fall": tuned(0.2, 0.2), "a little": tuned(0.0, 0.01)}
    check(lambda given: checkpoint_claims(given, "12"), tuned(0.01, 0.2), nulls)


def neighbours(
    near: float, fall: float, deep: float, sides: float, itself: float = 0.9, inputs: float = 0.05
) -> tuple[xr.Dataset, xr.Dataset]:
    offsets = [-2, -1, 1, 2]
    cells = np.stack([near - fall * (abs(step) - 1) - sides * (step > 0) - deep * DEPTH for step in offsets])
    found = made.rates({"linear cosine": cells}, axes=("offset", "layer")).assign_coords(offset=offsets)
    own = made.rates({"linear cosine": np.full(len(offsets), inputs)}, axes=("offset",)).drop_vars("random_guess")
    found = found.assign(input_rate=own["rate"], resampled_input_rate=own["resampled_rate"])
    return found, made.rates({"linear cosine": np.full(LAYERS, itself)})


def test_neighbours() -> None:
    nulls = {
        "shuffled labels": neighbours(0.017, 0, 0, 0, itself=0.017),
        "as good as the token itself": neighbours(0.9, 0, 0, 0),
        "told by positions alone": neighbours(0.5, 0.2, 0.2, 0.05, inputs=0.5),
    }
    kept = {"as good as the token itself": {"information"}}
    check(lambda given: neighbour_claims(*given), neighbours(0.5, 0.2, 0.2, 0.05), nulls, kept)


def fractions(values: list[float]) -> xr.Dataset:
    found = made.rates({"mlp l2": np.array(values)[:, None]}, noise=0.001, axes=("fraction", "layer"))
    return found.assign_coords(fraction=[0.5, 0.8, 0.9, 1.0])


def test_parts_of_the_data() -> None:
    nulls = {
        "in proportion to the data": fractions([0.5, 0.8, 0.9, 1.0]),
        "nothing changes": fractions([0.82] * 4),
    }
    check(lambda given: fraction_claims(given, True), fractions([0.74, 0.80, 0.81, 0.82]), nulls,
          {"nothing changes": {"recovers at"}})  # fmt: skip


# Hidden Token Attribution.

NULLS = {
    "uniform mixing": made.uniform_mixing(),
    "one local kernel": made.one_local_kernel(),
    "random mixing": made.random_mixing(),
}


def test_self_contribution() -> None:
    kept = {"one local kernel": {"less than a third", "own largest"}}
    check(lambda given: self_claims(given, None), made.as_published(), NULLS, kept)


def test_published_numbers_are_judged_of_the_same_model_and_data_only() -> None:
    for comparable, expected in ((True, False), (False, None)):
        found = list(self_claims(made.random_mixing(), comparable))[:2]
        assert [claim.holds for claim in found] == [expected, expected]


def test_neighbours_near_and_far() -> None:
    check(near_claims, made.as_published(), NULLS, {"one local kernel": {"regardless of depth"}})


def test_where_the_first_token_looks() -> None:
    def claims(texts: list[np.ndarray]) -> Iterable[Claim]:
        return class_token_claims(texts, [one.shape[1] // 2 for one in texts])

    check(claims, made.as_published(), NULLS)
    # A separator that stands anywhere: shuffled labels.
    generator = np.random.default_rng(3)
    texts = made.as_published()
    found = class_token_claims(texts, [int(generator.integers(4, one.shape[1] - 4)) for one in texts])
    assert not any(claim.holds for claim in found if "second sentence" not in claim.statement)


def test_parts_of_speech() -> None:
    generator = np.random.default_rng(0)
    tags = [[str(generator.choice(["NN", "VB", "DT", "IN", "."])) for _ in range(20)] for _ in range(20)]
    own = [
        np.array([[0.15 if tag in ("NN", "VB") else 0.1 for tag in text]]) * generator.uniform(0.7, 1.3, (1, 20))
        for text in tags
    ]
    shuffled = [list(generator.permutation(text)) for text in tags]
    same = [np.full((1, 20), 0.1) for _ in tags]
    check(lambda given: tag_claims(*given), (own, tags), {"shuffled": (own, shuffled), "same": (same, tags)})


# The structure-aware draft.


def test_the_map_that_reverses() -> None:
    eye = np.eye(8)
    nulls = {"uniform": (0.1, np.full((8, 8), 1 / 8)), "diagonal": (0.5, eye)}
    check(lambda given: map_claims(*given), (0.99, 0.9 * eye[::-1] + 0.1 / 8), nulls)


def thresholds(kept: float, empty: float, stable: tuple[float, float]) -> xr.Dataset:
    return xr.Dataset(
        {"antidiagonal_weight": ("threshold", [0.5, kept]), "empty_rows": ("threshold", [0.0, empty])},
        {"threshold": [0.1, 0.4]},
        {"stable_from": stable[0], "stable_to": stable[1], "recommended": 0.3},
    )


def test_the_threshold() -> None:
    nulls = {
        "a uniform map, cut to nothing": thresholds(float("nan"), 1.0, (0.2, 0.9)),
        "a random map": thresholds(0.1, 0.0, (0.0, 0.9)),
        "W still changes": thresholds(1.0, 0.0, (0.1, 0.3)),
    }
    check(threshold_claims, thresholds(1.0, 0.0, (0.1, 0.8)), nulls)


def perturbed(ratio: tuple[float, float, float], differences: tuple[float, float]) -> xr.Dataset:
    distances = ["structure", "one", "infinity", "frobenius"]
    low, high = differences
    return xr.Dataset(
        {
            "break_over_keep": ("outcome", [ratio[0]]),
            "break_over_keep_low": ("outcome", [ratio[1]]),
            "break_over_keep_high": ("outcome", [ratio[2]]),
            "correlation": (("distance", "outcome"), [[0.5], [0.3], [0.3], [0.6]]),
            "difference": (("distance", "outcome"), [[0.0]] + [[(low + high) / 2]] * 3),
            "difference_low": (("distance", "outcome"), [[0.0]] + [[low]] * 3),
            "difference_high": (("distance", "outcome"), [[0.0]] + [[high]] * 3),
        },
        {"distance": distances, "outcome": ["logits"]},
    )


def test_perturbations() -> None:
    nulls = {
        "no difference": perturbed((1.0, 0.9, 1.1), (-0.1, 0.1)),
        "more, but not far more": perturbed((1.3, 1.2, 1.4), (0.1, 0.3)),
    }
    check(perturbation_claims, perturbed((4.0, 3.0, 5.0), (-0.3, -0.1)), nulls)
    assert all(claim.published == "expected, not measured" for claim in perturbation_claims(nulls["no difference"]))


def classifiers(claim: str, accuracy: float) -> xr.Dataset:
    return xr.Dataset(
        {
            "accuracy_mean": ("variant", [accuracy, accuracy]),
            "accuracy_low": ("variant", [accuracy - 0.02, accuracy - 0.02]),
            "answer": ("variant", ["–", "equally accurate"]),
            "more_identifiable": ("variant", ["–", "null space"]),
            "claim": ("variant", ["–", claim]),
        },
        {"variant": ["regular", "added heads"]},
        {"margin": 0.02, "majority": 0.5},
    )


def test_classifiers() -> None:
    nulls = {
        "shuffled labels": classifiers("holds", 0.5),
        "less accurate": classifiers("does not hold", 0.8),
        "undecided": classifiers("undecided", 0.8),
    }
    check(classifier_claims, classifiers("holds", 0.8), nulls)
