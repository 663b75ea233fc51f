"""Outcomes of a whole text: how alike it is to another, and how well its tokens are predicted."""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from identiscope.capture.forward import forward
from identiscope.capture.inputs import encode
from identiscope.capture.limits import token_names
from identiscope.capture.models import Model
from identiscope.capture.outcome.outcome import Outcome, Seen
from identiscope.capture.outcome.places import is_vocabulary
from identiscope.capture.twin import twin
from identiscope.errors import InputError
from identiscope.token_text import shown_token

if TYPE_CHECKING:
    from identiscope.capture.trace import Trace


@dataclass(frozen=True)
class Pooling:
    """How the last states of a text become one vector: their mean, or that of the first or last token."""

    how: Literal["mean", "first", "last"]

    def of(self, seen: Seen, stream: str) -> Tensor:
        """[text, model]."""
        states = seen.forward.hidden_states[stream][-1]
        if self.how == "first":
            return states[:, 0]
        if seen.kept is None:
            return states.mean(1) if self.how == "mean" else states[:, -1]
        there = (seen.kept >= 0).to(states)[..., None]
        if self.how == "last":
            last = there[..., 0].sum(1).long() - 1
            return states[torch.arange(len(states), device=states.device), last]
        return (states * there).sum(1) / there.sum(1)


#: What sentence-transformers calls the ways there are; all that differs between the two means is the vector's length.
_POOLINGS: Mapping[str, Literal["mean", "first", "last"]] = {
    "mean": "mean", "mean_sqrt_len": "mean", "cls": "first", "lasttoken": "last",
}  # fmt: skip


def _pooling(model: Model) -> Pooling:
    """As the model's folder says, if sentence-transformers wrote it; else the mean."""
    path = Path(str(getattr(model.config, "_name_or_path", ""))) / "1_Pooling" / "config.json"
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Pooling("mean")
    # Older versions write a flag for each way, newer ones its name.
    flags = [name.removeprefix("pooling_mode_") for name, on in said.items() if name.startswith("pooling_mode_") and on]
    modes = [str(said["pooling_mode"])] if "pooling_mode" in said else flags
    modes = [mode.removesuffix("_tokens").removesuffix("_token") for mode in modes]
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise InputError(
            f"{model.name} makes one vector of a text by {' and '.join(modes) or 'a way that its folder does not name'}"
            f"; similarity: knows {', '.join(_POOLINGS)}. Give a function of the states instead."
        )
    return Pooling(_POOLINGS[modes[0]])


def similarity_to_ids(ids: Sequence[int]) -> str:
    """The similarity to a text that is known by its token ids, in the words that `find_outcome` takes."""
    return f"similarity-ids:{' '.join(map(str, ids))}"


def similarity(trace: "Trace", other: str | list[int]) -> Outcome:
    """The cosine with another text, given as words or as token ids."""
    if not other:
        raise InputError("similarity: was given without a text; expected similarity:TEXT.")
    model = trace.model
    assert model is not None
    pooling, stream = _pooling(model), trace.main.name
    if not trace.main.hidden_states:
        raise InputError(f"{model.name} shows no hidden states, and so no similarity of texts.")
    batch = encode(model, [other], targets=[None])
    if trace.main.ids is not None and trace.main.ids in {label.ids for label in batch.labels[0].values()}:
        warnings.warn(
            "the second text has the same tokens: the cosine is as large as it can be, so that its derivative is zero,"
            " and what methods make of that is rounding. Only those that change the text (occlusion, shapley,"
            " kernel_shap) say something.",
            stacklevel=2,
        )
    with torch.no_grad():
        fixed = pooling.of(Seen(forward(twin(model), batch.arguments)), stream).double()

    def of(seen: Seen) -> Tensor:
        here = pooling.of(seen, stream).double()
        return torch.nn.functional.cosine_similarity(here, fixed.to(here.device), dim=-1)

    how = "mean state" if pooling.how == "mean" else f"{pooling.how} token's state"
    words = other if isinstance(other, str) else " ".join(map(shown_token, token_names(model, other)))
    short = words if len(words) <= 60 else f"{words[:57]}…"
    return Outcome(f"cosine of the {how} with that of {short!r}", "cosine", of, trace)


def loss(trace: "Trace") -> Outcome:
    """Mean cross-entropy of each next token of the text, in nats."""
    stream, logits, model = trace.streams.get("decoder", trace.main), trace.logits, trace.model
    assert model is not None
    causal = any(site.kind == "decoder-self" and site.query_stream == stream.name for site in trace.sites)
    if logits is None or logits.dim() != 2 or not causal or not is_vocabulary(model, logits):
        raise InputError(f"{model.name} predicts no next tokens, and so has no loss of them; give another outcome.")
    if stream.ids is None or len(stream.ids) < 2:
        raise InputError("the loss of the next token was asked for; the text has fewer than two tokens.")
    wanted = torch.tensor(stream.ids[1:])

    def of(seen: Seen) -> Tensor:
        rows = seen.forward.logits
        assert rows is not None
        if seen.kept is not None:
            raise InputError("the loss of the next token is of whole texts; with tokens deleted it is another text's.")
        ids = wanted.to(rows.device)
        return torch.stack([torch.nn.functional.cross_entropy(row[:-1].float(), ids).double() for row in rows])

    return Outcome("mean loss of the next token", "nats", of, trace)
