"""Audits, each both ways: a method of which it is known that it must survive, and one that must not."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import identiscope
import rewritable
from identiscope.capture.redrawing import blocks_of, redraw
from identiscope.errors import InputError, ModelError
from identiscope.judge.audits.alternatives import ALTERNATIVES, other_attention
from identiscope.judge.audits.changes import Change, chance, change
from identiscope.judge.audits.findings import STAYS, SURVIVES, UNDECIDED
from identiscope.judge.audits.redrawn import _verdict, chance_bound, left_over
from identiscope.methods.fields import FIELDS, SEE_WEIGHTS, layer_fields
from identiscope.methods.registry import Method
from identiscope.methods.trace_fields import runs_of

#: More tokens than a head has channels, some of them twice.
TOKENS = [5, 17, 42, 8, 60, 23, 31, 7, 12, 50, 17, 5, 33, 29, 44, 8]


def traced(name: str, dtype: torch.dtype = torch.float64) -> identiscope.Trace:
    found = identiscope.trace(rewritable.model(name, dtype), TOKENS)
    assert isinstance(found, identiscope.Trace)
    return found


# Changes, against plain loops.


def reference(before: np.ndarray, after: np.ndarray, rows: Any, groups: np.ndarray) -> dict[str, float]:
    def share(values: list[float]) -> list[float]:
        total = sum(abs(value) for value in values)
        return [value / total for value in values]

    def apart(one: Any, other: Any) -> float:
        return 0.5 * sum(abs(a - b) for a, b in zip(share(list(one)), share(list(other)), strict=True))

    def ranks(values: Any) -> list[float]:
        return [sum(v < w for v in values) + (sum(v == w for v in values) + 1) / 2 for w in values]

    def stays(one: Any, other: Any) -> float:
        best = max(range(len(other)), key=lambda i: abs(other[i]))
        return float(abs(one[best]) >= 0.99 * max(abs(v) for v in one))

    def added(values: Any) -> list[float]:
        return [sum(v for v, g in zip(values, groups, strict=True) if g == group) for group in range(max(groups) + 1)]

    first, second = ranks(np.abs(before)), ranks(np.abs(after))
    flat = [(rows[0][i], rows[1][i]) for i in range(len(rows[0]))]
    return {
        "total_variation": apart(before, after),
        "rank_correlation": float(np.corrcoef(first, second)[0, 1]),
        "top_survives": stays(before, after),
        "merged_total_variation": apart(added(before), added(after)),
        "merged_top_survives": stays(added(before), added(after)),
        "row_total_variation": max(apart(*pair) for pair in flat),
        "row_mean_total_variation": sum(apart(*pair) for pair in flat) / len(flat),
        "row_top_survives": sum(stays(*pair) for pair in flat) / len(flat),
        "merged_row_total_variation": max(apart(*map(added, pair)) for pair in flat),
        "merged_row_top_survives": sum(stays(*map(added, pair)) for pair in flat) / len(flat),
        "relative": sum((a - b) ** 2 for x, y in flat for a, b in zip(x, y, strict=True)) ** 0.5
        / sum(a**2 for x, _ in flat for a in x) ** 0.5,
    }


@settings(max_examples=40)
@given(st.integers(0, 2**20), st.integers(3, 9), st.booleans())
def test_changes_are_what_they_are_called(seed: int, inputs: int, ties: bool) -> None:
    generator = np.random.default_rng(seed)
    before, after = generator.standard_normal((2, inputs))
    rows = generator.standard_normal((2, 4, inputs))
    if ties:
        before[:2], after[1:3] = 0.7, -0.2
    groups = np.array([i % (inputs - 1) for i in range(inputs)])
    found = change(before, after, (rows[0], rows[1]), groups)
    for name, value in reference(before, after, rows, groups).items():
        assert getattr(found, name) == pytest.approx(value, abs=1e-12), name


def test_a_change_that_is_none_survives_and_any_other_does_not() -> None:
    rows = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    groups = np.arange(3)
    assert change(rows[0], rows[0].copy(), (rows, rows.copy()), groups).survives
    # The score stays, a row of the answer does not.
    assert not change(rows[0], rows[0], (rows, rows[:, [0, 2, 1]]), groups).survives
    # Equal shares may change places, by rounding.
    tied = np.array([0.4, 0.4, 0.2])
    assert change(tied, tied + np.array([0.0, 1e-6, 0.0]), (tied, tied), groups).survives
    # A row of nothing is as far as can be from one of something.
    assert change(rows[0], np.zeros(3), (rows[0], np.zeros(3)), groups).total_variation == 1


def test_chance_is_what_a_random_scorer_has() -> None:
    generator = np.random.default_rng(5)
    found = []
    for _ in range(400):
        before, *others = generator.random((4, 12))
        changes = [change(before, one, (before, one), np.arange(12)) for one in others]
        found.append((max(one.total_variation for one in changes), min(one.top_survives for one in changes)))
    said = chance(12, 3, seed=1)
    means, errors = np.mean(found, 0), np.std(found, 0) / 20
    assert abs(means[0] - said["change"]) < 4 * errors[0]
    assert abs(means[1] - said["top_survives"]) < 4 * errors[1] + 0.005


def test_what_goes_among_copies_changes_and_merged_survives() -> None:
    rows = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    swapped, copies = rows[:, [1, 0, 2]], np.array([0, 0, 1])
    found = change(rows[0], swapped[0], (rows, swapped), copies)
    assert not found.survives and found.merged_survives
    assert not change(rows[0], rows[0, [0, 2, 1]], (rows, rows), copies).merged_survives
    assert not change(rows[0], rows[0], (rows, rows[:, [0, 2, 1]]), copies).merged_survives


# Null audit.


def test_which_fields_see_weights() -> None:
    """Every field of a layer is the same with other attention of the same output, or is said to see the weights."""
    trace = traced("bert")
    other = other_attention(trace, trace.main.name, "farthest")
    assert other.largest > 0.2
    pairs = [layer_fields(one.site(0), one.streams) for one in (trace, other.trace)]
    runs = runs_of(trace, _length)
    for name in FIELDS:
        if not hasattr(pairs[0], name) or name in ("softmax_rows", "exact_context", "attention_path", "with_contexts"):
            continue
        values = []
        for own in pairs:
            object.__setattr__(own, "runs", runs)
            value = getattr(own, name)
            values.append(value(slice(0, len(TOKENS))) if name == "raw" else value)
        if name == "row_sum":
            # Nothing is said of rows that a softmax made: they sum to one.
            values[0] = torch.ones_like(values[1])
        if isinstance(values[0], Tensor):
            same = torch.allclose(values[0].double(), values[1].double(), atol=1e-9)
            assert same is (name not in SEE_WEIGHTS), name
        else:
            assert values[0] == values[1] and name not in SEE_WEIGHTS


def _length(run: Any) -> Tensor:
    """An outcome of a model without a head: how long the first state is."""
    return run.hidden_states[-1][0].norm()


@pytest.mark.parametrize("how", ALTERNATIVES)
def test_other_attention_has_the_same_output_in_every_head(how: Any) -> None:
    trace = traced("llama")
    other = other_attention(trace, trace.main.name, how, token=1)
    assert other.kept == 0 and other.largest > 0.05 and other.merged_distance <= other.distance + 1e-12
    for before, after in zip(trace.sites, other.trace.sites, strict=True):
        for head in before.heads:
            values, projection = before.value_of(head).double(), before.projection[head].double()
            for weights in (before.attention(head), after.attention(head)):
                assert float(weights.min()) >= -1e-9 and not bool(weights.triu(1).any())
            moved = (after.attention(head) - before.attention(head)) @ values @ projection
            assert float(moved.abs().max()) < 1e-8
    if how == "avoid":
        # The token, with its copy, has less weight than before, in every layer.
        places = [1, 10]
        for before, after in zip(trace.sites, other.trace.sites, strict=True):
            for head in before.heads:
                assert bool(
                    (after.attention(head)[:, places].sum(1) <= before.attention(head)[:, places].sum(1) + 1e-9).all()
                )


def test_the_null_audit_says_what_is_known() -> None:
    trace = traced("llama")
    names = ["attention", "rollout", "canonical", "effective", "effective_simplex_span", "gradient_attention",
             "weighted_norm", "saliency", "integrated_gradients", "alti", "direct_logit_attribution"]  # fmt: skip
    audit = identiscope.null_audit(trace, names)
    said = dict(zip(audit["method"].values.tolist(), audit["verdict"].values.tolist(), strict=True))
    assert {name for name, word in said.items() if word == "survives"} == {
        "canonical", "effective", "effective_simplex_span",
    }  # fmt: skip
    assert {name for name, word in said.items() if word == "not applicable"} == {"saliency", "integrated_gradients"}
    assert all(said[name] == "changes" for name in ("attention", "rollout", "gradient_attention", "weighted_norm"))
    assert "survives if no description moves it" in audit.attrs["rule"]
    assert dict(zip(said, audit["merged_verdict"].values.tolist(), strict=True)) == said
    assert (audit["distance"].loc[{"method": "attention"}] > 0.03).all()
    # As a map, what changes in attention is how far it was moved.
    assert np.allclose(
        audit["row_mean_total_variation"].loc[{"method": "attention"}], audit["distance"].loc[{"method": "attention"}]
    )


def test_no_freedom_decides_nothing() -> None:
    """Fewer tokens than channels: attention is what it is, and that nothing changed is no merit."""
    trace = identiscope.trace(rewritable.model("bert"), TOKENS[:4])
    audit = identiscope.null_audit(trace, ["attention", "rollout"], _length)
    assert audit["verdict"].values.tolist() == ["undecided", "undecided"]
    assert "no attention but its own" in audit["failed"].values[0]


def literal_interval(trace: identiscope.Trace, layer: int, head: int, query: int, cost: np.ndarray) -> Any:
    """min and max of cost·a over {a ≥ 0, a·T = row·T, Σa = Σrow}, by SciPy."""
    site = trace.site(layer)
    keys = np.flatnonzero(np.asarray(site.allowed_keys(head)[query]))
    row = np.asarray(site.attention(head)[query])[keys]
    target = np.asarray(site.value_of(head).double() @ site.projection[head].double())[keys]
    equal = np.column_stack([target, np.ones(len(keys))])
    ends = []
    for sign in (1, -1):
        made = scipy.optimize.linprog(sign * cost[keys], A_eq=equal.T, b_eq=row @ equal, bounds=(0, None))
        assert made.status == 0
        ends.append(sign * made.fun)
    return ends


PARTS = ("top_value", "top_lower", "top_upper")


def test_intervals_of_linear_answers_are_exact() -> None:
    """Of maps every row's strongest cell; of a score its strongest input, over all rows of all layers at once."""
    trace = traced("llama")
    audit = identiscope.null_audit(
        trace, ["attention", "weighted_norm", "direct_logit_attribution", "rollout", "alti"],
        alternatives=["farthest", "canonical"], intervals=len(TOKENS),
    )  # fmt: skip
    attention = identiscope.attention(trace)["attention"].values
    ends: dict[str, list[tuple[float, float, float]]] = {"attention": [], "weighted_norm": []}
    for layer in range(2):
        site = trace.site(layer)
        for head in range(rewritable.HEADS):
            lengths = np.linalg.norm(np.asarray(site.value_of(head) @ site.projection[head]), axis=1)
            for query in range(len(TOKENS)):
                for name, scale in (("attention", np.ones_like(lengths)), ("weighted_norm", lengths)):
                    row = attention[layer, head, query] * scale
                    cost = np.zeros(len(TOKENS))
                    cost[row.argmax()] = scale[row.argmax()]
                    ends[name].append((row.max(), *literal_interval(trace, layer, head, query, cost)))
    for name, found in ends.items():
        expected = np.mean(found, 0)
        values = [float(audit[part].loc[{"method": name}]) for part in PARTS]
        np.testing.assert_allclose(values, expected, atol=1e-7)
        assert values[2] - values[1] > 0.02
    # Copies added up: the strongest token of a row is one of these, and what goes among them is no freedom.
    copies = np.array([TOKENS.index(token) for token in TOKENS])
    together = []
    for layer, head, query in np.ndindex(2, rewritable.HEADS, len(TOKENS)):
        row = np.bincount(copies, weights=attention[layer, head, query])
        cost = (copies == row.argmax()).astype(float)
        together.append((row.max(), *literal_interval(trace, layer, head, query, cost)))
    merged = [float(audit[f"merged_{part}"].loc[{"method": "attention"}]) for part in PARTS]
    np.testing.assert_allclose(merged, np.mean(together, 0), atol=1e-7)
    # What is multiplied up through layers is linear in none of them.
    for name in ("rollout", "alti"):
        assert np.isnan(audit["top_lower"].loc[{"method": name}])
    direct = audit.loc[{"method": "direct_logit_attribution"}]
    score = identiscope.direct_logit_attribution(trace)["score"].values
    top = score[np.abs(score).argmax()]
    assert float(direct["top_value"]) == pytest.approx(top, abs=1e-9)
    assert float(direct["top_lower"]) < top < float(direct["top_upper"])
    for how in ("farthest", "canonical"):
        other = other_attention(trace, trace.main.name, how, starts=1)
        moved = identiscope.direct_logit_attribution(other.trace)["score"].values[np.abs(score).argmax()]
        assert float(direct["top_lower"]) - 1e-9 <= moved <= float(direct["top_upper"]) + 1e-9


