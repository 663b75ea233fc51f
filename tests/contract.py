"""What every method keeps to, by its kind: functions that tests call on each line of the registry, and on toys.

Nothing here knows a method by its name. What a kind promises is in `PROMISES`; what one method does not keep to, its
line in the registry says (`tags`, `varies`, `own_axes`). All goes through `identiscope.ask`, on tiny random models that
are built once in a process.
"""

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from torch import Tensor

import identiscope
from families import FAMILIES
from identiscope.linalg.tolerance import CONE_GAP
from identiscope.methods.fields import FIELDS
from identiscope.methods.kinds import KINDS
from identiscope.methods.registry import TAGS, Method
from identiscope.methods.signatures import signature

# Heads of these models have eight channels.
MANY = [5, 17, 42, 8, 63, 23, 31, 77, 12, 50, 9, 88, 33]
FEW, ONE, AS_MANY = MANY[:5], MANY[:1], MANY[:8]
REPEATED = [5, 17, 42] * 4
OTHER = [7, 29, 55, 90, 14, 61, 38, 82, 27, 46, 19, 74, 93, 11, 52]
#: What a decoder is given; other than what the encoder is, so that queries and keys are told apart.
DECODED = [2, 8, 61, 30]


@dataclass(frozen=True)
class Case:
    """A family and a text; attention: which, where the model has several."""

    family: str
    text: tuple[int, ...]
    attention: str | None = None
    dtype: torch.dtype = torch.float64


CASES: Mapping[str, Case] = {
    "one token": Case("BERT", tuple(ONE)),
    "one token, causal": Case("Llama", tuple(ONE)),
    "fewer tokens than channels": Case("BERT", tuple(FEW)),
    "as many as channels": Case("BERT", tuple(AS_MANY)),
    "more": Case("BERT", tuple(MANY)),
    # In the first layer of this family positions are in queries and keys alone, so that values really repeat.
    "repeated tokens": Case("Llama", tuple(REPEATED)),
    "repeated tokens, not causal": Case("BERT", tuple(REPEATED)),
    "causal, grouped queries": Case("Llama", tuple(MANY)),
    "sliding window": Case("Mistral", tuple(MANY)),
    "sinks": Case("GPT-OSS", tuple(MANY)),
    "cross attention": Case("BART", tuple(MANY), "cross"),
    "decoder of two sides": Case("BART", tuple(MANY), "decoder-self"),
    "float32": Case("Llama", tuple(MANY), dtype=torch.float32),
}

#: How far two computations of the same may be apart, by the precision of the coarser one; whole numbers, flags and
#: names never are.
TOLERANCES = {torch.float64: 1e-8, torch.float32: 2e-3}


def assert_close(one: xr.Dataset, other: xr.Dataset, dtype: torch.dtype, but: Sequence[str] = ()) -> None:
    """The same arrays, labels and numbers to the precision; what is not a number on both sides is the same."""
    assert list(one.variables) == list(other.variables)
    for name, values in one.variables.items():
        expected = other.variables[name]
        assert (values.dims, values.shape) == (expected.dims, expected.shape), name
        if name not in but:
            _assert_close_values(values.values, expected.values, TOLERANCES[dtype], str(name))


def _assert_close_values(one: np.ndarray, other: np.ndarray, tolerance: float, name: str) -> None:
    if one.dtype.kind == "f":
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True, err_msg=name)
    else:
        np.testing.assert_array_equal(one, other, err_msg=name)


def assert_same(one: xr.Dataset, other: xr.Dataset) -> None:
    """The same to the last bit, with the same labels and attributes."""
    xr.testing.assert_identical(one, other)
    for name, values in one.variables.items():
        assert values.dtype == other.variables[name].dtype, name
        if values.dtype.kind == "f":
            # `identical` takes NaN for NaN, as it should, and 0 for −0, which have other bits.
            assert values.values.tobytes() == other.variables[name].values.tobytes(), name


