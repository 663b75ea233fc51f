"""Many methods on one captured pass: what each said by itself, put side by side."""

from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import xarray as xr
from matplotlib.figure import Figure
from torch import Tensor

import identiscope
from identiscope import InputError, Method
from identiscope.asking.ask import numbers_of
from identiscope.methods.registry import METHODS, method, registered
from identiscope.stats.agreement import agreement
from identiscope.token_text import joined_words
from tiny_text_model import save_tiny, words

ASKED = ["attention", "rollout", "gradient_input", "occlusion", "shapley"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> identiscope.Model:
    names = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
    folder = tmp_path_factory.mktemp("explaining") / "model"
    return identiscope.load(save_tiny(folder, "BertForSequenceClassification", **names))


@pytest.fixture(scope="module")
def trace(model: identiscope.Model) -> identiscope.Trace:
    return identiscope.trace(model, words(6, 1))


@pytest.fixture(scope="module")
def explained(trace: identiscope.Trace) -> xr.Dataset:
    return identiscope.explain(trace, "good", methods=ASKED)


def test_scores_are_those_of_each_method(trace: identiscope.Trace, explained: xr.Dataset) -> None:
    for name in ("gradient_input", "occlusion", "shapley"):
        alone = identiscope.ask(name, trace, outcome="good")
        np.testing.assert_allclose(explained["score"].loc[name], alone["score"].values, rtol=1e-10, atol=1e-12)
    read = trace.outcome("good").read.numpy()
    rolled = identiscope.rollout(trace)["rollout"].isel(layer=-1).transpose("output", "input").values
    np.testing.assert_allclose(explained["score"].loc["rollout"], read @ rolled, atol=1e-6)
    product = np.eye(len(trace.tokens))
    for layer in identiscope.attention(trace)["attention"].values:
        product = layer.mean(0) @ product
    np.testing.assert_allclose(explained["score"].loc["attention"], read @ product, atol=1e-6)
    sizes = explained["score"] / abs(explained["score"]).sum("input")
    np.testing.assert_allclose(explained["share"], sizes)
    assert explained.attrs["outcome_value"] == pytest.approx(float(trace.outcome("good").value))
    assert "good" in explained.attrs["outcome"] and not any(explained["failed"].values)


def test_both_gradients_come_from_one_pass_and_do_not_depend_on_what_else_is_asked(trace: identiscope.Trace) -> None:
    names = ["gradient_attention", "gradient_rollout", "gradient_input", "saliency"]
    together = identiscope.explain(trace, "good", methods=names)
    assert together["passes"].values.tolist() == [3, 0, 0, 0]
    for name in names:
        alone = identiscope.explain(trace, "good", methods=[name])
        np.testing.assert_array_equal(alone["score"].loc[name], together["score"].loc[name])
        assert float(alone["passes"].sum()) == 3


@pytest.mark.parametrize("name", ["weighted_norm", "residual_norm", "layer_norm_norm", "globenc", "attention"])
def test_numbers_without_labels_are_those_of_the_result(trace: identiscope.Trace, name: str) -> None:
    arrays = numbers_of(METHODS[name], trace, {}).arrays
    whole = identiscope.ask(name, trace)
    assert len(arrays) == 1  # what is made only when asked for was not asked for
    for axes, values in arrays.values():
        same = next(one for one in whole.data_vars.values() if one.dims == axes)
        np.testing.assert_array_equal(values, same.values)


@pytest.mark.parametrize(
    ("known", "name"),
    [
        ("InputXGradient", "gradient_input"),
        ("IntegratedGradients", "integrated_gradients"),
        ("FeatureAblation", "occlusion"),
        ("ShapleyValueSampling", "shapley"),
        ("KernelShap", "kernel_shap"),
        ("input_x_gradient", "gradient_input"),
        ("value-zeroing", "value_zeroing"),
        ("attention_rollout", "rollout"),
        ("Saliency", "saliency"),
    ],
)
def test_methods_are_known_by_the_names_that_other_libraries_give_them(known: str, name: str) -> None:
    assert method(known).name == name


def test_a_name_that_is_nearly_one_is_said_to_be(trace: identiscope.Trace) -> None:
    with pytest.raises(InputError, match=r"there is no method 'rolout'; .* Did you mean rollout\?"):
        identiscope.explain(trace, "good", methods="rolout")


def test_what_is_promised_is_measured(explained: xr.Dataset) -> None:
    """Shapley values add up to what the outcome gains over a text that says nothing; rollout promises nothing."""
    one = explained.sel({"method": "shapley"})
    assert float(one["residual"]) == pytest.approx(float(one["score"].sum()) - float(one["promised_sum"]), abs=1e-9)
    assert np.isnan(explained["residual"].loc["rollout"]) and (explained["cost"] > 0).all()
    assert int(explained["passes"].loc["occlusion"]) >= 4 and int(explained["passes"].loc["attention"]) == 0


def test_agreement_is_spearmans_of_sizes_without_special_tokens(explained: xr.Dataset) -> None:
    kept = ~explained["input_special"].values.astype(bool)
    scores = np.abs(explained["score"].values[:, kept])
    for one in range(len(ASKED)):
        for other in range(len(ASKED)):
            expected = scipy.stats.spearmanr(scores[one], scores[other]).statistic
            assert float(explained["agreement"][one, other]) == pytest.approx(expected)


def test_ties_share_ranks_and_what_is_constant_agrees_with_nothing() -> None:
    scores = np.array([[1.0, -1, 2, 9], [3, 3, 5, 0], [2, 2, 2, 7], [np.nan, 1, 2, 3]])
    table = agreement(scores, np.array([False, False, False, True]))
    assert table[0, 1] == 1 and np.isnan(table[0, 2]) and table[0, 3] == pytest.approx(1)


def test_words_are_sums_of_their_pieces(minilm: identiscope.Model) -> None:
    text, outcome = "The lighthousekeeper overslept unhappily.", "similarity:A man slept."
    trace = identiscope.trace(minilm, text)
    pieces = identiscope.explain(trace, outcome, methods=["saliency", "gradient_input"])
    whole = identiscope.explain(trace, outcome, methods=["saliency", "gradient_input"], words=True)
    assert [str(token) for token in whole["input_token"].values] == [
        "[CLS]", "the", "lighthousekeeper", "overslept", "unhappily", ".", "[SEP]",
    ]  # fmt: skip
    begins = np.flatnonzero([not str(token).startswith("##") for token in pieces["input_token"].values])
    expected = np.add.reduceat(pieces["score"].values, begins, axis=1)
    np.testing.assert_allclose(whole["score"], expected, rtol=1e-6)
    assert whole["input_special"].values.tolist() == [True, *[False] * 5, True]
    assert np.isnan(whole["score_error"]).all()


def test_joined_words_end_at_streams() -> None:
    groups, named, special, side = joined_words(["Ġa", "b", "b"], [False] * 3, ["encoder", "encoder", "decoder"])
    assert (groups, named, special, side) == ([0, 0, 1], ["ab", "b"], [False, False], ["encoder", "decoder"])


def test_what_is_there_is_kept_and_the_rest_asked(trace: identiscope.Trace, explained: xr.Dataset) -> None:
    first = identiscope.explain(trace, "good", methods=["occlusion"])
    first["score"].loc["occlusion"] += 100  # so that it is seen whether it was asked again
    both = identiscope.explain(trace, "good", methods=["occlusion", "rollout"], resume=first)
    assert (both["score"].loc["occlusion"] > 50).all()
    np.testing.assert_array_equal(both["score"].loc["rollout"], explained["score"].loc["rollout"])
    with pytest.raises(InputError, match="outcome"):
        identiscope.explain(trace, "bad", methods=["occlusion", "rollout"], resume=first)


def test_one_that_cannot_be_asked_says_why_and_the_others_answer(trace: identiscope.Trace) -> None:
    found = identiscope.explain(trace, "good", methods=["integrated_gradients", "saliency"], budget=2)
    failed = {name: str(why) for name, why in zip(found["method"].values, found["failed"].values, strict=True)}
    assert "budget=2" in failed["integrated_gradients"] and not failed["saliency"]
    unknown = found["score"].isnull()
    assert unknown.loc["integrated_gradients"].all() and not unknown.loc["saliency"].any()


def test_budget_and_seed_reach_every_method_that_draws(trace: identiscope.Trace) -> None:
    one, same, other = (
        identiscope.explain(trace, "good", methods=["smooth_gradient"], budget=12, seed=seed) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one["score"], same["score"])
    assert not np.allclose(one["score"], other["score"])
    assert float(one["passes"].loc["smooth_gradient"]) <= 12


@pytest.mark.parametrize("methods", ["fast", "all"])
def test_the_registry_is_what_all_and_fast_mean(methods: str) -> None:
    from identiscope.asking.explaining import chosen_methods

    names = {one.name for one in chosen_methods(methods)}
    fast = {name for name, one in METHODS.items() if "fast" in one.tags and one.kind in ("map", "mixture", "score")}
    assert names == fast if methods == "fast" else names > fast
    assert "null" not in names and "attention_rank" not in names


@pytest.mark.parametrize("methods", ["", "colour", ["rollout", "rollout"], "attention_rank", []])
def test_methods_that_explain_nothing_are_refused(trace: identiscope.Trace, methods: str | list[str]) -> None:
    with pytest.raises(InputError):
        identiscope.explain(trace, "good", methods=methods)


def test_a_method_of_ones_own_is_asked(trace: identiscope.Trace) -> None:
    def sizes(embeddings: Tensor) -> Tensor:
        return embeddings.double().norm(dim=-1)

    with registered(Method("sizes", "score", "mine", "the length of an embedding", function=sizes)):
        found = identiscope.explain(trace, "good", methods=["sizes", "rollout"])
    np.testing.assert_allclose(found["score"].loc["sizes"], trace.hidden_states[0].double().norm(dim=-1), rtol=1e-6)


def test_it_is_drawn_tabled_and_saved(explained: xr.Dataset, tmp_path: Path) -> None:
    axes = identiscope.plot(explained, Figure().add_subplot())
    assert [label.get_text().replace(" ", "_") for label in axes.get_yticklabels()] == ASKED
    assert len(axes.get_xticklabels()) == int((~explained["input_special"].astype(bool)).sum())
    identiscope.save_result(explained, tmp_path / "explained.safetensors")
    again = identiscope.load_result(tmp_path / "explained.safetensors")
    np.testing.assert_array_equal(again["score"], explained["score"])
    table = explained.identiscope.table()
    assert len(table) == explained.sizes["method"] * explained.sizes["input"]
    page = identiscope.report(explained, path=tmp_path / "page.html").read_text(encoding="utf-8")
    assert "gradient_input" in page
