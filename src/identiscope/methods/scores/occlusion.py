"""The outcome without each token."""

from typing import Literal

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.methods.outcome_runs import Values
from identiscope.methods.scores.answer import Score
from identiscope.progress import Progress

#: Texts that are run at a time.
_AT_A_TIME = 64


def occlusion(
    answer: Values,
    without: Values,
    embeddings: Tensor,
    baseline: Tensor,
    *,
    how: Literal["replace", "delete"] = "replace",
    progress: Progress | None = None,
) -> Score:
    """s_i = F(x) − F(x without token i) (Zeiler & Fergus 2014): what the outcome loses when a token says nothing.

    A token that the baseline leaves as it is, such as a special one, has nothing to lose, and scores zero.

    how: `replace` puts the baseline in the token's place, `delete` takes the token out of the text.

    >>> values = lambda x: x.prod(1)[:, 0]
    >>> occlusion(values, values, torch.tensor([[2.0], [3.0]]), torch.ones(2, 1)).score
    tensor([3., 4.], dtype=torch.float64)
    """
    count = len(embeddings)
    changed = (embeddings != baseline).any(-1).nonzero().flatten()
    if how == "delete" and count < 2:
        raise InputError("the text has one token, which cannot be deleted; use how='replace'.")
    score = torch.zeros(count, dtype=torch.float64, device=embeddings.device)
    if len(changed) == 0:
        return Score(score)
    whole = answer(embeddings[None]).double()[0]
    for some in changed.split(_AT_A_TIME):
        if how == "delete":
            kept = torch.ones(len(some), count, dtype=torch.bool, device=embeddings.device)
            kept[torch.arange(len(some)), some] = False
            values = without(kept)
        else:
            texts = embeddings.repeat(len(some), 1, 1)
            texts[torch.arange(len(some)), some] = baseline[some]
            values = answer(texts)
        score[some] = whole - values.double()
        if progress is not None:
            progress(int((changed <= some[-1]).sum()), len(changed))
    return Score(score)