@cache
def model(family: str, dtype: torch.dtype = torch.float64) -> identiscope.Model:
    """A tiny random model."""
    return identiscope.load(FAMILIES[family].model().to(dtype))


@cache
def trace(case: Case) -> identiscope.Trace:
    """The trace of a case, made once."""
    two_sided = FAMILIES[case.family].arguments is not None
    return identiscope.trace(model(case.family, case.dtype), given(list(case.text)) if two_sided else list(case.text))


def given(text: list[int]) -> dict[str, Tensor]:
    """What a model of two sides is given."""
    return {"input_ids": torch.tensor([text]), "decoder_input_ids": torch.tensor([DECODED])}


def options(one: Method, traced: identiscope.Trace, attention: str | None = None, place: int | None = None) -> Any:
    """What a method must be told, from its signature: a layer, a head, a query, which attention."""
    chosen: dict[str, Any] = {}
    for option in signature(one).options:
        if option.name == "attention" and attention is not None:
            chosen["attention"] = attention
        elif option.name in ("layer", "head") and option.default is None:
            chosen[option.name] = 1
        elif option.name == "outcome":
            chosen["outcome"] = some_outcome
        elif option.name == "query":
            # A row of a causal head has keys of its own, so a method that can be asked for one is.
            sites = [site for site in traced.sites if attention in (None, site.kind)]
            chosen["query"] = sites[0].queries - 1 if place is None else place
        else:
            assert option.default is not None, f"{one.name} needs {option.name}, which the contract cannot know"
    return chosen


def some_outcome(run: identiscope.Rerun) -> Tensor:
    """A number that every model has, and that depends on every token."""
    last = run.hidden_states[-1].double()
    return (last * torch.linspace(-1, 1, last.shape[1], dtype=last.dtype, device=last.device)).sum(-1).tanh().sum()


def ask(one: Method, case: Case, **more: Any) -> xr.Dataset:
    """What a method says of a case."""
    return asked(one, trace(case), case.attention, **more)


def said(one: Method, case: Case) -> xr.Dataset:
    """The same, asked once for all checks that compare something with it; `check_answer` asks again."""
    # Two lines are equal whatever their functions are.
    return _said(one, one.function, case)


@cache
def _said(one: Method, function: Callable[..., Any] | None, case: Case) -> xr.Dataset:
    return ask(one, case)


def asked(one: Method, traced: identiscope.Trace, attention: str | None = None, **more: Any) -> xr.Dataset:
    """What a method says of a trace, told what it must be."""
    with warnings.catch_warnings():
        # Tiny random heads may have no gap in their spectrum, which is said, and is nobody's fault here.
        warnings.filterwarnings("ignore", message="the rank of heads")
        return identiscope.ask(one.name, traced, **(options(one, traced, attention) | more))


def applies(one: Method, case: Case) -> bool:
    """Whether a method is asked of such an attention: what is of a whole trace is of a stream's own attention."""
    return case.attention != "cross" or one.family.scope in ("layer", "head")


# What every method keeps to.


def check_line(one: Method) -> None:
    """A line of the registry is whole, and says what the file says."""
    function, found = one.load(), signature(one)
    assert one.kind in KINDS and set(one.tags) <= set(TAGS)
    assert one.says and len(one.says) <= 90 and not one.says.endswith(".")
    assert one.paper
    assert set(found.fields) <= set(FIELDS), "positional parameters are fields of a trace"
    assert found.documentation and ">>>" in found.documentation, "a docstring has an example"
    for option in found.options:
        assert option.says, f"the docstring does not say what `{option.name}` is, as `{option.name}: …`"
        assert option.annotation != "Any", f"{option.name} has no type"
    if one.function is None:
        assert function.__name__ == one.name
        assert function.__module__ == f"identiscope.methods.{one.family.folder}.{one.name}"


