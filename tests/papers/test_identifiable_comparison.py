"""The comparison of attentions: what it measures, that it can be repeated, and what the criterion makes of it."""

from typing import Any

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

from heard import Heard
from identiscope.errors import InputError
from identiscope.papers.bhardwaj2021 import comparison as identifiable_comparison
from identiscope.papers.bhardwaj2021.classifier import Classifier
from identiscope.papers.bhardwaj2021.comparison import compare_attention, judge, variants_with
from identiscope.papers.bhardwaj2021.training import TrainingRecipe, texts_of
from identiscope.results import load_result, save_result
from identiscope.views.plots.identifiable import plot_comparison

WORDS = ("cat", "dog", "nurse", "parrot", "garden", "bread", "house", "river")
SHAPE = {"width": 16, "heads": 4, "feed_forward": 16, "dropout": 0.1}
RECIPE = TrainingRecipe(epochs=3, learning_rate=1e-2, batch_size=16)


def toy(count: int, seed: int) -> list[tuple[str, str]]:
    """Texts of two to ten words; the label is whether `cat` is among them."""
    generator = np.random.default_rng(seed)
    texts = [" ".join(generator.choice(WORDS, size=generator.integers(2, 11))) for _ in range(count)]
    return [(text, "yes" if "cat" in text else "no") for text in texts]


@pytest.fixture(scope="module")
def result() -> xr.Dataset:
    return compare_attention(
        toy(120, 0), toy(40, 1), variants=variants_with(1), seeds=(3, 4), shape=SHAPE, recipe=RECIPE
    )


def test_accuracy_and_null_spaces_side_by_side(result: xr.Dataset) -> None:
    assert result["variant"].values.tolist() == ["regular", "small d_k", "added heads", "added, small d_k"]
    assert result.sizes == {"variant": 4, "seed": 2, "text": 40, "length": 9}
    np.testing.assert_array_equal(result.accuracy, result.correct.mean("text"))
    np.testing.assert_allclose(result.accuracy_mean, result.accuracy.mean("seed"))
    assert float(result.accuracy.max()) > 0.9
    lengths = result["length"].values
    assert lengths.tolist() == list(range(2, 11)) and (result.texts_measured == 5).all()
    expected = np.maximum(lengths - 4 - 1, 0)
    means = result.simplex_null_dimension.mean("seed")
    for name in ("regular", "small d_k"):
        np.testing.assert_array_equal(means.sel(variant=name), expected)
    assert (means.sel(variant="added heads") < 0.5).all()
    assert (result.realisable_dimension.sel(variant="small d_k") == 0).all()
    # 16·4 of queries, keys and values with biases, and 16·16 + 16 after them; added: values 4·16 wide.
    assert result.attention_parameters.values.tolist() == [1088, 1088 - 2 * 12 * 17, 1088 + 48 * 17, 1088 + 24 * 17]
    assert result.attrs["configs"]["added heads"]["combine"] == "add" and result.attrs["margin"] == 0.02
    assert result.more_identifiable.values.tolist() == [
        "–", "realisable maps", "null space and realisable maps", "null space and realisable maps",
    ]  # fmt: skip


def test_two_runs_give_the_same_numbers_in_any_order_of_seeds(result: xr.Dataset, tmp_path: Any) -> None:
    kept: list[tuple[str, int, int]] = []
    said = Heard()

    def keep(name: str, seed: int, classifier: Classifier) -> None:
        kept.append((name, seed, len(classifier.tokenizer.words)))

    variants = dict(list(variants_with(1).items())[:2])
    again = compare_attention(
        toy(120, 0), toy(40, 1), variants=variants, seeds=(4, 3), shape=SHAPE, recipe=RECIPE, keep=keep,
        progress=said,
    )  # fmt: skip
    for name in ("correct", "best_epoch", "simplex_null_dimension", "validation_accuracy"):
        xr.testing.assert_equal(again[name], result[name].sel(variant=list(variants), seed=[4, 3]))
    assert [one[:2] for one in kept] == [("regular", 4), ("small d_k", 4), ("regular", 3), ("small d_k", 3)]
    done = [step[1] for step in said.steps]
    assert done == sorted(done) and said.steps[-1][1] == said.steps[-1][2]
    assert said.steps[-1][0] == "small d_k, seed 3, epoch 3 of 3"
    loaded = load_result(save_result(again, tmp_path / "comparison.safetensors"))
    assert loaded.claim.values.tolist() == again.claim.values.tolist()
    np.testing.assert_array_equal(loaded.correct, again.correct)


