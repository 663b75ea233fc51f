"""The table of methods of a Run: each way of filling, several of one way, and tables that only the manifest knows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import every_family
import families
import identiscope
from heard import Heard
from identiscope.capture import capturing
from identiscope.corpus.readers import Corpus
from identiscope.errors import InputError
from identiscope.methods.registry import METHODS, Method, in_runs, registered
from identiscope.runs.compute import batch
from identiscope.runs.compute import methods as run_methods
from identiscope.runs.compute.columns import by_trace
from identiscope.runs.compute.filling import FromCall, FromStates, FromTrace, RunMethod
from identiscope.runs.compute.methods import EXPLAIN, RUN_METHODS, run_tables
from identiscope.runs.compute.options import RunOptions
from identiscope.runs.compute.run import run_corpus
from identiscope.runs.format.opened_run import Run, open_run
from identiscope.runs.format.statistics import Column, statistics_of
from identiscope.runs.format.tables import INPUTS, described_tables, tables_from
from tiny_text_model import save_tiny, words


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> identiscope.Model:
    return identiscope.load(save_tiny(tmp_path_factory.mktemp("methods") / "model", num_hidden_layers=3))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(words(3 + number, number) for number in range(5)), encoding="utf-8")
    return path


def lengths(
    trace: identiscope.Trace, layers: Sequence[int], heads: Sequence[int], *, probes: int, seed: int, settings: Any
) -> dict[str, Tensor]:
    """As simple as can be: how many tokens, the number of the layer, and the norm of what it wrote."""
    states = [trace.hidden_states[layer + 1] for layer in layers]
    return {
        "count": torch.tensor([len(trace.tokens)] * len(layers), dtype=torch.float64),
        "block": torch.tensor(layers, dtype=torch.float64),
        "size": torch.stack([state.double().norm(dim=-1).mean() for state in states]),
    }


TOY = RunMethod(
    ("layer",),
    (
        Column("count", "tokens of the text", 0, 100, whole=True),
        Column("block", "the layer itself", 0, 10),
        Column("size", "mean norm of what the layer wrote", 0, 50),
    ),
    FromTrace(lengths),
)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, TOY)


def register(monkeypatch: pytest.MonkeyPatch, filled: RunMethod) -> None:
    """A method of the registry, whose columns are filled so."""
    monkeypatch.setitem(METHODS, "toy", Method("toy", "token", "none", "a toy", function=lengths))
    monkeypatch.setattr(run_methods, "by_trace", lambda one: filled if one.name == "toy" else by_trace(one))


@pytest.fixture
def run(toy: None, model: identiscope.Model, corpus: Path, tmp_path: Path) -> Run:
    options = RunOptions(methods=("attribution", "toy", "tokens"), layers=(0, 2), shard_size=2, probes=2)
    return run_corpus(model, corpus, tmp_path / "run", options=options)


def test_every_method_that_follows_texts_is_filled(run: Run, model: identiscope.Model, corpus: Path) -> None:
    found, attribution = run.to_xarray("toy"), run.to_xarray("attribution")
    assert attribution.self_contribution.dims == found["size"].dims == ("text", "layer")
    assert found.block.values.tolist() == [[0, 2]] * 5 and found["count"].dtype == np.int32
    for number, text in enumerate(Corpus(str(corpus)).read()):
        seen = identiscope.trace(model, text.given)
        assert found["count"][number].values.tolist() == [len(seen.tokens)] * 2
        wrote = [float(seen.hidden_states[layer + 1].double().norm(dim=-1).mean()) for layer in (0, 2)]
        np.testing.assert_allclose(found["size"][number], wrote, rtol=1e-6)
        whole = identiscope.hidden_token_attribution(seen, mode="estimate", probes=2, seed=0)
        own = np.diagonal(whole["contribution"].values, axis1=1, axis2=2).mean(-1)
        np.testing.assert_allclose(attribution.self_contribution[number], own[[0, 2]], atol=1e-5)


def test_layers_are_blocks_in_every_table(run: Run) -> None:
    """A hidden state is named by the block that wrote it: the same norm in a table of states and in one of traces."""
    for name in run.methods:
        assert set(run.to_pandas(name)["layer"]) == {0, 2} and run.means(name).layer.values.tolist() == [0, 2]
    np.testing.assert_allclose(run.to_xarray("tokens").norm, run.to_xarray("toy")["size"], rtol=1e-5)


def test_they_share_a_trace_of_each_text(
    toy: None, model: identiscope.Model, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced, told = [], Heard()

    def counted(*given: Any) -> Any:
        traced.append(given)
        return capturing.trace(*given)

    options = RunOptions(methods=("toy", "attribution"), probes=2)
    monkeypatch.setattr(batch, "trace", counted)
    run_corpus(model, corpus, tmp_path / "run", options=options, progress=told)
    # One more before the work, which shows what layers and heads there are.
    assert len(traced) == 1 + 5 and [one.texts for one in told.states] == [1, 2, 3, 4, 5]


def test_a_run_of_methods_that_nobody_knows_any_more_is_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is needed to read a table is in the manifest."""
    before = run.to_pandas("toy")
    monkeypatch.delitem(METHODS, "toy")
    again = open_run(run.directory)
    assert again.to_pandas("toy").equals(before) and again.complete and not again.verify().problems
    assert again.tables["toy"] == TOY.table and again.summary["means"].keys() == {
        "hidden_token_attribution",
        "toy",
        "token_identifiability",
    }
    assert again.means("toy").edge.sel(column="size").values[-1] == 50
    with pytest.raises(InputError, match=r"methods \['toy'\] were asked for; there are attention"):
        RunOptions(methods=("toy",))