def check_answer(one: Method, case: Case, folder: Path) -> None:
    """Axes, labels, provenance and what the kind promises; the same twice, from a file, and nothing is changed."""
    traced = trace(case)
    before = [(tensor, tensor.clone()) for tensor in tensors(traced)]
    if case.attention == "decoder-self" and "parts" in signature(one).fields:
        with pytest.raises(identiscope.InputError, match="reads another one in each layer"):
            ask(one, case)
        return
    found = said(one, case)
    check_axes(one, found, traced, case.attention)
    check_provenance(one, found)
    PROMISES[one.kind](one, found, traced, TOLERANCES[case.dtype])
    assert_same(found, ask(one, case))
    assert_same(identiscope.load_result(identiscope.save_result(found, folder / "result")), found)
    assert all(torch.equal(tensor, copied) for tensor, copied in before), f"{one.name} changed what it was given"


def tensors(traced: identiscope.Trace) -> Iterator[Tensor]:
    """All tensors of a trace, and the weights of its model."""
    for site in traced.sites:
        yield from (part for part in vars(site).values() if isinstance(part, Tensor))
    for stream in traced.streams.values():
        yield from stream.hidden_states
    if traced.model is not None:
        yield from traced.model.module.state_dict().values()


def check_axes(one: Method, found: xr.Dataset, traced: identiscope.Trace, attention: str | None) -> None:
    """Some array has the axes that were promised; layers and heads are numbered as in the model, tokens are named."""
    assert any(values.dims == one.axes for values in found.data_vars.values()), f"no array has the axes {one.axes}"
    sites = [site for site in traced.sites if attention in (None, site.kind)]
    if "layer" in found.dims and one.family.scope == "layer":
        assert found["layer"].values.tolist() == [site.layer for site in sites]
    if "head" in found.dims:
        assert found["head"].values.tolist() == list(sites[0].heads)
    streams = {"query": sites[0].query_stream, "key": sites[0].key_stream}
    streams |= dict.fromkeys(("output", "input"), found.attrs.get("stream", ""))
    for axis, name in streams.items():
        if axis in found.dims:
            names = tuple(found[f"{axis}_token"].values)
            tokens = traced.streams[name].tokens
            # What a decoder reads of an encoder may come in by that one's inputs, before its own.
            assert names == tokens or (axis == "input" and names == (*traced.main.tokens, *tokens))
    if "cell" in found.dims:
        for axis in ("query", "key"):
            there = [traced.streams[streams[axis]].tokens[place] for place in found[axis].values]
            assert found[f"{axis}_token"].values.tolist() == there


def check_provenance(one: Method, found: xr.Dataset) -> None:
    """Who made it, with which options, of what."""
    said = found.attrs
    assert (said["method"], said["kind"], said["paper"]) == (one.name, one.kind, one.paper)
    assert said["version"] == identiscope.__version__
    # A result that was gone on from is part of the answer already.
    assert set(said["options"]) == {option.name for option in signature(one).options} - {"resume"}
    assert said["model"] and len(said["text_digest"]) == 64 and said["device"] and said["precision"]
    assert bool(said["model_digest"]) == (said["model"] != "arrays")
    assert {"torch", "transformers", "numpy", "scipy"} <= set(said["versions"])


def check_batches(one: Method, family: str) -> None:
    """A text alone, and in a batch that is padded on one side or the other, says the same."""
    traced, *in_company = _alone_and_in_batches(family)
    alone = asked(one, traced)
    for other in in_company:
        assert_close(asked(one, other), alone, torch.float64, one.varies)


@cache
def _alone_and_in_batches(family: str) -> list[identiscope.Trace]:
    """One text: alone, beside a longer one, and beside it with padding that was given, on the right and the left."""
    text, longer = MANY[:9], OTHER
    pad = [0] * (len(longer) - len(text))
    seen, unseen = [1] * len(text), [0] * len(pad)
    right = {"input_ids": [text + pad, longer], "attention_mask": [seen + unseen, [1] * len(longer)]}
    left = {"input_ids": [pad + text, longer], "attention_mask": [unseen + seen, [1] * len(longer)]}
    padded = [{name: torch.tensor(rows) for name, rows in side.items()} for side in (right, left)]
    batches: list[Any] = [[text, longer], *padded]
    own = model(family)
    return [identiscope.trace(own, text), *(identiscope.trace(own, batch)[0] for batch in batches)]