# Gauge audit: known results.


def test_effective_attention_moves_with_the_value_bias_and_what_belongs_to_the_simplex_does_not() -> None:
    audit = identiscope.gauge_audit(
        rewritable.model("bert"), [TOKENS], ["effective", "effective_simplex_span", "canonical", "attention"], _length,
        how=["value_bias", "value_output", "query_key", "key_bias", "head_order", "feed_forward"],
    )  # fmt: skip
    assert audit["verdict"].values.tolist() == ["changes", "survives", "survives", "survives"]
    assert audit.attrs["verdict"].startswith("3 of 4 methods survive: effective_simplex_span, canonical")
    moved = audit["row_total_variation"]
    assert float(moved.loc[{"method": "effective", "rewriting": "value_bias"}]) > 0.1
    assert float(moved.loc[{"method": "effective"}].drop_sel(rewriting="value_bias").max()) < 1e-7
    assert float(moved.drop_sel(method="effective").max()) < 1e-6
    assert float(audit["change_in_model"].max()) < 1e-10


def _edges(trace: identiscope.Trace, norm: int) -> dict[tuple[int, ...], float]:
    made = identiscope.flow_routes(trace, norm=norm, threshold=0.0)
    names = ("edge_layer", "edge_query", "edge_key", "edge_head")
    places = zip(*(made[name].values.tolist() for name in names), strict=True)
    return dict(zip(places, made["edge_weight"].values.tolist(), strict=True))


