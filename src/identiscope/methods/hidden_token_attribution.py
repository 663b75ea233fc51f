"""Hidden Token Attribution: how much each input token contributes to each hidden embedding."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.jacobian_blocks import Blocks
from identiscope.linalg.jacobian_composed import ComposedJacobian, compose
from identiscope.linalg.jacobian_forward import ForwardJacobian, Function, forward_jacobian
from identiscope.linalg.jacobian_norms import NORMS, block_norms, squared_responses
from identiscope.linalg.jacobian_probes import orthogonal_probes
from identiscope.methods.attribution_estimate import Estimate, add_round, empty_estimate
from identiscope.methods.attribution_result import Attribution, mean_relative_error, with_norms

NormName = Literal["frobenius", "spectral", "ones"]
Mode = Literal["exact", "estimate"]
Progress = Callable[[int, int], None]
Jacobian = ComposedJacobian | ForwardJacobian

DEFAULT_MEMORY = 2**30
DEFAULT_PROBES = 16
# Probes of one round: enough for a spread within the round, few enough to stop soon after the tolerance is met.
ROUND_PROBES = 8
ROUND_COLUMNS = 96
# The layer whose norms may be known in closed form.
ANCHOR = 1


def hidden_token_attribution(
    replay: Function,
    embeddings: Tensor,
    *,
    layers: Sequence[int] | None = None,
    norm: NormName = "frobenius",
    mode: Mode = "exact",
    probes: int | None = None,
    tolerance: float | None = None,
    seconds: float | None = None,
    seed: int = 0,
    memory: int = DEFAULT_MEMORY,
    blocks: Blocks | None = None,
    resume: Attribution | None = None,
    progress: Progress | None = None,
) -> Attribution:
    """c^l_ij = ‖∂e_j^l/∂x_i‖ / Σ_k ‖∂e_j^l/∂x_k‖ (eq. 11), for all layers in one pass.

    replay: a function from embeddings [input, model] to states (the input, layer 1, …), each [output, model].
    layers: which states; all but the input by default. norm: of a Jacobian block J: `frobenius`; `spectral`,
    its largest singular value; `ones`, ‖1ᵀJ‖, which one backward pass from the summed output gives.
    mode `exact` follows every input coordinate. `estimate` follows `probes` random orthogonal directions, or
    as many as bring the mean relative standard error of the contributions to `tolerance`, or as fit in
    `seconds`; it is exact once it has followed them all. memory: bytes that may be used. blocks: the replay as
    blocks of known structure at these embeddings, which is much faster. resume: an earlier result to continue.
    progress is called with (directions done, directions in all). An interrupt (Ctrl-C) ends the work and
    returns what is done, marked as not complete.

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
        chosen = _layers(layers, len(jacobian.shapes))
        start = _start(jacobian, chosen, norm, mode, seed, resume)
        if mode == "exact":
            return _exact(jacobian, start, progress)
        return _estimate(jacobian, start, most, tolerance, seconds, progress)


def _exact(jacobian: Jacobian, start: Attribution, progress: Progress | None) -> Attribution:
    squares = start.norm.square().transpose(1, 2)
    followed = start.followed.clone()
    chunks = jacobian.chunks(jacobian.width)
    if start.norm_name == "spectral" and chunks.directions < jacobian.width:
        raise InputError("the spectral norm needs all directions of a token at once: allow more memory.")
    unit = torch.eye(jacobian.width, dtype=jacobian.inputs.dtype, device=jacobian.inputs.device)
    todo = [token for token in range(jacobian.tokens) if followed[token] == 0]
    complete = True
    try:
        for tokens in _runs(todo, chunks.tokens):
            found = squares.new_zeros(*squares.shape[:2], len(tokens))
            done = int(followed.sum())
            for directions in unit.split(chunks.directions, dim=1):
                for layer, first, pushed in jacobian.push(tokens, directions, start.layers):
                    found[start.layers.index(layer), first:] += block_norms(pushed, start.norm_name)
                done += len(tokens) * directions.shape[1]
                if progress is not None:
                    progress(done, jacobian.tokens * jacobian.width)
            squares[:, :, tokens.start : tokens.stop] = found
            followed[tokens.start : tokens.stop] = jacobian.width
    except KeyboardInterrupt:
        complete = False
    norms = torch.where(followed > 0, squares, torch.nan).sqrt()
    return with_norms(start, norms, None, followed, complete)