def test_without_test_texts_a_tenth_is_set_aside() -> None:
    found = compare_attention(toy(60, 0), variants={"regular": {}}, seeds=(0,), shape=SHAPE, recipe=RECIPE)
    assert (found.sizes["text"], found.attrs["texts"]) == (6, 54)
    assert np.isnan(found.accuracy_low).all() and found.answer.values.tolist() == ["–"]


def test_equal_texts_are_set_aside_together(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [*toy(20, 0), *toy(20, 0), *toy(20, 0)]
    sides = []

    def seen(tokenizer: Any, labels: Any, part: list[tuple[str, str]], **options: Any) -> object:
        sides.append({text for text, _ in part})
        return texts_of(tokenizer, labels, part, **options)

    monkeypatch.setattr(identifiable_comparison, "texts_of", seen)
    compare_attention(given, variants={"regular": {}}, seeds=(0,), shape=SHAPE, recipe=RECIPE)
    train, validation, test = sides
    assert train and validation and test
    assert not (train & validation or train & test or validation & test)
    with pytest.raises(InputError, match="are the same"):
        compare_attention([("same", "a"), ("same", "b")] * 6, seeds=(0,), shape=SHAPE, recipe=RECIPE)


@pytest.mark.parametrize(
    ("null", "realisable", "answer", "gain", "claim"),
    [
        ([0, 0, 1], [0, 0, 3], "equally accurate", "null space and realisable maps", "holds"),
        ([0, 0, 1], [0, 9, 9], "more accurate", "null space", "holds"),
        ([0, 2, 4], [0, 0, 0], "undecided", "realisable maps", "undecided"),
        ([0, 0, 1], [0, 0, 0], "less accurate", "null space and realisable maps", "does not hold"),
        ([0, 2, 1], [0, 6, 8], "equally accurate", "no", "does not hold"),  # not smaller at every length
        ([5, 0, 1], [5, 0, 0], "equally accurate", "null space and realisable maps", "holds"),  # zero says nothing
    ],
)
def test_the_criterion(null: list[int], realisable: list[int], answer: str, gain: str, claim: str) -> None:
    axes = ("variant", "seed", "length")
    made = xr.Dataset(
        {
            "simplex_null_dimension": (axes, np.array([[[0, 2, 4]], [null]])),
            "realisable_dimension": (axes, np.array([[[0, 6, 8]], [realisable]])),
            "answer": (("variant",), np.array(["–", answer], dtype=object)),
        },
        coords={"variant": ["regular", "other"]},
    )
    judged = judge(made).sel(variant="other")
    assert (judged.more_identifiable.item(), judged.claim.item()) == (gain, claim)


def test_plots_are_drawn_from_a_real_result(result: xr.Dataset) -> None:
    for values in ("accuracy", "difference", "simplex_null_dimension", "realisable_dimension", "identifiable"):
        figure = Figure()
        ax = figure.add_subplot()
        assert plot_comparison(result, ax, values=values) is ax
        figure.canvas.draw()
        assert ax.has_data() and (ax.get_ylabel() or ax.get_xlabel())


def test_refusals() -> None:
    for texts, options in (
        ([("a", "x")] * 20, {}),
        (toy(20, 0), {"variants": {}}),
        (toy(20, 0), {"seeds": (1, 1)}),
        (toy(20, 0), {"per_length": 0}),
    ):
        with pytest.raises(InputError, match="expected at least two labels"):
            compare_attention(texts, **options)
    with pytest.raises(InputError, match="at least ten"):
        compare_attention(toy(9, 1))
