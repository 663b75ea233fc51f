"""Rewritings of the stream of hidden states: its coordinates turned, or in another order and with other signs."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from identiscope.capture.rewriting.anatomy import Anatomy, Gain, Map
from identiscope.capture.rewriting.matrices import orthogonal, orthogonal_with_mean, other_order, signs
from identiscope.errors import ModelError


def residual_rotation(model: Anatomy, generator: torch.Generator) -> None:
    """All that is written to the stream times an orthogonal Q, all that reads it times Qᵀ; gains go into the readers.

    LayerNorm takes a mean off: Q leaves the vector of ones where it is, the norm's bias becomes (β/γ)·Q, and any
    multiple of ones is added to whatever writes, since every norm takes it off again.
    """
    _check_width(model)
    _check_rotation(model)
    _untie(model)
    centred = False
    for norm, readers in _read_through(model):
        centred = centred or norm.centred
        _fold(model, norm, readers)
    if centred:
        for written in _writers(model):
            size = written.square().mean().sqrt()
            written += size * torch.randn(*written.shape[:-1], 1, generator=generator, dtype=written.dtype)
    turn = (orthogonal_with_mean if centred else orthogonal)(model.width, generator)
    for norm, _ in _read_through(model):
        if norm.bias is not None:
            norm.bias.copy_(norm.bias @ turn)
    _turn(model, turn)


def residual_permutation(model: Anatomy, generator: torch.Generator) -> None:
    """The coordinates of the stream in another order; each with a sign where norms only scale, or all with one where a
    mean is taken off."""
    _check_width(model)
    norms = list(_norms(model))
    if any(norm.centred for norm in norms):
        sign = signs(1, generator).expand(model.width)
    else:
        sign = signs(model.width, generator)
    order = other_order(model.width, generator)
    if _other_space_is_tied(model):
        _untie(model)
    turn = torch.zeros(model.width, model.width, dtype=torch.float64)
    turn[order, torch.arange(model.width)] = sign
    for norm in norms:
        if (gain := norm.gain) is not None:
            norm.set_gain(gain[order])
        if norm.bias is not None:
            norm.bias.copy_(norm.bias[order] * sign)
    _turn(model, turn)
    model.order, model.sign = model.order[order], model.sign[order] * sign


def _check_width(model: Anatomy) -> None:
    if any(view.shape[-1] != model.width for view in model.written_first()):
        raise ModelError(
            f"coordinates of the stream cannot be changed in {model.name}: its embeddings have another width, and what"
            " stands between them and the stream is not known here."
        )


def _check_rotation(model: Anatomy) -> None:
    family, why = model.family, ""
    if family.outer_norms or not getattr(model.config, "do_layer_norm_before", True):
        why = "norms stand behind every sum, and their gains belong to coordinates"
    elif family.inner_norms:
        why = "norms stand before the addition to the stream, and their gains belong to coordinates"
    elif model.module is model.base:
        why = "it has no head, and its states themselves are what it returns"
    if why:
        raise ModelError(f"residual_rotation is not open to {model.name}: {why}; residual_permutation is.")


def _read_through(model: Anatomy) -> Iterator[tuple[Gain, tuple[Map, ...]]]:
    """Every norm that stands before its readers, and these."""
    for layer in model.layers:
        yield from zip(layer.read_norms, layer.read_by, strict=True)
    if model.final_norm is None:
        raise ModelError(f"residual_rotation is not open to {model.name}: no norm stands before its head.")
    yield model.final_norm, tuple(model.readers())


def _fold(model: Anatomy, norm: Gain, readers: tuple[Map, ...]) -> None:
    """Let a norm multiply by one, and its readers by what it did."""
    gain, bias = norm.gain, norm.bias
    if gain is None:
        return
    if bias is not None:
        if bool((gain == 0).any()):
            raise ModelError(
                f"residual_rotation is not open to {model.name}: a norm has a gain of zero, which its bias cannot be"
                " divided by."
            )
        bias.div_(gain)
    for reader in readers:
        reader.weight.mul_(gain[:, None])
    norm.set_gain(torch.ones_like(gain))


def _writers(model: Anatomy) -> Iterator[Tensor]:
    """All that writes the stream, as views whose last axis is the stream."""
    yield from model.written_first()
    for layer in model.layers:
        for part in (layer.attention.output, layer.down):
            yield part.weight
            if part.bias is not None:
                yield part.bias


def _norms(model: Anatomy) -> Iterator[Gain]:
    """Every norm of the stream."""
    for norm in (model.embedding_norm, model.final_norm):
        if norm is not None:
            yield norm
    for layer in model.layers:
        yield from (*layer.read_norms, *layer.inner_norms, *layer.outer_norms)


def _turn(model: Anatomy, turn: Tensor) -> None:
    """What is written times Q, what reads times Qᵀ: of an orthogonal Q both are one product along the stream's axis."""
    seen: set[int] = set()
    reading = (part.weight.T for part in model.readers())
    inside = (part.weight.T for layer in model.layers for maps in layer.read_by for part in maps)
    for view in (*_writers(model), *reading, *inside):
        # Embeddings that are tied to the head are one tensor, turned once.
        if view.data_ptr() not in seen:
            seen.add(view.data_ptr())
            view.copy_(view @ turn)


def _other_space_is_tied(model: Anatomy) -> bool:
    """Whether the embeddings are tied to a head that does not read the stream itself, as BERT's for masked words."""
    head = model.module.get_output_embeddings() if model.module is not model.base else None
    weight = getattr(head, "weight", None)
    if weight is None:
        return False
    reads = any(part.weight.data_ptr() == weight.data_ptr() for part in model.readers())
    return not reads and any(weight.data_ptr() == view.data_ptr() for view in model.written_first())


def _untie(model: Anatomy) -> None:
    """Give a head that is tied to the embeddings weights of its own, also when the model is saved and loaded."""
    module = model.module
    if not getattr(module, "all_tied_weights_keys", None):
        return
    for target in list(module.all_tied_weights_keys):
        parent, _, name = target.rpartition(".")
        owner = module.get_submodule(parent)
        setattr(owner, name, nn.Parameter(getattr(owner, name).detach().clone()))
    module.all_tied_weights_keys = {}
    module.config.tie_word_embeddings = False
