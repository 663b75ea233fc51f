"""What an outcome loses without a head: against the model with attention substituted, and finite differences."""

import numpy as np
import pytest
import torch

import contract
import identiscope
from identiscope.runs.heads.importance import Importance, pair_changes, pruning_cost


def outcome_with(family: str, replacements: dict[tuple[int, int], object]) -> float:
    """The outcome of the contract's text with attention replaced: another way to leave a head out."""
    model = contract.model(family)
    return float(contract.some_outcome(identiscope.substitute(model, contract.MANY, replacements)))  # type: ignore[arg-type]


@pytest.mark.parametrize("family", ["BERT", "Llama", "GPT-2", "ALBERT"])
def test_changes_are_those_of_the_model_with_other_attention(family: str) -> None:
    traced = identiscope.trace(contract.model(family), contract.MANY)
    found = identiscope.head_importance(traced, outcome=contract.some_outcome)
    before = outcome_with(family, {})
    for layer, head in ((0, 1), (1, 3)):
        allowed = traced.sites[layer].allowed_keys(head).double()
        instead = {
            "zero": torch.zeros_like(allowed),
            "uniform": allowed / allowed.sum(1, keepdim=True),
        }
        for name, attention in instead.items():
            expected = outcome_with(family, {(layer, head): attention}) - before
            assert float(found[f"{name}_change"].sel(layer=layer, head=head)) == pytest.approx(expected, abs=1e-9)
        # Norms of some families round to float32 inside.
        step = 1e-3
        ends = [outcome_with(family, {(layer, head): lambda a, by=by: a * (1 + by)}) for by in (step, -step)]
        slope = (ends[0] - ends[1]) / (2 * step)
        assert float(found["gate_gradient"].sel(layer=layer, head=head)) == pytest.approx(slope, abs=5e-4, rel=1e-3)
    assert float(np.abs(found["null_change"]).max()) < 1e-6
    assert float(np.abs(found["zero_change"]).min()) > 1e-7


def test_what_is_below_is_not_run_again() -> None:
    traced = identiscope.trace(contract.model("BERT"), contract.MANY)
    runs = traced.runner().head_runs
    site = traced.sites[1]
    runs.with_contexts(site.index, site.context.expand(6, -1, -1, -1))
    assert runs.passes == 6 * 0.5  # of two layers, the upper one


def test_pairs_are_those_of_the_model_without_both() -> None:
    traced = identiscope.trace(contract.model("BERT"), contract.MANY)
    alone, both = pair_changes(traced, contract.some_outcome)
    nothing, before = torch.zeros(len(contract.MANY), len(contract.MANY)), outcome_with("BERT", {})
    heads = traced.sites[0].head_count
    for one, other in (((0, 0), (0, 2)), ((0, 1), (1, 3))):
        expected = outcome_with("BERT", {one: nothing, other: nothing}) - before
        assert both[one[0] * heads + one[1], other[0] * heads + other[1]] == pytest.approx(expected, abs=1e-9)
    expected = outcome_with("BERT", {(1, 2): nothing}) - before
    assert alone[heads + 2] == pytest.approx(expected, abs=1e-9)


def test_a_corpus_has_means_of_texts_and_counts_those_that_fail() -> None:
    model = contract.model("BERT")
    traces = [identiscope.trace(model, text) for text in (contract.MANY, contract.OTHER, contract.FEW)]

    def outcome(number: int) -> object:
        return "similarity:" if number == 2 else contract.some_outcome

    study = Importance(("zero", "mean", "resample", "null"), outcome)
    for traced in traces:
        study.add_mean(traced)
    for number, traced in enumerate(traces):
        study.add(traced, number)
    assert len(study.failed) == 1 and study.failed[0].startswith("text 2: similarity: was given without a text")
    each = [identiscope.head_importance(one, outcome=contract.some_outcome) for one in traces[:2]]
    values = np.stack([one["zero_change"].values for one in each])
    np.testing.assert_allclose(study.arrays()["zero_change"], values.mean(0), atol=1e-9)
    np.testing.assert_allclose(study.arrays()["zero_size_error"], np.abs(values).std(0, ddof=1) / 2**0.5, atol=1e-9)
    gates = np.stack([np.abs(one["gate_gradient"].values) for one in each])
    np.testing.assert_allclose(study.arrays()["gate_gradient"], gates.mean(0), atol=1e-9)
    # The mean over the corpus, by hand, in place of one head of the second text.
    sums = sum(one.sites[1].context[2].sum(0) for one in traces)
    mean = sums / sum(len(one.tokens) for one in traces)
    contexts = traces[1].sites[1].context.clone()
    contexts[2] = mean
    made = traces[1].runner().head_runs.with_contexts(traces[1].sites[1].index, contexts[None])
    last = made.hidden_states["tokens"][-1][0]
    run = identiscope.Rerun(None, {"tokens": (last,)})
    change = float(contract.some_outcome(run)) - traces[1].outcome(contract.some_outcome).value
    again = Importance(("mean",), outcome)
    for traced in traces:
        again.add_mean(traced)
    again.add(traces[1], 1)
    assert again.arrays()["mean_change"][1, 2] == pytest.approx(change, abs=1e-9)


def test_dropping_heads_costs_what_the_model_without_them_says() -> None:
    traced = identiscope.trace(contract.model("BERT"), contract.MANY)
    cost = pruning_cost([(0, traced)], lambda number: contract.some_outcome, [1, 6, 0, 2, 3, 4, 5, 7], 2, 0)
    nothing = torch.zeros(len(contract.MANY), len(contract.MANY))
    expected = outcome_with("BERT", {(0, 1): nothing, (1, 2): nothing}) - outcome_with("BERT", {})
    assert cost["change"] == pytest.approx(expected, abs=1e-9) and cost["texts"] == 1


def test_what_cannot_be_is_said(minilm: identiscope.Model) -> None:
    with pytest.raises(identiscope.InputError, match="ablation by half was asked for; there are zero, mean"):
        Importance(("half",), lambda number: None)
    with pytest.raises(identiscope.InputError, match="predicts no next tokens"):
        identiscope.head_importance(identiscope.trace(minilm, "A dog"), outcome="loss")
