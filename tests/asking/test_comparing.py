"""`identiscope.compare`, and the command: how far methods of one kind agree."""

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from click.testing import CliRunner
from torch import Tensor

import identiscope
from contract import asked
from identiscope.cli import main
from identiscope.methods.registry import METHODS, Method, of_kind, registered
from tiny_text_model import save_tiny, words

#: Of attention weights: what needs an outcome has none in a model without a head.
MAPS = [one.name for one in of_kind("map") if "weights" in one.tags]
HEADS = [one.name for one in of_kind("head")]


@pytest.fixture(scope="module", params=["BertModel", "GPT2Model"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("here") / "model", request.param))


@pytest.fixture(scope="module")
def trace(path: str) -> identiscope.Trace:
    return identiscope.trace(path, words(14))


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["compare", *arguments])


def test_maps_head_by_head(trace: identiscope.Trace) -> None:
    found = identiscope.compare(trace, MAPS)
    assert found["pearson"].dims == ("pair", "layer", "head")
    assert list(zip(found["first"].values, found["second"].values, strict=True)) == list(combinations(MAPS, 2))
    results = {name: asked(METHODS[name], trace)[name].values for name in MAPS}
    for pair, (first, second) in enumerate(combinations(MAPS, 2)):
        for site in trace.sites:
            for head in site.heads:
                can = site.allowed_keys(head).numpy()
                given = [results[name][site.layer, head][can] for name in (first, second)]
                one = found.isel(pair=pair).sel(layer=site.layer, head=head)
                assert float(one["spearman"]) == pytest.approx(scipy.stats.spearmanr(*given).statistic, abs=1e-9)
                assert float(one["pearson"]) == pytest.approx(scipy.stats.pearsonr(*given).statistic, abs=1e-9)
    both = found.sel(pair="attention, canonical")["total_variation"]
    expected = 0.5 * np.abs(results["attention"] - results["canonical"]).sum(-1).mean(-1)
    assert np.allclose(both, expected)
    assert np.isnan(found.sel(pair="attention, null")["total_variation"]).all()


def test_options_go_to_whoever_has_them(trace: identiscope.Trace) -> None:
    found = identiscope.compare(trace, ["raw", "effective"], layers=[1], heads=[0, 2], value_bias=False)
    assert found["layer"].values.tolist() == [1] and found["head"].values.tolist() == [0, 2]
    assert found.attrs["options"]["methods"] == ["attention", "effective"] and found.attrs["compared"] == "map"


def test_heads_statistic_by_statistic(trace: identiscope.Trace) -> None:
    names = ["head_summary", "null_share", "attention_rank"]
    found = identiscope.compare(trace, names)
    assert found["pearson"].dims == ("statistic", "other")
    entropy = identiscope.head_summary(trace)["entropy"].values.ravel()
    cutoff = identiscope.attention_rank(trace)["cutoff"].values.ravel()
    expected = scipy.stats.spearmanr(entropy, cutoff).statistic
    assert float(found["spearman"].sel(statistic="head_summary.entropy", other="attention_rank.cutoff")) == (
        pytest.approx(expected)
    )


def first(hidden_states: list[Tensor], *, power: float = 1.0) -> Tensor:
    """power: of the size."""
    return torch.stack([state.norm(dim=-1).double() ** power for state in hidden_states[1:]])


def mixed(hidden_states: list[Tensor], *, power: float = 1.0) -> Tensor:
    """power: of the size."""
    size = first(hidden_states, power=power)
    return torch.tril(size[:, :, None] * size[:, None, :])


def scored(embeddings: Tensor, *, power: float = 1.0) -> Tensor:
    """power: of the size."""
    return embeddings.norm(dim=-1).double() ** power


