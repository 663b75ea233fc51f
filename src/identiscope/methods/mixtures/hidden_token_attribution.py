"""Hidden Token Attribution: how much each input token contributes to each hidden embedding."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from identiscope.errors import InputError, MathError
from identiscope.linalg.devices import on_cpu
from identiscope.linalg.jacobian.blocks import Blocks
from identiscope.linalg.jacobian.composed import compose
from identiscope.linalg.jacobian.forward import forward_jacobian
from identiscope.linalg.jacobian.forward_mode import Function
from identiscope.linalg.jacobian.norms import NORMS, at_least_float32, block_norms, squared_responses
from identiscope.linalg.jacobian.probes import orthogonal_probes
from identiscope.methods.earlier import Earlier
from identiscope.methods.mixtures.attribution.contributions import (
    Attribution,
    attribution_of,
    mean_relative_error,
    with_norms,
)
from identiscope.methods.mixtures.attribution.estimate import Estimate, add_round
from identiscope.methods.mixtures.attribution.starting import Jacobian, push, runs, start_of
from identiscope.progress import Progress

DEFAULT_PROBES = 16
# Probes of one round: enough for a spread within the round, few enough to stop soon after the tolerance is met.
ROUND_PROBES = 8
ROUND_COLUMNS = 96
# The block whose norms may be known in closed form.
ANCHOR = 0


def hidden_token_attribution(
    replay: Function,
    embeddings: Tensor,
    blocks: Blocks | None = None,
    *,
    layers: Sequence[int] | None = None,
    norm: Literal["frobenius", "spectral", "ones"] = "frobenius",
    mode: Literal["exact", "estimate"] = "exact",
    probes: int | None = None,
    tolerance: float | None = None,
    seconds: float | None = None,
    seed: int = 0,
    memory: int = 1_073_741_824,
    resume: Attribution | Earlier | None = None,
    progress: Progress | None = None,
) -> Attribution:
    """c^l_ij = ‖∂e_j^l/∂x_i‖ / Σ_k ‖∂e_j^l/∂x_k‖ (eq. 11): how much of each input token is in each hidden embedding.

    `contribution` [layer, input, output] and `norm` come with their standard errors `contribution_error` and
    `norm_error`, which are zero in exact mode. Layer l is what block l wrote, from 0, the last one after the final
    norm, as in transformers' hidden states; the layer l of the paper is block l − 1. The inputs of a decoder that reads
    an encoder are the tokens of the encoder, and then its own. An interrupt (Ctrl-C) ends the work and returns what is
    done, marked as not complete.

    layers: only these blocks, from 0. norm: of a Jacobian block J: `frobenius`; `spectral`, its largest singular
    value; `ones`, ‖1ᵀJ‖, which one backward pass from the summed output gives. mode: `exact` follows every input
    coordinate, `estimate` a few random orthogonal directions. probes: how many directions an estimate follows, 16 by
    default; it is exact once it has followed them all. tolerance: follow as many as bring the mean relative standard
    error of the contributions to this. seconds: stop an estimate after this time. seed: of the directions.
    memory: bytes that may be used, 1 GiB by default. resume: a result that was interrupted, or an estimate to
    continue, of the same model, text and options, but for `probes`, `tolerance`, `seconds` and `memory`.

    The function itself takes any replay, from embeddings [input, model] to states (the input, then what each block
    wrote), each [output, model]; and `blocks`, the replay as blocks of known structure at these embeddings, which is
    much faster. What it resumes is known again by its first direction, which is followed once more.

    >>> double = torch.tensor([[2.0, 0.0], [1.0, 2.0]])  # token 1 reads both inputs
    >>> hidden_token_attribution(lambda x: (x, double @ x), torch.zeros(2, 3)).contribution[0]
    tensor([[1.0000, 0.3333],
            [0.0000, 0.6667]], dtype=torch.float64)
    """
    _check(embeddings, norm, mode, probes, tolerance, memory)
    jacobian: Jacobian
    most = _most_probes(mode, probes, tolerance, embeddings.shape[1])
    with torch.no_grad():
        if blocks is not None:
            anchored = mode == "estimate" and norm == "frobenius"
            expected = most if tolerance is None else min(most, 4 * ROUND_PROBES)
            jacobian = compose(blocks, embeddings, memory=memory, directions=expected, anchored=anchored)
        else:
            jacobian = forward_jacobian(replay, embeddings, memory=memory)
        chosen = _layers(layers, len(jacobian.shapes) - 1)
        earlier = attribution_of(resume) if isinstance(resume, Earlier) else resume
        start = start_of(jacobian, chosen, norm, mode, seed, earlier)
        if mode == "exact":
            return _checked(jacobian, _exact(jacobian, start, progress))
        return _checked(jacobian, _estimate(jacobian, start, most, tolerance, seconds, progress))


def _exact(jacobian: Jacobian, start: Attribution, progress: Progress | None) -> Attribution:
    squares, first_squares = start.norm.square().transpose(1, 2), start.first.transpose(1, 2).clone()
    followed = start.followed.clone()
    chunks = jacobian.chunks(jacobian.width)
    if start.norm_name == "spectral" and chunks.directions < jacobian.width:
        raise InputError("the spectral norm needs all directions of a token at once: allow more memory.")
    unit = torch.eye(jacobian.width, dtype=jacobian.inputs.dtype, device=jacobian.inputs.device)
    todo = [token for token in range(jacobian.tokens) if followed[token] == 0]
    complete = True
    try:
        for tokens in runs(todo, chunks.tokens):
            # Summed where the tangents are, and taken from there once.
            both = squares.new_zeros(2, *squares.shape[:2], len(tokens), device=jacobian.inputs.device)
            sums, once = both
            done = int(followed.sum())
            for number, directions in enumerate(unit.split(chunks.directions, dim=1)):
                for layer, first, pushed in push(jacobian, tokens, directions, start.layers):
                    place = start.layers.index(layer)
                    sums[place, first:] += block_norms(pushed, start.norm_name)
                    if number == 0:
                        once[place, first:] = squared_responses(pushed[..., :1], "frobenius")[..., 0]
                done += len(tokens) * directions.shape[1]
                if progress is not None:
                    progress(done, jacobian.tokens * jacobian.width)
            sums, once = on_cpu(both)
            squares[:, :, tokens.start : tokens.stop] = sums
            first_squares[:, :, tokens.start : tokens.stop] = once
            followed[tokens.start : tokens.stop] = jacobian.width
    except KeyboardInterrupt:
        complete = False
    norms = torch.where(followed > 0, squares, torch.nan).sqrt()
    return with_norms(start, norms, None, followed, first_squares, complete)


def _estimate(
    jacobian: Jacobian,
    start: Attribution,
    most: int,
    tolerance: float | None,
    seconds: float | None,
    progress: Progress | None,
) -> Attribution:
    estimate, first = start.estimate, start.first.transpose(1, 2)
    assert estimate is not None
    begun = time.monotonic()
    # Rounds end at multiples of this, wherever an earlier call stopped.
    size = max(ROUND_PROBES, -(-ROUND_COLUMNS // jacobian.tokens))
    complete = True
    try:
        while estimate.probes < most:
            end = min((estimate.probes // size + 1) * size, most)
            probes = orthogonal_probes(jacobian.width, estimate.probes, end, seed=start.seed, like=jacobian.inputs)
            responses, anchor, once = _round(jacobian, start, probes, progress, estimate.probes, most)
            first = once if estimate.probes == 0 else first
            estimate = add_round(estimate, responses, anchor, whole=end % size == 0)
            if seconds is not None and time.monotonic() - begun >= seconds:
                break
            if tolerance is not None and mean_relative_error(_finish(start, estimate, first, True)) <= tolerance:
                break
    except KeyboardInterrupt:
        complete = False
    return _finish(start, estimate, first, complete)


def _round(
    jacobian: Jacobian, start: Attribution, probes: Tensor, progress: Progress | None, before: int, most: int
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Responses to the probes, those of the anchor, and the response to the first of them in the Frobenius norm."""
    assert start.estimate is not None
    count, outputs = probes.shape[1], start.estimate.responses.shape[1]
    chunks, anchored = jacobian.chunks(count), start.estimate.anchor is not None
    # All in one, which is taken from where the tangents are at once: the anchor last, and the first probe last.
    shape = (len(start.layers) + anchored, outputs, jacobian.tokens, count + 1)
    both = probes.new_zeros(shape, dtype=at_least_float32(probes.dtype))
    responses, anchor, once = both[: len(start.layers), ..., :-1], both[-1, ..., :-1], both[..., -1]
    layers = sorted({*start.layers, *([ANCHOR] if anchored else [])})
    for tokens in runs(list(range(jacobian.tokens)), chunks.tokens):
        for columns in torch.arange(count).split(chunks.directions):
            for layer, first, pushed in push(jacobian, tokens, probes[:, columns], layers):
                seen = squared_responses(pushed, start.norm_name)
                here = slice(first, None), slice(tokens.start, tokens.stop), slice(columns[0], columns[-1] + 1)
                if layer == ANCHOR and anchored:
                    anchor[here] = seen
                if layer in start.layers:
                    place = start.layers.index(layer)
                    responses[place][here] = seen
                    if columns[0] == 0:
                        once[place][here[:2]] = squared_responses(pushed[..., :1], "frobenius")[..., 0]
        if progress is not None:
            progress(before * jacobian.tokens + tokens.stop * count, most * jacobian.tokens)
    both = on_cpu(both)
    responses, once = both[: len(start.layers), ..., :-1].contiguous(), both[: len(start.layers), ..., -1].double()
    return responses, both[-1, ..., :-1].contiguous() if anchored else None, once


