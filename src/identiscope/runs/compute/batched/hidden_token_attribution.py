"""What hidden tokens are made of, per text and layer: Hidden Token Attribution, estimated."""

from collections.abc import Sequence

import torch
from torch import Tensor

from identiscope.capture.trace import Trace
from identiscope.methods.mixtures.attribution.summaries import self_contribution
from identiscope.methods.mixtures.hidden_token_attribution import hidden_token_attribution
from identiscope.runs.compute.filling import PER_LAYER, FromTrace, RunMethod
from identiscope.runs.format.statistics import Column

#: Distances of contributors: name → nearest and farthest.
DISTANCES = {"1": (1, 1), "2_to_5": (2, 5), "6_to_10": (6, 10), "11_or_more": (11, None)}


def attribution_statistics(
    trace: Trace, layers: Sequence[int], heads: Sequence[int] = (), *, probes: int, seed: int, settings: object = None
) -> dict[str, Tensor]:
    """The columns of the table `attribution`, each [layer], for what these layers (blocks, from 0) wrote.

    What comes from a token itself and from all distances adds up to one, so these are sums over the contributors and
    means over the tokens; Fig. 4a's mean over a token's neighbours is `contributions_by_distance`.
    """
    stream, replay = trace.main, trace.replay
    attribution = hidden_token_attribution(
        lambda embeddings: replay({stream.name: embeddings})[stream.name],
        stream.embeddings,
        trace.blocks(stream.name).blocks,
        layers=list(layers),
        mode="estimate",
        probes=min(probes, stream.embeddings.shape[1]),
        seed=seed,
    )
    if not attribution.complete:
        # The method keeps what it has when it is interrupted; a Run begins the shard again.
        raise KeyboardInterrupt
    contribution = attribution.contribution
    counted = self_contribution([contribution.numpy()], errors=[attribution.contribution_error.numpy()])
    count = contribution.shape[-1]
    own = contribution.diagonal(dim1=1, dim2=2)
    distance = (torch.arange(count)[:, None] - torch.arange(count)).abs()
    columns = {
        "self_contribution": own.mean(-1),
        "self_median": own.quantile(0.5, dim=-1),
        "not_largest": torch.from_numpy(counted.not_largest),
        "not_largest_noise": torch.from_numpy(counted.not_largest_noise),
        "from_special": contribution[:, torch.tensor(stream.special)].sum(1).mean(-1),
        "standard_error": attribution.contribution_error.diagonal(dim1=1, dim2=2).mean(-1),
    }
    for name, (near, far) in DISTANCES.items():
        inside = (distance >= near) & (distance <= (count if far is None else far))
        columns[f"from_distance_{name}"] = (contribution * inside).sum(1).mean(-1)
    return columns


METHOD = RunMethod(
    PER_LAYER,
    (
        Column("self_contribution", "mean contribution of a token to its own hidden embedding"),
        Column("self_median", "the median of that over the tokens"),
        Column("not_largest", "share of tokens to which another token contributes more"),
        Column("not_largest_noise", "about how much of that the noise of the estimate adds", -0.5, 0.5),
        Column("from_special", "what all special tokens together contribute to a token, on average"),
        Column("standard_error", "mean standard error of the self contributions", 0, 0.1),
        *(
            Column(
                f"from_distance_{name}",
                f"what all tokens {name.replace('_', ' ')} places away together contribute to a token, on average",
            )
            for name in DISTANCES
        ),
    ),
    FromTrace(attribution_statistics),
)