def _estimate(
    jacobian: Jacobian,
    start: Attribution,
    most: int,
    tolerance: float | None,
    seconds: float | None,
    progress: Progress | None,
) -> Attribution:
    estimate = start.estimate
    assert estimate is not None
    begun = time.monotonic()
    size = max(ROUND_PROBES, -(-ROUND_COLUMNS // jacobian.tokens))
    complete = True
    try:
        while estimate.probes < most:
            end = min(estimate.probes + size, most)
            # A round of one probe has no spread; take it along.
            end = most if most - end == 1 else end
            probes = orthogonal_probes(jacobian.width, estimate.probes, end, seed=start.seed, like=jacobian.inputs)
            responses, anchor = _round(jacobian, start, probes, progress, estimate.probes, most)
            estimate = add_round(estimate, responses, anchor)
            if seconds is not None and time.monotonic() - begun >= seconds:
                break
            if tolerance is not None and mean_relative_error(_finish(start, estimate, True)) <= tolerance:
                break
    except KeyboardInterrupt:
        complete = False
    return _finish(start, estimate, complete)


def _round(
    jacobian: Jacobian, start: Attribution, probes: Tensor, progress: Progress | None, before: int, most: int
) -> tuple[Tensor, Tensor | None]:
    assert start.estimate is not None
    chunks = jacobian.chunks(probes.shape[1])
    outputs = start.estimate.responses.shape[1]
    shape = (outputs, jacobian.tokens, probes.shape[1])
    responses = probes.new_zeros(len(start.layers), *shape)
    anchor = probes.new_zeros(shape) if start.estimate.anchor is not None else None
    layers = sorted({*start.layers, *([ANCHOR] if anchor is not None else [])})
    for tokens in _runs(list(range(jacobian.tokens)), chunks.tokens):
        for columns in torch.arange(probes.shape[1]).split(chunks.directions):
            for layer, first, pushed in jacobian.push(tokens, probes[:, columns], layers):
                seen = squared_responses(pushed, start.norm_name)
                here = slice(first, None), slice(tokens.start, tokens.stop), slice(columns[0], columns[-1] + 1)
                if layer == ANCHOR and anchor is not None:
                    anchor[here] = seen
                if layer in start.layers:
                    responses[start.layers.index(layer)][here] = seen
        if progress is not None:
            done = before * jacobian.tokens + tokens.stop * probes.shape[1]
            progress(done, most * jacobian.tokens)
    return responses, anchor


def _finish(start: Attribution, estimate: Estimate, complete: bool) -> Attribution:
    followed = torch.full_like(start.followed, estimate.probes)
    if estimate.probes == 0:
        return replace(start, complete=False)
    return with_norms(start, estimate.norms, estimate, followed, complete)


def _start(
    jacobian: Jacobian, layers: tuple[int, ...], norm: str, mode: str, seed: int, resume: Attribution | None
) -> Attribution:
    """The result before any work, or what an earlier call left."""
    outputs = {jacobian.shapes[layer][0] for layer in layers}
    if len(outputs) != 1:
        raise InputError(f"the layers {list(layers)} have {sorted(outputs)} tokens; choose layers of one length.")
    shape = (len(layers), outputs.pop(), jacobian.tokens)
    if resume is not None:
        sizes = tuple(resume.norm.transpose(1, 2).shape)
        given = (resume.layers, resume.norm_name, resume.mode, sizes, resume.width, resume.composed)
        wanted = (layers, norm, mode, shape, jacobian.width, isinstance(jacobian, ComposedJacobian))
        if given != wanted:
            raise InputError(
                "the result to resume has (layers, norm, mode, [layer, output, input], width, composed)"
                f" {given}; this call asks for {wanted}."
            )
        return resume
    nothing = torch.full((shape[0], shape[2], shape[1]), torch.nan, dtype=torch.float64)
    anchor = jacobian.anchor if isinstance(jacobian, ComposedJacobian) else None
    return Attribution(
        layers=layers,
        contribution=nothing,
        norm=nothing,
        contribution_error=nothing,
        norm_error=nothing,
        norm_name=norm,
        mode=mode,
        followed=torch.zeros(jacobian.tokens, dtype=torch.long),
        width=jacobian.width,
        complete=False,
        composed=isinstance(jacobian, ComposedJacobian),
        seed=seed,
        estimate=empty_estimate(shape, jacobian.width, anchor) if mode == "estimate" else None,
    )


def _runs(tokens: list[int], size: int) -> list[range]:
    """Consecutive tokens, at most `size` at a time."""
    runs: list[range] = []
    for token in tokens:
        if runs and runs[-1].stop == token and len(runs[-1]) < size:
            runs[-1] = range(runs[-1].start, token + 1)
        else:
            runs.append(range(token, token + 1))
    return runs


def _layers(layers: Sequence[int] | None, count: int) -> tuple[int, ...]:
    if layers is None:
        return tuple(range(1, count))
    chosen = tuple(sorted(set(layers)))
    if not chosen or chosen[0] < 0 or chosen[-1] >= count:
        raise InputError(f"layers {list(layers)} were asked for; there are 0 (the input) to {count - 1}.")
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