def _finish(start: Attribution, estimate: Estimate, first: Tensor, complete: bool) -> Attribution:
    followed = torch.full_like(start.followed, estimate.probes)
    if estimate.probes == 0:
        return replace(start, complete=False)
    return with_norms(start, estimate.norms, estimate, followed, first, complete)


def _checked(jacobian: Jacobian, result: Attribution) -> Attribution:
    """A norm that is no number comes of a state that is none, or is no result."""
    strange = ~torch.isfinite(result.norm) & (result.followed > 0)[:, None]
    if bool(strange.any()) and jacobian.finite:
        layer, token, output = (int(place) for place in strange.nonzero()[0])
        raise MathError(
            f"the derivative of layer {result.layers[layer]}, token {output}, with respect to input token {token} is"
            " infinite or no number, though every state is finite: it does not exist there, or is too large for"
            f" {jacobian.inputs.dtype}. Give the model in float64 (model.double()), or another text."
        )
    return result


def _layers(layers: Sequence[int] | None, count: int) -> tuple[int, ...]:
    if layers is None:
        return tuple(range(count))
    chosen = tuple(sorted(set(layers)))
    if not chosen or chosen[0] < 0 or chosen[-1] >= count:
        raise InputError(f"layers {list(layers)} were asked for; there are 0 to {count - 1}.")
    return chosen