def check_precision(one: Method, case: Case) -> None:
    """What float32 says is what float64 says, to the precision of float32."""
    rounded = Case(case.family, case.text, case.attention, torch.float32)
    assert trace(rounded).sites[0].value.dtype == torch.float32
    assert_close(said(one, rounded), said(one, case), torch.float32, one.varies)


#: Fields that a trace made from arrays does not have.
OF_A_MODEL = {
    "hidden_states", "embeddings", "replay", "parts", "sides", "outcome", "answer", "gradient", "attention_gradient",
    "attention_path", "attention_runs", "with_contexts",
}  # fmt: skip


def check_arrays(one: Method, case: Case) -> None:
    """Attention that is given as arrays says what the model's own does, or it is said what is missing."""
    whole = trace(case)
    biases = [site.projection_bias for site in whole.sites]
    arrays = identiscope.from_arrays(
        torch.stack([site.attentions() for site in whole.sites]),
        torch.stack([site.value for site in whole.sites]),
        projection=torch.stack([site.projection for site in whole.sites]),
        projection_bias=None if biases[0] is None else torch.stack([bias for bias in biases if bias is not None]),
        mask=whole.sites[0].allowed_keys(0),
        tokens=whole.tokens,
    )
    if set(signature(one).fields) & OF_A_MODEL:
        with pytest.raises(identiscope.IdentiscopeError):
            asked(one, arrays)
        return
    found = asked(one, arrays)
    check_provenance(one, found)
    assert_close(found, said(one, case), torch.float64, one.varies)


def check_options(one: Method, case: Case) -> None:
    """An option that is not there is refused by its name; a choice of layers and heads is a part of the whole."""
    with pytest.raises(identiscope.InputError, match="no_such_option"):
        ask(one, case, no_such_option=1)
    with pytest.raises(identiscope.InputError, match="no_such_option"):
        getattr(identiscope, one.name)(trace(case), **options(one, trace(case)), no_such_option=1)
    names = [option.name for option in signature(one).options]
    whole = said(one, case)
    choices = {"layers": ("layer", [1]), "heads": ("head", [3, 0])}
    for option, (axis, chosen) in choices.items():
        if option in names and axis in whole.dims:
            part, expected = ask(one, case, **{option: chosen}), whole.sel({axis: chosen})
            # What is of all heads together is another number, or none, where not all are asked for.
            shared = [name for name in part.data_vars if axis in part[name].dims]
            assert set(shared) == {name for name in whole.data_vars if axis in whole[name].dims}
            assert_close(part[shared], expected[shared], torch.float64, one.varies)


# What a kind promises.

Promise = Callable[[Method, xr.Dataset, identiscope.Trace, float], None]


def _numbers(one: Method, found: xr.Dataset) -> Iterator[xr.DataArray]:
    """The arrays of numbers that do not speak of the precision."""
    for name, values in found.data_vars.items():
        if values.dtype.kind == "f" and name not in one.varies:
            yield values


def promise_map(one: Method, found: xr.Dataset, traced: identiscope.Trace, tolerance: float) -> None:
    """A number for every head, query and key, and exactly zero where the query may not see the key."""
    attention, stream = found.attrs["attention"], found.attrs["query_stream"]
    for cells in found.data_vars.values():
        assert bool(np.isfinite(cells).all())
        if cells.dims != one.axes:
            continue
        for layer in found["layer"].values.tolist():
            site = traced.site(layer, attention, stream)
            own = cells.sel(layer=layer).values
            assert own.shape == (len(site.heads), site.queries, site.keys)
            for place, head in enumerate(site.heads):
                assert bool((own[place][~site.allowed_keys(head).numpy()] == 0).all())