def test_columns_that_change_are_another_run(
    run: Run, model: identiscope.Model, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = RunOptions(methods=("attribution", "toy", "tokens"), layers=(0, 2), shard_size=2, probes=2)
    other = RunMethod(("layer",), (*TOY.columns[:2], Column("size", "the same", 0, 60)), TOY.filled)
    register(monkeypatch, other)
    with pytest.raises(InputError, match="begun otherwise: tables toy columns"):
        run_corpus(model, corpus, run.directory, options=options)


def test_names_of_methods_are_those_of_the_table(toy: None) -> None:
    assert RunOptions(methods=("toy",)).methods == ("toy",) and set(run_tables({"toy": RUN_METHODS["toy"]})) == {"toy"}
    with pytest.raises(InputError, match=r"methods \['colour'\] were asked for; there are .*toy"):
        RunOptions(methods=("toy", "colour"))


@pytest.mark.parametrize("name", [*in_runs(), EXPLAIN])
def test_what_fills_a_table_fits_its_axes(name: str) -> None:
    method = RUN_METHODS[name]
    axes = INPUTS if name == EXPLAIN else METHODS[name].family.run_axes
    assert set(method.axes) <= set(axes) and method.axes and method.columns
    assert not isinstance(method.filled, FromCall) or method.axes == ("layer", "head")
    assert not isinstance(method.filled, FromStates) or method.axes == ("layer",)
    assert tables_from(run_tables({name: method})) == {name: method.table}


@pytest.mark.parametrize(
    "table",
    [
        {"texts": {"axes": ["layer"], "columns": [1]}},
        {"toy": {"axes": ["token"]}},
        {"toy": {"axes": ["head", "head"]}},
        {"../toy": {}},
        {"toy": {"columns": []}},
        {"toy": {"columns": [{"name": "text"}]}},
        {"toy": {"columns": [{"name": "tokens"}]}},
        {"toy": {"columns": [{"name": "a b"}]}},
        {"toy": {"columns": [{}, {}]}},
        {"toy": {"columns": [{"low": 20.0}]}},
        {"toy": {"columns": [{"high": 1e308}]}},
        {"toy": {"columns": [{"high": None}]}},
        {"toy": {"columns": [{"whole": 1}]}},
        {"toy": {"columns": [{"more": 1}]}},
        {"toy": {"columns": 3}},
        [],
    ],
)
def test_a_manifest_cannot_describe_any_table(table: Any) -> None:
    usual = described_tables({"toy": TOY.table})["toy"]
    column = usual["columns"][1]

    def whole(one: Any) -> Any:
        if not isinstance(one.get("columns", 0), list):
            return usual | one
        columns = [column | part if isinstance(part, dict) else column for part in one["columns"]]
        return usual | one | {"columns": columns}

    with pytest.raises(ValueError, match=r"."):
        tables_from({name: whole(one) for name, one in table.items()} if isinstance(table, dict) else table)


def test_numbers_whose_squares_cannot_be_summed_are_not_counted() -> None:
    """A quotient may be as large as it likes: the Run goes on, and its table says what it was."""
    values = {"ratio": np.array([[1.0], [3.0], [1e12], [-(2.0**32)], [np.inf], [np.nan]])}
    found = statistics_of([Column("ratio", "a quotient")], values)
    assert found.count.tolist() == [[2]] and found.mean.tolist() == [[2.0]]
    assert found.least.tolist() == [[1.0]] and found.most.tolist() == [[3.0]] and found.histogram.sum() == 2
    assert found.merge(found).variance.tolist() == [[pytest.approx(4 / 3)]]


@pytest.mark.parametrize("setting", ["over=last", "on=1", "on=[0, 2]", "sample=2"])
def test_a_statistic_in_a_run_is_that_of_each_text(
    model: identiscope.Model, corpus: Path, tmp_path: Path, setting: str
) -> None:
    name, value = setting.split("=")
    options = RunOptions(methods=("statistic_interval",), settings=(f"statistic_interval.{setting}",))
    run = run_corpus(model, Corpus(str(corpus)), tmp_path / "run", options=options)
    asked = {"over": "last", "on": 1 if value == "1" else [0, 2], "sample": 2}[name]
    texts = corpus.read_text(encoding="utf-8").split("\n")
    for number, text in enumerate(texts):
        own = identiscope.statistic_interval(identiscope.trace(model, text), **{name: asked})
        table = run.to_xarray("statistic_interval").isel(text=number)
        for column in ("statistic", "lower", "upper", "rows", "rows_meant", "rows_looked_at"):
            # A quotient may be as large as 1e9, and is written as float32.
            np.testing.assert_allclose(table[column], own[column], rtol=1e-5, atol=1e-6)


def test_a_place_that_a_text_has_not_is_refused(model: identiscope.Model, corpus: Path, tmp_path: Path) -> None:
    options = RunOptions(methods=("statistic_interval",), settings=("statistic_interval.on=500",))
    with pytest.raises(InputError, match="position 500 was given; the text has 0 to 4"):
        run_corpus(model, Corpus(str(corpus)), tmp_path / "run", options=options)


def test_what_is_no_distribution_has_no_entropy(model: identiscope.Model) -> None:
    """Entropy is of rows that are not negative and sum to one: of other maps it is not a number."""
    trace = identiscope.trace(model, words(7))
    doubled = Method("doubled", "map", "nobody", "rows that sum to two", function=_doubled)
    signed = Method("signed", "map", "nobody", "rows that sum to one", function=_signed)
    entropy = {}
    with registered(doubled), registered(signed):
        for name in ("attention", "doubled", "signed"):
            filled = by_trace(METHODS[name]).filled
            assert isinstance(filled, FromTrace)
            columns = filled.fill(trace, [0, 1], [0], probes=1, seed=0, settings={})
            entropy[name] = columns["entropy"].numpy()
    raw = identiscope.attention(trace, layers=[0, 1], heads=[0])["attention"].values
    literal = [[-sum(weight * np.log2(weight) for row in head for weight in row) / len(head) for head in layer]
               for layer in raw]  # fmt: skip
    np.testing.assert_allclose(entropy["attention"], literal, atol=1e-9)
    assert np.isnan(entropy["doubled"]).all() and np.isnan(entropy["signed"]).all()


def _doubled(attention: Tensor) -> Tensor:
    return 2 * attention


def _signed(attention: Tensor) -> Tensor:
    moved = torch.zeros_like(attention)
    moved[..., 0], moved[..., 1] = 2.0, -2.0
    return attention + moved


def test_a_run_pads_no_texts_of_a_model_that_padding_changes() -> None:
    options = RunOptions(methods=("attention_identifiability",))
    for model, size in (
        (every_family.build("paligemma"), 1),
        (families.ALL["BERT"].model(), options.batch_size),
    ):
        loaded = identiscope.load(model)
        assert batch.Worker(loaded, options, batch.model_shape(loaded, options)).batch_size == size
