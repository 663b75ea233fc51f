"""Value zeroing, against layers that are really run without each value: n passes a layer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from torch import Tensor

import identiscope
from families import ALL, TEXT
from identiscope.errors import InputError
from identiscope.linalg.parts import StreamParts
from identiscope.methods.mixtures.value_zeroing import value_zeroing
from plain_families import PRECISION, model_of
from plain_models import Ran, run
from plain_parts import Shape, fields, multiplied, random_run, random_side, shapes, shares


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """1 − cos, not below zero, where rounding would put what did not change."""
    return max(0.0, float(1 - (one @ other) / np.sqrt((one @ one) * (other @ other))))


def without_values(plain: Ran, shape: Shape) -> list[np.ndarray]:
    """Each layer from its own input once for each value that is zero, computed again whole (Mohebbi et al. 2023)."""
    own = random_side(shape)
    steps = []
    for number, layer in enumerate(plain.layers):
        given_, alone = layer.attended[0].before, replace(own, layers=own.layers[number : number + 1], final=None)
        step = np.zeros((len(given_), len(given_)))
        for key in range(len(given_)):

            def gone(_: int, __: int, value: Tensor, key: int = key) -> Tensor:
                return torch.cat([value[:, :key], 0 * value[:, key : key + 1], value[:, key + 1 :]], 1)

            new = run(alone, given_, values=gone).last
            for query in range(len(given_)):
                step[query, key] = distance(layer.after[query].numpy(), new[query].numpy())
        steps.append(shares(step))
    return steps


@given(shape=shapes)
def test_it_is_a_layer_without_each_value(shape: Shape) -> None:
    plain = random_run(shape)
    found = value_zeroing(*fields(plain, shape.group))
    steps = without_values(plain, shape)
    # Changes that are rounding, 1e-16, are shared out where nothing else changes.
    if all(step.sum(1).min() > 0 for step in steps) and shape.tokens > 1:
        np.testing.assert_allclose(found.step.numpy(), steps, atol=1e-6)
        np.testing.assert_allclose(found.rolled.numpy(), multiplied(steps), atol=1e-6)


def test_where_attention_and_feed_forward_part_are_side_by_side_the_latter_does_not_notice() -> None:
    shape = Shape(3, 5, norms=("front",), parallel=True, causal=True)
    plain = random_run(shape)
    np.testing.assert_allclose(value_zeroing(*fields(plain)).step.numpy(), without_values(plain, shape), atol=1e-9)


def test_a_feed_forward_part_that_cannot_be_run_is_said() -> None:
    attention, value, projection, parts = fields(random_run(Shape(0, 3)))
    bare = StreamParts(tuple(replace(layer, feed=None) for layer in parts.layers))
    with pytest.raises(InputError, match="could not be found as modules"):
        value_zeroing(attention, value, projection, bare)


# The families' own layers, with a hook behind what makes their values.


def _bert(model: Any, layer: int) -> tuple[Any, Any, Callable[[Tensor, int], Tensor]]:
    own = model.encoder.layer[layer]
    return own, own.attention.self.value, _row


def _gpt2(model: Any, layer: int) -> tuple[Any, Any, Callable[[Tensor, int], Tensor]]:
    own = model.transformer.h[layer]

    def zeroed(made: Tensor, key: int) -> Tensor:
        made = made.clone()
        made[0, key, 2 * made.shape[2] // 3 :] = 0
        return made

    return own, own.attn.c_attn, zeroed


def _llama(model: Any, layer: int) -> tuple[Any, Any, Callable[[Tensor, int], Tensor]]:
    own = model.model.layers[layer]
    return own, own.self_attn.v_proj, _row


def _neox(model: Any, layer: int) -> tuple[Any, Any, Callable[[Tensor, int], Tensor]]:
    own = model.gpt_neox.layers[layer]

    def zeroed(made: Tensor, key: int) -> Tensor:
        made = made.clone()
        made[0, key].view(4, 3, -1)[:, 2] = 0
        return made

    return own, own.attention.query_key_value, zeroed


def _row(made: Tensor, key: int) -> Tensor:
    made = made.clone()
    made[0, key] = 0
    return made


MODELS = {"BERT": _bert, "GPT-2": _gpt2, "Llama": _llama, "Gemma-2": _llama, "GPT-NeoX": _neox, "Phi": _llama}


@contextmanager
def hooked(module: Any, hook: Callable[..., Any], **more: Any) -> Iterator[None]:
    handle = module.register_forward_hook(hook, **more)
    try:
        yield
    finally:
        handle.remove()


@pytest.mark.parametrize("family", MODELS)
def test_of_a_model_it_is_its_own_layers_without_each_value(family: str) -> None:
    model = model_of(family) if family != "Phi" else ALL[family].model()
    ids = torch.tensor([TEXT])
    steps = []
    for number in range(2):
        layer, values, zeroed = MODELS[family](model, number)
        seen: list[tuple[Any, Any, Any]] = []
        with torch.no_grad(), hooked(layer, lambda _, a, k, out, s=seen: s.append((a, k, out)), with_kwargs=True):
            model(ids, **({} if family == "BERT" else {"use_cache": False}))
        args, kwargs, whole = seen[0]
        step = np.zeros((len(TEXT), len(TEXT)))
        for key in range(len(TEXT)):
            with torch.no_grad(), hooked(values, lambda _, __, out, z=zeroed, j=key: z(out, j)):
                changed = layer(*args, **kwargs)
            one, other = (made[0] if isinstance(made, tuple) else made for made in (whole, changed))
            for query in range(len(TEXT)):
                step[query, key] = distance(one[0, query].numpy(), other[0, query].numpy())
        steps.append(shares(step))
    result = identiscope.value_zeroing(identiscope.trace(model, TEXT))
    tolerance = PRECISION.get(family, 1e-9)
    np.testing.assert_allclose(result["step"], steps, atol=tolerance)
    np.testing.assert_allclose(result["mixture"], multiplied(steps), atol=2 * tolerance)
