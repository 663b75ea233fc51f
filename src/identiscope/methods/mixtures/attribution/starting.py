"""Where the work of Hidden Token Attribution begins: at nothing, or at what an earlier call left."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.agreement import explained_by, relative_error
from identiscope.linalg.devices import on_cpu
from identiscope.linalg.jacobian.composed import ComposedJacobian
from identiscope.linalg.jacobian.forward import ForwardJacobian
from identiscope.linalg.jacobian.norms import at_least_float32, squared_responses
from identiscope.linalg.jacobian.probes import orthogonal_probes
from identiscope.methods.mixtures.attribution.contributions import Attribution
from identiscope.methods.mixtures.attribution.estimate import empty_estimate

Jacobian = ComposedJacobian | ForwardJacobian


def start_of(
    jacobian: Jacobian, layers: tuple[int, ...], norm: str, mode: str, seed: int, resume: Attribution | None
) -> Attribution:
    """The result before any work, or what an earlier call left."""
    outputs = {jacobian.shapes[layer + 1][0] for layer in layers}
    if len(outputs) != 1:
        raise InputError(f"the layers {list(layers)} have {sorted(outputs)} tokens; choose layers of one length.")
    shape = (len(layers), outputs.pop(), jacobian.tokens)
    if resume is not None:
        composed = isinstance(jacobian, ComposedJacobian)
        wanted = {"layers": layers, "norm": norm, "mode": mode, "seed": seed, "composed": composed}
        wanted |= {"[layer, output, input]": shape, "width": jacobian.width}
        sizes = tuple(resume.norm.transpose(1, 2).shape)
        given = (resume.layers, resume.norm_name, resume.mode, resume.seed, resume.composed, sizes, resume.width)
        differing = [
            f"{name} (there: {there}, now: {here})"
            for (name, here), there in zip(wanted.items(), given, strict=True)
            if there != here
        ]
        if differing:
            raise InputError(
                f"the result to resume was made with another {', '.join(differing)}. Ask for the same, or begin anew."
            )
        _check_first(jacobian, resume)
        return resume
    nothing = torch.full((shape[0], shape[2], shape[1]), torch.nan, dtype=torch.float64)
    anchor = jacobian.anchor if isinstance(jacobian, ComposedJacobian) else None
    anchor, kept = None if anchor is None else on_cpu(anchor), at_least_float32(jacobian.inputs.dtype)
    return Attribution(
        layers=layers,
        contribution=nothing,
        norm=nothing,
        contribution_error=nothing,
        norm_error=nothing,
        contribution_freedom=torch.ones(len(layers), dtype=torch.float64),
        norm_freedom=torch.ones(len(layers), dtype=torch.float64),
        norm_name=norm,
        mode=mode,
        followed=torch.zeros(jacobian.tokens, dtype=torch.long),
        width=jacobian.width,
        complete=False,
        composed=isinstance(jacobian, ComposedJacobian),
        seed=seed,
        first=nothing,
        estimate=None if mode == "exact" else empty_estimate(shape, jacobian.width, anchor, kept),
    )


def _check_first(jacobian: Jacobian, resume: Attribution) -> None:
    """Refuse a result of another function or input: its first direction must have the same responses here."""
    if resume.mode == "exact":
        direction = torch.eye(jacobian.width, 1, dtype=jacobian.inputs.dtype, device=jacobian.inputs.device)
    else:
        direction = orthogonal_probes(jacobian.width, 0, 1, seed=resume.seed, like=jacobian.inputs)
    then = resume.first.transpose(1, 2)
    now = torch.zeros_like(then)
    done = resume.followed > 0
    for tokens in runs(done.nonzero().flatten().tolist(), jacobian.chunks(1).tokens):
        for layer, first, pushed in push(jacobian, tokens, direction, resume.layers):
            here = slice(first, None), slice(tokens.start, tokens.stop)
            now[resume.layers.index(layer)][here] = squared_responses(pushed, "frobenius")[..., 0].double()
    for layer, one, other in zip(resume.layers, now[..., done].sqrt(), then[..., done].sqrt(), strict=True):
        error = relative_error(one, other)
        if not explained_by(error, jacobian.inputs.dtype):
            raise InputError(
                "the result to resume is not of this replay and these embeddings: the first direction that it followed"
                f" has other responses here, at layer {layer} by {error:.1%} of the largest. Resume it with the model,"
                " text and input it was made of, or begin anew."
            )


def push(
    jacobian: Jacobian, tokens: range, directions: Tensor, layers: Sequence[int]
) -> Iterator[tuple[int, int, Tensor]]:
    """What the blocks wrote, pushed forward; a Jacobian counts states, the input being the first of them."""
    for state, first, pushed in jacobian.push(tokens, directions, [layer + 1 for layer in layers]):
        yield state - 1, first, pushed


def runs(tokens: list[int], size: int) -> list[range]:
    """Consecutive tokens, at most `size` at a time."""
    runs: list[range] = []
    for token in tokens:
        if runs and runs[-1].stop == token and len(runs[-1]) < size:
            runs[-1] = range(runs[-1].start, token + 1)
        else:
            runs.append(range(token, token + 1))
    return runs