def test_edges_of_flow_routes_move_with_a_rotation_in_l1_and_not_in_l2() -> None:
    module = rewritable.model("llama")
    turned = identiscope.rewrite(module, "residual_rotation")
    largest = {}
    for norm in (1, 2):
        before, after = (_edges(identiscope.trace(one, TOKENS), norm) for one in (module, turned))
        largest[norm] = max(abs(after.get(edge, 0.0) - weight) for edge, weight in before.items())
    assert largest[1] > 0.01 and largest[2] < 1e-5
    said = [
        identiscope.gauge_audit(
            module, [TOKENS], ["flow_routes"], how=["residual_rotation"], options={"flow_routes": {"norm": norm}}
        )
        for norm in (1, 2)
    ]
    assert [str(one["verdict"].values[0]) for one in said] == ["changes", "survives"]


def test_heads_are_put_back_before_maps_are_compared() -> None:
    module = rewritable.model("llama")
    audit = identiscope.gauge_audit(module, [TOKENS], ["attention"], how=["head_order"])
    assert float(audit["row_total_variation"].max()) < 1e-6
    made = identiscope.rewrite(module, "head_order")
    maps = [identiscope.attention(identiscope.trace(one, TOKENS))["attention"].values for one in (module, made)]
    # It would not have been so without.
    assert np.abs(maps[0] - maps[1]).max() > 0.1


