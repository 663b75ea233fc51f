"""Every line of the registry keeps to the contract of its kind (tests/contract.py); a new line buys all of it."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

import contract
from identiscope.errors import InputError
from identiscope.methods.kinds import CHOICES, KINDS
from identiscope.methods.registry import METHODS, Method, registered

pytestmark = pytest.mark.long

every_method = pytest.mark.parametrize("name", METHODS)
every_family = pytest.mark.parametrize("family", ["BERT", "Llama"])


@every_method
def test_its_line_and_its_file_agree(name: str) -> None:
    contract.check_line(METHODS[name])


@pytest.mark.parametrize("case", contract.CASES)
@every_method
def test_an_answer_is_what_its_kind_promises(name: str, case: str, tmp_path: Path) -> None:
    if not contract.applies(METHODS[name], contract.CASES[case]):
        pytest.skip("what is of a whole trace is of a stream's attention to itself")
    contract.check_answer(METHODS[name], contract.CASES[case], tmp_path)


@every_family
@every_method
def test_padding_and_company_change_nothing(name: str, family: str) -> None:
    contract.check_batches(METHODS[name], family)


@every_family
@every_method
def test_float32_agrees_with_float64(name: str, family: str) -> None:
    contract.check_precision(METHODS[name], contract.Case(family, tuple(contract.MANY)))


@every_family
@every_method
def test_given_arrays_say_what_the_model_s_own_do(name: str, family: str) -> None:
    contract.check_arrays(METHODS[name], contract.Case(family, tuple(contract.MANY)))


@every_family
@every_method
def test_options_are_checked_and_choose(name: str, family: str) -> None:
    contract.check_options(METHODS[name], contract.Case(family, tuple(contract.MANY)))


def test_every_kind_promises_something_and_has_a_scope() -> None:
    assert set(contract.PROMISES) == set(KINDS)
    assert all(promise.__doc__ for promise in contract.PROMISES.values())
    assert {kind.scope for kind in KINDS.values()} == set(CHOICES)


# Methods that keep to all but one thing each: the contract must see it.


def _forgets_the_mask(attention: Tensor) -> Tensor:
    return attention + 0.01


def _changes_its_input(value: Tensor, attention: Tensor) -> Tensor:
    value.mul_(2)
    return attention


def _differs_from_call_to_call(attention: Tensor) -> Tensor:
    return attention * torch.rand(1).double()


def _lacks_an_axis(attention: Tensor) -> Tensor:
    return attention.mean(0)


_CALLS = itertools.count()


def _remembers_other_texts(attention: Tensor) -> Tensor:
    return attention * (1 + 1e-6 * next(_CALLS))


def _shares_that_do_not_sum_to_one(attention: Sequence[Tensor]) -> Tensor:
    return torch.stack([layer.sum(0) for layer in attention])


def _infinite(value: Tensor, projection: Tensor) -> Tensor:
    return torch.full((len(projection),), torch.inf)


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        ("map", _forgets_the_mask),
        ("map", _changes_its_input),
        ("map", _differs_from_call_to_call),
        ("map", _lacks_an_axis),
        ("mixture", _shares_that_do_not_sum_to_one),
        ("head", _infinite),
    ],
)
def test_the_contract_can_fail(kind: str, function: Callable[..., Tensor], tmp_path: Path) -> None:
    line = Method("faulty", kind, "nobody", "keeps to all but one thing", function=function)
    case = contract.Case("Llama", tuple(contract.FEW))
    kept = [(tensor, tensor.clone()) for tensor in contract.tensors(contract.trace(case))]
    with registered(line), pytest.raises((AssertionError, InputError)):
        contract.check_answer(line, case, tmp_path)
    for tensor, value in kept:
        # What a faulty method did to a shared trace must not stay.
        tensor.copy_(value)


def test_the_contract_sees_what_depends_on_company() -> None:
    line = Method("faulty", "map", "nobody", "depends on what came before", function=_remembers_other_texts)
    with registered(line), pytest.raises(AssertionError):
        contract.check_batches(line, "Llama")


def test_the_contract_wants_help_for_every_option() -> None:
    def unhelpful(attention: Tensor, *, share: float = 0.5) -> Tensor:
        """A map. No word of what the option is.

        >>> unhelpful(torch.eye(2)[None])
        """
        return share * attention

    with pytest.raises(AssertionError, match="does not say what `share` is"):
        contract.check_line(Method("unhelpful", "map", "nobody", "no help", function=unhelpful))