def promise_head(one: Method, found: xr.Dataset, traced: identiscope.Trace, tolerance: float) -> None:
    """Numbers, or NaN where there is no such number, as for a correlation of what does not vary; never an infinity."""
    for values in found.data_vars.values():
        assert values.dims[0] == "layer"
    assert not any(bool(np.isinf(values).any()) for values in _numbers(one, found))


def promise_freedom(one: Method, found: xr.Dataset, traced: identiscope.Trace, tolerance: float) -> None:
    """Whatever rows it gives keep the head's output and row sum, directions change neither, and bounds hold the weight.

    Rows of an axis `query` or `cell` are attention, those of an axis `direction` are what may be added to it; the
    precision of the pass is what a null space is told from noise by. `weight`, `lower` and `upper`, alone or `merged_`
    with those of equal keys, are bounds and what lies between them.
    """
    asked_for = found.attrs["options"]
    site = traced.site(asked_for["layer"], found.attrs["attention"], found.attrs["query_stream"])
    head = asked_for["head"]
    value = site.value[site.key_value_heads[site.place(head)]].double() @ site.projection[head].double()
    sees = torch.cat([value, torch.ones(len(value), 1, dtype=torch.float64)], 1).numpy()
    attention, allowed = site.attention(head).double().numpy(), site.allowed_keys(head).numpy()
    bounds = [f"{which}{name}" for which in ("", "merged_") for name in ("weight", "lower", "upper", "width")]
    for name, values in found.data_vars.items():
        axis, keys = (values.dims[0], values.dims[-1]) if values.ndim == 2 else ("", "")
        if keys not in ("key", "all_keys") or name in bounds:
            continue
        rows = values.values
        if axis == "direction":
            assert np.abs(rows @ sees).max(initial=0) <= 100 * tolerance
            assert not rows[:, ~allowed[asked_for["query"]]].any()
        else:
            places = found["query"].values if axis == "cell" else np.arange(len(rows))
            assert rows.min() >= -tolerance and not rows[~allowed[places]].any()
            assert np.abs((rows - attention[places]) @ sees).max() <= 100 * tolerance
    for which in [which for which in ("", "merged_") if f"{which}lower" in found]:
        weight, lower, upper = (found[f"{which}{name}"].values for name in ("weight", "lower", "upper"))
        assert bool((lower <= weight + tolerance).all() and (weight <= upper + tolerance).all())
        assert bool((lower >= -tolerance).all() and (upper <= 1 + tolerance).all())


def promise_layer(one: Method, found: xr.Dataset, traced: identiscope.Trace, tolerance: float) -> None:
    """Attention of all heads whose outputs, added up, are what they were, and whose rows sum to what they did.

    Beside it there may be numbers of a layer as a whole, none of them negative.
    """
    beside = [name for name, values in found.data_vars.items() if values.dims == ("layer",)]
    assert all(bool((found[name] >= 0).all()) for name in beside)
    promise_map(one, found.drop_vars(beside), traced, tolerance)
    attention, stream = found.attrs["attention"], found.attrs["query_stream"]
    for layer in found["layer"].values.tolist():
        site = traced.site(layer, attention, stream)
        maps, change = found[one.name].sel(layer=layer).values, 0.0
        for place, head in enumerate(site.heads):
            sees = (site.value_of(head).double() @ site.projection[head].double()).numpy()
            moved = maps[place] - site.attention(head).numpy()
            assert maps[place].min() >= -tolerance and np.abs(moved.sum(-1)).max() <= 100 * tolerance
            change = change + moved @ sees
        assert np.abs(change).max() <= 100 * tolerance