def test_gauge_audit_says_what_the_family_refuses_and_takes_several_texts() -> None:
    module = rewritable.model("llama")
    audit = identiscope.gauge_audit(module, [TOKENS, TOKENS[:7]], ["attention", "occlusion"])
    assert set(audit.attrs["refused"]) == {"value_bias", "key_bias"} and audit.attrs["texts"] == 2
    # One that cannot be asked says why, and the others are asked.
    failing = Method("failing", "score", "here", "fails", function=_fails)
    with identiscope.registered(failing):
        both = identiscope.gauge_audit(module, [TOKENS], ["failing", "attention"], how=["query_key"])
    assert both["verdict"].values.tolist() == ["undecided", "survives"] and "cannot" in both["failed"].values[0]
    with pytest.raises(InputError, match="expected a list of texts"):
        identiscope.gauge_audit(module, [], ["attention"])
    with pytest.raises(ModelError, match="expected a model of transformers"):
        identiscope.gauge_audit(torch.nn.TransformerEncoderLayer(8, 2), [TOKENS], ["attention"])


def _fails(hidden_states: Any) -> Tensor:
    raise InputError("this cannot be asked here.")


# Randomisation.


def _input_alone(embeddings: Tensor) -> Tensor:
    """A score that no layer has a say in."""
    return embeddings.double().norm(dim=-1)