@pytest.mark.parametrize(
    ("kind", "function", "axes"),
    [("token", first, ("statistic", "other")), ("mixture", mixed, ("pair", "layer")), ("score", scored, ("pair",))],
)
def test_methods_of_one_s_own(
    trace: identiscope.Trace, path: str, kind: str, function: Any, axes: tuple[str, ...]
) -> None:
    one = Method("one_way", kind, "this test", "one", function=function)
    with registered(one), registered(Method("other_way", kind, "this test", "other", function=function)):
        found = identiscope.compare(trace, ["one_way", "other_way"], power=2.0)
        assert found["spearman"].dims == axes
        assert np.allclose(found["spearman"], 1) and np.allclose(found["pearson"], 1)
        done = invoke(path, words(14), "--methods", "one_way,other_way")
        assert done.exit_code == 0, (done.output, done.exception)
        assert "1.000" in done.output


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["effective"], "expected two or more"),
        (["raw", "attention"], "each once"),
        (["effective", "head_summary"], r"one kind can be compared; effective \(map\), head_summary \(head\)"),
        (["attention_intervals", "null_space_basis"], "kind freedom cannot be compared"),
        (["effective", "nothing"], "there is no method 'nothing'"),
        (["row_rank", "null_share"], "row_rank gives no number for each layer and head"),
    ],
)
def test_what_cannot_be_compared(trace: identiscope.Trace, names: list[str], said: str) -> None:
    with pytest.raises(identiscope.InputError, match=said):
        identiscope.compare(trace, names)


def test_an_option_that_nobody_has(trace: identiscope.Trace) -> None:
    with pytest.raises(identiscope.InputError, match="none of effective, null has an option strength"):
        identiscope.compare(trace, ["effective", "null"], strength=1)


def test_the_command(path: str, tmp_path: Path) -> None:
    given = (path, words(14), "--methods", "raw,effective,effective-simplex-span")
    done = invoke(*given)
    assert done.exit_code == 0, (done.output, done.exception)
    assert "attention, effective" in done.output and "least alike at layer.head" in done.output
    table = tmp_path / "table.csv"
    report = json.loads(invoke(*given, "--json", "--layers", "0", "-o", str(table)).output)
    assert len(report["rows"]) == 3 * 4 == len(table.read_text(encoding="utf-8").splitlines()) - 1
    assert report["compared"] == "map" and {"pearson", "spearman", "first", "layer"} <= set(report["rows"][0])
    done = invoke(path, words(14), "--methods", "head_summary,head_pattern")
    assert "closest of" in done.output and "head_summary.entropy" in done.output


def test_the_command_says_what_is_explained(path: str) -> None:
    outcome = ("--outcome", "similarity:w1 w2")
    scores = json.loads(invoke(path, words(5), "--methods", "saliency,occlusion", *outcome, "--json").output)
    assert scores["compared"] == "score" and -1 <= scores["rows"][0]["spearman"] <= 1
    done = invoke(path, words(5), "--methods", "raw,effective", *outcome)
    assert "none of attention, effective has an option outcome" in str(done.exception)


def test_what_attention_may_be_is_compared_by_layer_or_by_map(trace: identiscope.Trace) -> None:
    def twice(attention: Sequence[Tensor]) -> Tensor:
        """The weights of each layer, twice."""
        return torch.stack([2 * layer.square().sum() for layer in attention])

    def once(attention: Sequence[Tensor]) -> Tensor:
        """The weights of each layer."""
        return torch.stack([layer.square().sum() for layer in attention])

    def as_it_is(attention: Tensor) -> Tensor:
        """The maps of a layer."""
        return attention.clone()

    def turned(attention: Tensor) -> Tensor:
        """Those of the heads in another order."""
        return attention.flip(0)

    toys: dict[str, tuple[Callable[..., Tensor], ...]] = {"prediction": (twice, once), "layer": (as_it_is, turned)}
    with ExitStack() as lines:
        for kind, functions in toys.items():
            for one in functions:
                lines.enter_context(registered(Method(one.__name__, kind, "nobody", "a toy", function=one)))
        by_layer = identiscope.compare(trace, ["twice", "once"])
        assert float(by_layer["pearson"].sel(statistic="twice.twice", other="once.once")) == pytest.approx(1)
        by_map = identiscope.compare(trace, ["as_it_is", "turned"])
    assert by_map.attrs["compared"] == "layer" and by_map["pearson"].dims == ("pair", "layer", "head")
    assert 0 < float(by_map["total_variation"].min()) < 1


def test_all_kinds_with_two_methods_are_known() -> None:
    assert len(MAPS) > 2 and len(HEADS) > 2 and set(MAPS + HEADS) <= set(METHODS)
