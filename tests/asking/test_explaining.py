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
        ("LayerIntegratedGradients", "integrated_gradients"),
        ("NoiseTunnel", "smooth_gradient"),
        ("neuron_view", "attention"),
        ("ALTI+", "alti"),
        ("logit-lens", "direct_logit_attribution"),
        ("AttnLRP", "attention_lrp"),
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
    ends = joined_words(["light", "house</w>", ".</w>"], [False] * 3, ["tokens"] * 3)
    assert ends[:2] == ([0, 0, 1], ["lighthouse", "."])
    # A space that is a token of its own is a word that can be seen, or the beginning of the word behind it.
    spaces = joined_words(["▁", ",", "▁", "a"], [False] * 4, ["tokens"] * 4)
    assert spaces[:2] == ([0, 1, 2, 2], ["␣", ",", "a"])


def test_a_text_of_one_word_is_one_word(smollm2: identiscope.Model) -> None:
    """Nothing in it has the mark of a word's beginning."""
    trace = identiscope.trace(smollm2, "Unbelievably")
    whole = identiscope.explain(trace, methods="saliency", words=True)
    assert len(trace.tokens) > 1 and whole["input_token"].values.tolist() == ["Unbelievably"]
    assert (int(whole["input_begin"][0]), int(whole["input_end"][0])) == (0, 12)


def test_what_is_there_is_kept_and_the_rest_asked(trace: identiscope.Trace, explained: xr.Dataset) -> None:
    first = identiscope.explain(trace, "good", methods=["occlusion"])
    first["score"].loc["occlusion"] += 100  # so that it is seen whether it was asked again
    both = identiscope.explain(trace, "good", methods=["occlusion", "rollout"], resume=first)
    assert (both["score"].loc["occlusion"] > 50).all()
    np.testing.assert_array_equal(both["score"].loc["rollout"], explained["score"].loc["rollout"])
    with pytest.raises(InputError, match="outcome"):
        identiscope.explain(trace, "bad", methods=["occlusion", "rollout"], resume=first)


def test_what_was_asked_otherwise_is_asked_again(trace: identiscope.Trace) -> None:
    """Another baseline is another question to occlusion, and none to rollout."""
    names = ["occlusion", "rollout"]
    first = identiscope.explain(trace, "good", methods=names, baseline="mean")
    first["score"][:] += 100
    again = identiscope.explain(trace, "good", methods=names, baseline="zero", resume=first)
    alone = identiscope.explain(trace, "good", methods=names, baseline="zero")
    np.testing.assert_array_equal(again["score"].loc["occlusion"], alone["score"].loc["occlusion"])
    assert (again["score"].loc["rollout"] > 50).all()
    assert (first.attrs["baseline"], again.attrs["baseline"]) == ("the mean embedding of the text", "zeros")
    assert "baseline" not in identiscope.explain(trace, "good", methods=["rollout"], resume=first).attrs


def test_other_outcomes_of_the_same_name_and_words_that_were_added_up_are_not_gone_on_from(
    trace: identiscope.Trace,
) -> None:
    def read(run: identiscope.Rerun) -> Tensor:
        return run.hidden_states[-1][1, 0]

    def other(run: identiscope.Rerun) -> Tensor:
        return 2 * run.hidden_states[-1][1, 0]

    other.__name__ = "read"
    first = identiscope.explain(trace, read, methods="saliency")
    with pytest.raises(InputError, match="is of another outcome: that was"):
        identiscope.explain(trace, other, methods="saliency", resume=first)
    whole = identiscope.explain(trace, read, methods="saliency", words=True)
    with pytest.raises(InputError, match="has the pieces of words added up"):
        identiscope.explain(trace, read, methods="saliency", resume=whole)


def test_what_was_interrupted_is_gone_on_with(trace: identiscope.Trace, tmp_path: Path) -> None:
    """The third method is interrupted: two are in the file, and are not asked again."""
    path, asked = tmp_path / "explained.safetensors", []

    def sizes(embeddings: Tensor) -> Tensor:
        asked.append(1)
        if len(asked) == 1:
            raise KeyboardInterrupt
        return embeddings.double().norm(dim=-1)

    with registered(Method("sizes", "score", "mine", "the length of an embedding", function=sizes)):
        names = ["occlusion", "rollout", "sizes"]
        with pytest.raises(KeyboardInterrupt):
            identiscope.explain(trace, "good", methods=names, words=True, out=path)
        kept = identiscope.load_result(path)
        assert kept["method"].values.tolist() == names[:2]
        kept["score"][:] += 100
        whole = identiscope.explain(trace, "good", methods=names, resume=kept, out=path)
    assert (whole["score"].values[:2] > 50).all() and whole["method"].values.tolist() == names
    assert identiscope.load_result(path)["method"].values.tolist() == names


