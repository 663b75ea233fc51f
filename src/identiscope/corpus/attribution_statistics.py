"""What hidden tokens are made of, per text and layer: Hidden Token Attribution, estimated."""

import torch
from torch import Tensor

from identiscope.capture.blocks import find_blocks
from identiscope.capture.trace import Trace
from identiscope.methods.hidden_token_attribution import hidden_token_attribution

#: Distances of contributors: name → nearest and farthest.
DISTANCES = {"1": (1, 1), "2_to_5": (2, 5), "6_to_10": (6, 10), "11_or_more": (11, None)}


def attribution_statistics(trace: Trace, layers: list[int], *, probes: int, seed: int) -> dict[str, Tensor]:
    """The columns of the table `attribution`, each [layer], for hidden states after the given layers (from 1)."""
    stream, replay = trace.main, trace.replay
    found = hidden_token_attribution(
        lambda embeddings: replay({stream.name: embeddings})[stream.name],
        stream.embeddings,
        layers=layers,
        mode="estimate",
        probes=min(probes, stream.embeddings.shape[1]),
        seed=seed,
        blocks=find_blocks(trace, stream.name, summed=False).blocks,
    )
    if not found.complete:
        # The method keeps what it has when it is interrupted; a Run begins the shard again.
        raise KeyboardInterrupt
    contribution = found.contribution
    count = contribution.shape[-1]
    own = contribution.diagonal(dim1=1, dim2=2)
    distance = (torch.arange(count)[:, None] - torch.arange(count)).abs()
    columns = {
        "self_contribution": own.mean(-1),
        "self_median": own.quantile(0.5, dim=-1),
        "not_largest": (contribution.amax(1) > own).double().mean(-1),
        "from_special": contribution[:, torch.tensor(stream.special)].sum(1).mean(-1),
        "standard_error": found.contribution_error.diagonal(dim1=1, dim2=2).mean(-1),
    }
    for name, (near, far) in DISTANCES.items():
        inside = (distance >= near) & (distance <= (count if far is None else far))
        columns[f"from_distance_{name}"] = (contribution * inside).sum(1).mean(-1)
    return columns