def _most_probes(mode: str, probes: int | None, tolerance: float | None, width: int) -> int:
    if mode == "exact":
        return width
    if probes is not None:
        return min(probes, width)
    return width if tolerance is not None else min(DEFAULT_PROBES, width)


def _check(embeddings: Tensor, norm: str, mode: str, probes: int | None, tolerance: float | None, memory: int) -> None:
    if embeddings.dim() != 2 or not embeddings.is_floating_point():
        raise InputError(f"embeddings are [token, model] numbers; given {tuple(embeddings.shape)} {embeddings.dtype}.")
    if norm not in NORMS:
        raise InputError(f"norm {norm!r} was asked for; there are {', '.join(NORMS)}.")
    if mode not in ("exact", "estimate"):
        raise InputError(f"mode {mode!r} was asked for; there are exact and estimate.")
    if mode == "exact" and (probes is not None or tolerance is not None):
        raise InputError("probes and tolerance are for mode='estimate'; exact follows every direction.")
    if mode == "estimate" and norm == "spectral":
        raise InputError("random probes do not estimate the spectral norm; use mode='exact', or norm='frobenius'.")
    if probes is not None and probes < 2:
        raise InputError(f"{probes} probes were asked for; an error bar needs at least 2.")
    if tolerance is not None and not tolerance > 0:
        raise InputError(f"a tolerance is a positive relative error such as 0.05; given {tolerance}.")
    if memory <= 0:
        raise InputError(f"memory is a number of bytes; given {memory}.")