def test_inputs_say_where_in_the_text_they_are(minilm: identiscope.Model) -> None:
    text, outcome = "The lighthousekeeper overslept unhappily.", "similarity:A man slept."
    trace = identiscope.trace(minilm, text)
    pieces, whole = (identiscope.explain(trace, outcome, methods="saliency", words=words) for words in (False, True))
    assert pieces.sizes["input"] > whole.sizes["input"]
    for found in (pieces, whole):
        for token, begin, end in zip(
            found["input_token"].values, found["input_begin"].values, found["input_end"].values, strict=True
        ):
            shown = text[begin:end].lower() if begin >= 0 else str(token)
            assert shown == str(token).removeprefix("##") and (begin < 0) == (str(token) in ("[CLS]", "[SEP]"))


def test_a_similarity_is_the_encoders_in_a_model_of_two_sides(tmp_path: Path) -> None:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    folder = save_tiny(tmp_path / "t5", "T5ForConditionalGeneration", **sizes, decoder_start_token_id=0, pad_token_id=0)
    trace = identiscope.trace(identiscope.load(folder), words(4), target=words(2))
    found = identiscope.explain(trace, f"similarity:{words(3)}", methods=["rollout", "gradient_attention", "saliency"])
    assert found["input_token"].values.tolist() == list(trace.streams["encoder"].tokens)
    assert not any(found["failed"].values) and np.isfinite(found["score"]).all()
    alone = identiscope.rollout(trace, stream="encoder")["rollout"].values[-1]
    read = trace.outcome(f"similarity:{words(3)}").read.numpy()
    np.testing.assert_allclose(found["score"].loc["rollout"], read @ alone, atol=1e-6)


def test_an_outcome_without_a_derivative_is_still_occluded(trace: identiscope.Trace) -> None:
    """What is said of how much it reads of each state would be said of nothing."""

    def rooted(run: identiscope.Rerun) -> Tensor:
        last = run.hidden_states[-1]
        return last[0].sum() + (last[1] - last[1].detach()).square().sum().sqrt()

    found = identiscope.explain(trace, rooted, methods=["attention", "rollout", "alti_logit", "saliency", "occlusion"])
    assert all("is infinite or no number" in str(why) for why in found["failed"].values[:4])
    assert not found["failed"].values[4] and np.isfinite(found["score"].values[4]).all()


@pytest.mark.parametrize("budget", [43, 60, 100])
def test_no_method_that_draws_or_refines_takes_more_than_the_budget(trace: identiscope.Trace, budget: int) -> None:
    drawing = ["integrated_gradients", "smooth_gradient", "shapley", "kernel_shap", "hidden_token_attribution"]
    found = identiscope.explain(trace, "good", methods=drawing, budget=budget)
    assert not any(found["failed"].values)
    assert (found["passes"] <= budget).all() and (found["passes"] > 0.4 * budget).all()


def test_errors_of_a_mixture_and_residuals_of_maps_are_shown(trace: identiscope.Trace) -> None:
    names = ["hidden_token_attribution", "attention_attribution"]
    found = identiscope.explain(trace, "good", methods=names)
    read = trace.outcome("good").read.numpy()
    alone = identiscope.hidden_token_attribution(trace, mode="estimate", layers=[1])
    errors = alone["contribution_error"].isel(layer=-1).transpose("output", "input").values
    np.testing.assert_allclose(found["score_error"].loc["hidden_token_attribution"], read @ errors, rtol=1e-6)
    assert float(found["passes"][0]) == 16 * len(trace.tokens)
    maps = identiscope.attention_attribution(trace, outcome="good", points=4)
    off = maps["completeness_residual"].values
    worst = int(np.abs(off).argmax())
    assert float(found["residual"][1]) == pytest.approx(off[worst], rel=1e-4)
    assert float(found["promised_sum"][1]) == pytest.approx(float(maps["outcome_change"][worst]), rel=1e-6)


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