def test_what_is_about_the_input_does_not_survive_randomisation(minilm: identiscope.Model) -> None:
    text = "The nurse told the doctor that she had found the keys, but nobody knew whose they were."
    blind = Method("blind", "score", "here", "the length of embeddings", function=_input_alone)
    with identiscope.registered(blind):
        left = identiscope.randomisation(
            minilm, text, ["blind", "gradient_input"], "similarity:A boat came.", draws=2, steps=2
        )
    assert left["redrawn"].values.tolist() == [3, 6]
    assert np.allclose(left["rank_correlation"].loc[{"method": "blind"}], 1)
    assert dict(zip(left["method"].values, left["verdict"].values, strict=True)) == {
        "blind": "stays", "gradient_input": "survives",
    }  # fmt: skip
    assert "does not" in left.attrs["rule"]


def test_the_bound_of_chance_holds() -> None:
    generator = np.random.default_rng(0)
    inputs, draws, times = 19, 2, 600
    above = 0
    for _ in range(times):
        before = generator.random(inputs)
        mean = np.mean([left_over(before, generator.random(inputs), np.ones(inputs, bool)) for _ in range(draws)])
        above += int(abs(mean) > chance_bound(inputs, draws))
    assert 0.02 < above / times < 0.08


def test_an_answer_that_is_turned_around_is_not_gone() -> None:
    assert [_verdict(np.full(3, left), 20) for left in (-0.9, -0.1, 0.1, 0.9)] == [STAYS, SURVIVES, SURVIVES, STAYS]
    assert _verdict(np.full(3, np.nan), 20) == _verdict(np.zeros(3), 5) == UNDECIDED


def test_ties_share_their_ranks_and_what_does_not_vary_is_undecided() -> None:
    judged = np.array([True, True, True, True, False])
    one, other = np.array([1.0, 1.0, 2.0, 3.0, 9.0]), np.array([5.0, 5.0, -6.0, 7.0, np.nan])
    assert left_over(one, other, judged) == pytest.approx(1.0)
    assert np.isnan(left_over(one, np.ones(5), judged))
    constant = Method("constant", "score", "here", "the same of all", function=_constant)
    with identiscope.registered(constant):
        left = identiscope.randomisation(rewritable.model("gpt2"), TOKENS, ["constant"], draws=1, steps=1)
    assert left["verdict"].values.tolist() == ["undecided"]


def _constant(embeddings: Tensor) -> Tensor:
    return torch.ones(len(embeddings), dtype=torch.float64)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "gemma2", "opt", "vit"])
def test_layers_are_drawn_as_the_family_draws_them(name: str) -> None:
    import transformers

    module = rewritable.model(name)
    given = torch.rand(3, 12, 12, dtype=torch.float64) if name == "vit" else TOKENS
    trace = identiscope.trace(module, given)
    assert trace.model is not None
    blocks = blocks_of(trace)
    assert len(blocks) == 2
    weights = {key: value.clone() for key, value in module.state_dict().items()}
    again = redraw(trace.model, blocks[1:], seed=7).module.state_dict()
    torch.manual_seed(1)
    begun = type(module)(module.config).state_dict()
    for key, value in weights.items():
        assert torch.equal(module.state_dict()[key], value)
        if not key.startswith(f"{blocks[1]}."):
            assert torch.equal(again[key], value), key
            continue
        assert not torch.equal(again[key], value), key
        if begun[key].dim() > 1:
            assert float(again[key].std()) == pytest.approx(float(begun[key].std()), rel=0.25), key
            assert abs(float(again[key].mean())) < 0.2 * float(begun[key].std())
        else:
            assert torch.equal(again[key], begun[key].double()), key
    assert isinstance(module, transformers.PreTrainedModel)
    same = redraw(trace.model, blocks[1:], seed=7).module.state_dict()
    assert all(torch.equal(again[key], value) for key, value in same.items())


def test_plain_modules_cannot_be_drawn_anew() -> None:
    trace = identiscope.trace(
        torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, batch_first=True), 2).eval(),
        torch.rand(5, 8),
    )
    assert trace.model is not None
    with pytest.raises(ModelError, match="models of transformers"):
        redraw(trace.model, blocks_of(trace), 0)


def test_results_are_saved_and_loaded(tmp_path: Any) -> None:
    audit = identiscope.gauge_audit(rewritable.model("llama"), [TOKENS], ["attention"], how=["query_key"])
    path = identiscope.save_result(audit, tmp_path / "audit.safetensors")
    again = identiscope.load_result(path)
    assert again.equals(audit) and again.attrs["rule"] == audit.attrs["rule"]
    assert {part.name for part in fields(Change)} <= set(audit.data_vars)