def promise_mixture(one: Method, found: xr.Dataset, traced: identiscope.Trace, tolerance: float) -> None:
    """Shares: not negative, one over all input tokens, unless the line says `signed`; none of what is not seen yet."""
    mixture = next(values for values in found.data_vars.values() if set(values.dims) == set(one.axes))
    cells = mixture.transpose(..., "output", "input").values
    assert bool(np.isfinite(cells).all()) and cells.shape[-2:] == (
        len(found["output_token"]),
        len(found["input_token"]),
    )
    if "signed" not in one.tags:
        assert cells.min() >= -tolerance
        np.testing.assert_allclose(cells.sum(-1), 1, atol=max(tolerance, 1e-6))
    own = [site for site in traced.sites if site.query_stream == site.key_stream == found.attrs["stream"]]
    if all(not bool(site.allowed_keys(0).triu(1).any()) for site in own):
        # The stream's own tokens are the last of the inputs.
        assert np.abs(np.triu(cells[..., -cells.shape[-2] :], 1)).max(initial=0) <= tolerance


def promise_prediction(one: Method, found: xr.Dataset, traced: identiscope.Trace, tolerance: float) -> None:
    """Numbers, or NaN where a layer has no such number; never an infinity. Shares and distances of attention are in
    [0, 1], what moved within a tolerance is within it, and nothing that moved is said to be as it was."""
    assert not any(bool(np.isinf(values).any()) for values in _numbers(one, found))
    for name, values in found.data_vars.items():
        if any(part in str(name) for part in ("reach", "load", "free", "distance", "share")):
            known = values.values[np.isfinite(values.values)]
            assert bool((known >= -tolerance).all() and (known <= 1 + tolerance).all()), name
    if "moved_within" in found:
        for place, criterion in enumerate(found["criterion"].values.tolist()):
            if criterion != "same choice":
                assert bool((found["moved_within"].values[..., place] <= float(criterion)).all())


def promise_token(one: Method, found: xr.Dataset, traced: identiscope.Trace, tolerance: float) -> None:
    """Numbers, or NaN where a token has no such number; never an infinity."""
    assert not any(bool(np.isinf(values).any()) for values in _numbers(one, found))


def promise_score(one: Method, found: xr.Dataset, traced: identiscope.Trace, tolerance: float) -> None:
    """A number for every input token."""
    assert all(bool(np.isfinite(values).all()) for values in _numbers(one, found))


#: What all methods of a kind promise of what they give.
PROMISES: Mapping[str, Promise] = {
    "map": promise_map,
    "head": promise_head,
    "freedom": promise_freedom,
    "layer": promise_layer,
    "mixture": promise_mixture,
    "score": promise_score,
    "prediction": promise_prediction,
    "token": promise_token,
}


def check_everything(one: Method, folder: Path) -> None:
    """All checks at once: what a method of one's own can be put to in one line."""
    check_line(one)
    for case in CASES.values():
        if applies(one, case):
            check_answer(one, case, folder)
    for family in ("BERT", "Llama"):
        check_batches(one, family)
        check_precision(one, Case(family, tuple(MANY)))
        check_arrays(one, Case(family, tuple(MANY)))
        check_options(one, Case(family, tuple(MANY)))


def check_device(one: Method, family: str, device: torch.device) -> None:
    """On another device a method says what it says on the CPU, and what of it was taken there."""
    there = _on_device(family, device)
    assert {site.value.device for site in there.sites} == {device}
    found, expected = asked(one, there), said(one, Case(family, tuple(MANY)))
    assert_close(found, expected, torch.float64, one.varies)
    # What rounding decides, such as how near a solver came to its end, is the same as far as solvers are asked to come.
    for name in set(one.varies) & set(expected.variables):
        _assert_close_values(found[name].values, expected[name].values, CONE_GAP, name)
    assert found.attrs.get("on_cpu", "") == one.on_cpu and "on_cpu" not in expected.attrs
    assert found.attrs["device"] == found.attrs["analysis_device"] == str(device)


@cache
def _on_device(family: str, device: torch.device) -> identiscope.Trace:
    return identiscope.trace(copy.deepcopy(model(family).module).to(device), MANY)
