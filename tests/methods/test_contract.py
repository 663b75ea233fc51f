"""What every method must keep to, whatever it computes; a new line in the registry buys all of it.

Parameters without a default are filled from one attention head by name, as they are from a Site.
"""

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from identiscope.methods.factored import FactoredAttention, rows_of
from identiscope.methods.registry import METHODS, method

every_method = pytest.mark.parametrize("name", METHODS)
CHANNELS, MODEL = 4, 12


@dataclasses.dataclass(frozen=True)
class Case:
    """Two heads on the same values: n tokens, causal or not, with repeated tokens or not."""

    tokens: int
    causal: bool = False
    repeated: bool = False
    dtype: torch.dtype = torch.float64

    def inputs(self) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(self.tokens)
        value = torch.randn(1, self.tokens, CHANNELS, generator=generator, dtype=torch.float64)
        if self.repeated:
            value = value[:, torch.arange(self.tokens) % 3]
        projection = torch.randn(2, CHANNELS, MODEL, generator=generator, dtype=torch.float64)
        logits = torch.randn(2, self.tokens, self.tokens, generator=generator, dtype=torch.float64)
        if self.causal:
            logits = logits.masked_fill(torch.ones(self.tokens, self.tokens, dtype=torch.bool).triu(1), -torch.inf)
        attention = logits.softmax(-1)
        return {
            "value": value.to(self.dtype),
            "output_projection": projection.to(self.dtype),
            "context": (attention @ value).to(self.dtype),
            "attention": attention[0].to(self.dtype),
            "raw": rows_of(attention.to(self.dtype)),
            "special": torch.arange(self.tokens) == 0,
            "head": 1,
            "query": self.tokens - 1,
            "key_channels": CHANNELS,
            "allowed": "causal" if self.causal else None,
        }


CASES = {
    "one token": Case(1),
    "fewer tokens than channels": Case(3),
    "as many as channels": Case(4),
    "one more": Case(5),
    "many": Case(11),
    "causal": Case(11, causal=True),
    "repeated": Case(9, repeated=True),
    "causal and repeated": Case(9, causal=True, repeated=True),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def run(name: str, inputs: dict[str, Any]) -> Any:
    """Call a method with what it asks for; `allowed` too, where it takes it."""
    function = method(name)
    given = {}
    for key, parameter in inspect.signature(function).parameters.items():
        # A causal row has its own keys, so where a method may be asked for one row, it is.
        needed = ("allowed", "query") if inputs["allowed"] is not None else ()
        if parameter.default is inspect.Parameter.empty or key in needed:
            given[key] = inputs[key]
    return function(**given)


def numbers(result: Any) -> Iterator[Tensor]:
    """Every tensor in a result; attention in factored form as the map it stands for."""
    if isinstance(result, Tensor):
        yield result.double()
    elif isinstance(result, FactoredAttention):
        yield dataclasses.replace(result).dense().double()
    elif isinstance(result, (int, float)):
        yield torch.tensor(float(result))
    elif dataclasses.is_dataclass(result):
        for field in dataclasses.fields(result):
            yield from numbers(getattr(result, field.name))


@every_method
def test_file_function_and_key_share_one_name(name: str) -> None:
    function = method(name)
    assert function.__name__ == name
    assert function.__module__ == f"identiscope.methods.{name}"
    assert (function.__doc__ and ">>>" in function.__doc__) or name == "head_summary"


@every_case
@every_method
@pytest.mark.filterwarnings("ignore:the rank of heads")
def test_gives_finite_numbers_twice_the_same_and_changes_no_input(name: str, case: Case) -> None:
    inputs = case.inputs()
    before = {key: value.clone() for key, value in inputs.items() if isinstance(value, Tensor)}
    first, second = list(numbers(run(name, inputs))), list(numbers(run(name, inputs)))
    assert first
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one.nan_to_num(), other.nan_to_num())
    # A correlation of weights that do not vary, or a self in one token, is not a number; nothing else may be so.
    if name not in ("raw_correlation", "head_summary"):
        assert not any(bool(torch.isnan(one).any()) for one in first)
    for key, value in before.items():
        assert torch.equal(inputs[key], value)


@every_method
@pytest.mark.parametrize("causal", [False, True])
def test_float32_agrees_with_float64(name: str, causal: bool) -> None:
    if name == "null_space_basis":
        pytest.skip("any rotation of a basis is a basis: its span is compared in the tests of its own")
    exact = run(name, Case(11, causal).inputs())
    rounded = run(name, Case(11, causal, dtype=torch.float32).inputs())
    skipped = ("cutoff", "gap", "residual", "lower_row", "upper_row", "query", "key", "certificate", "solved")
    for one, other in zip(_without(exact, skipped), _without(rounded, skipped), strict=True):
        assert torch.allclose(one.nan_to_num(), other.nan_to_num(), atol=2e-3, rtol=2e-3)


def _without(result: Any, names: tuple[str, ...]) -> list[Tensor]:
    if isinstance(result, FactoredAttention) or not dataclasses.is_dataclass(result):
        return list(numbers(result))
    parts: list[Tensor] = []
    for field in dataclasses.fields(result):
        if field.name not in names:
            value = getattr(result, field.name)
            parts += _without(value, names) if dataclasses.is_dataclass(value) else list(numbers(value))
    return parts


@every_method
def test_contiguous_or_not_is_the_same(name: str) -> None:
    """A text cut out of a padded batch is a view with gaps; it must give what a copy gives."""
    inputs = Case(11).inputs()
    gaps = dict(inputs)
    for key in ("value", "context"):
        wide = torch.full((*inputs[key].shape[:-2], 20, inputs[key].shape[-1]), torch.nan, dtype=torch.float64)
        wide[..., 4:15, :] = inputs[key]
        gaps[key] = wide[..., 4:15, :]
    for one, other in zip(numbers(run(name, inputs)), numbers(run(name, gaps)), strict=True):
        assert torch.allclose(one.nan_to_num(), other.nan_to_num(), atol=1e-9)
