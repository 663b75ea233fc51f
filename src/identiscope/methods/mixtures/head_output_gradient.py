"""What a head's output depends on, beside what it attends to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.decomposition import shares
from identiscope.linalg.jacobian.probes import orthogonal_probes
from identiscope.linalg.rank.projection_factor import projection_factor
from identiscope.progress import Progress

Tangents = Callable[[Tensor], Sequence[Tensor]]


@dataclass(frozen=True, eq=False)
class HeadOutputGradient:
    """norm, error and share [layer, head, output, input]; agreement [layer, head], with attention."""

    norm: Tensor
    error: Tensor
    agreement: Tensor

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        """By name, with their axes."""
        cells = ("layer", "head", "output", "input")
        return {
            "head_output_gradient": (cells, shares(self.norm)),
            "norm": (cells, self.norm),
            "norm_error": (cells, self.error),
            "agreement_with_attention": (cells[:2], self.agreement),
        }


def head_output_gradient(
    head_tangents: Tangents,
    embeddings: Tensor,
    attention: Sequence[Tensor],
    projection: Sequence[Tensor],
    *,
    probes: int = 4,
    seed: int = 0,
    progress: Progress | None = None,
) -> HeadOutputGradient:
    """‖∂o_h,i/∂x_j‖, rows normalised: what the output of each head at token i depends on (Pascual et al. 2021, eq. 3).

    Attention says what a head reads in its layer, this what that was made of. `agreement_with_attention` is the Pearson
    correlation of a head's map with it over all pairs. Norms are Frobenius norms, estimated from random directions with
    their standard error (`norm_error`), as Hidden Token Attribution estimates them.

    probes: directions that are followed for each input token; as many as the model is wide make it exact. seed: of
    these.

    >>> attention = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
    >>> tangents = lambda moved: [attention[None] @ moved[:, None]]  # values are the embeddings, attention stays
    >>> head_output_gradient(tangents, torch.zeros(2, 2), [attention], [torch.eye(2)[None]]).norm[0, 0]
    tensor([[1.4142, 0.0000],
            [1.4142, 0.0000]], dtype=torch.float64)
    """
    inputs, width = embeddings.shape
    if probes < 2:
        raise InputError(f"probes={probes} was given; an error bar needs at least 2.")
    count = min(probes, width)
    directions = orthogonal_probes(width, 0, count, seed=seed, like=embeddings)
    factors = [projection_factor(one).triangle.mT for one in projection]
    sums: list[Tensor] = []
    squares: list[Tensor] = []
    for token in range(inputs):
        tangents = embeddings.new_zeros(count, inputs, width)
        tangents[:, token] = directions.T
        for layer, moved in enumerate(head_tangents(tangents)):
            # [probe, head, query]: ‖t·H‖² by the small factor of H.
            seen = (moved.double() @ factors[layer]).square().sum(-1)
            if token == 0:
                sums.append(seen.new_zeros(*seen.shape[1:], inputs))
                squares.append(sums[-1].clone())
            sums[layer][..., token] = seen.mean(0)
            squares[layer][..., token] = seen.var(0) / count * (1 - count / width)
        if progress is not None:
            progress(token + 1, inputs)
    mean, variance = torch.stack(sums), torch.stack(squares)
    norm = mean.sqrt()
    # d√y = dy / 2√y.
    error = torch.where(norm > 0, variance.sqrt() / (2 * torch.where(norm > 0, norm, 1.0)), 0.0)
    return HeadOutputGradient(norm, error, _agreement(shares(norm), attention, inputs))


def _agreement(share: Tensor, attention: Sequence[Tensor], inputs: int) -> Tensor:
    """Pearson correlation of each head's map with the last inputs, which are the stream's own."""
    cosines = []
    for layer, weights in zip(share, attention, strict=True):
        one = layer[..., inputs - weights.shape[2] :].flatten(1)
        other = weights.double().flatten(1).to(one.device)
        one, other = one - one.mean(1, keepdim=True), other - other.mean(1, keepdim=True)
        cosines.append((one * other).sum(1) / (one.norm(dim=1) * other.norm(dim=1)))
    return torch.stack(cosines)
