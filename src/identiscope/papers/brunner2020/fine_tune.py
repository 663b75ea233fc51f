"""Fine-tune a model on labelled text, to have a second checkpoint to compare with (appendix B.4)."""

import copy
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from identiscope.capture.forward import forward
from identiscope.capture.inputs import encode
from identiscope.capture.models import Model
from identiscope.corpus.readers import Text
from identiscope.corpus.splits import nearest_start, together
from identiscope.errors import InputError
from identiscope.files import filling, make_directory, printable, write_file
from identiscope.linalg.devices import on_cpu
from identiscope.progress import Progress, tell


@dataclass(frozen=True)
class FineTuned:
    """The checkpoint written, its labels in the order of the head's outputs, and how it did on held-out texts."""

    directory: Path
    labels: tuple[str, ...]
    losses: tuple[float, ...]
    accuracy: float
    held_out: int


def fine_tune(
    model: Model,
    texts: Sequence[Text],
    directory: str | Path,
    *,
    epochs: int = 3,
    learning_rate: float = 2e-5,
    batch_size: int = 32,
    held_out: float = 0.1,
    token: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> FineTuned:
    """Train a copy of the model to tell the texts' labels apart by one token of its last layer, and save it.

    token: "first", such as [CLS], or "last", which is all a causal model allows; by default the first if the
    tokenizer has a [CLS]. The classifying layer is a linear map, saved beside the model as head.safetensors.
    held_out: the share of texts kept to measure accuracy, repeats of a text all or none. The same seed gives the
    same checkpoint.
    """
    labels = tuple(sorted({text.label for text in texts if text.label is not None}))
    if len(labels) < 2 or any(text.label is None for text in texts):
        raise InputError(f"fine-tuning needs a label for every text, of two kinds at least; given {list(labels)}.")
    if token not in (None, "first", "last") or not hasattr(model.module, "save_pretrained") or epochs < 1:
        raise InputError(f"fine-tuning needs a transformers model, token first or last (given {token}) and an epoch.")
    directory = make_directory(directory)
    if any(directory.iterdir()):
        raise InputError(f"{printable(directory)} is not empty; name a new directory for the checkpoint.")
    first = token == "first" or (token is None and getattr(model.tokenizer, "cls_token", None) is not None)
    tuned = Model(copy.deepcopy(model.module), model.tokenizer, str(directory))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # Equal texts stand on one side.
        order, starts = together(torch.randperm(len(texts)), [text.parts for text in texts])
        kept = nearest_start(torch.cat([starts[1:], torch.tensor([len(texts)])]), round(held_out * len(texts)))
        test, train = order[:kept].tolist(), order[kept:].tolist()
        if not train:
            raise InputError(f"{len(texts)} texts with {kept} held out leave none to train on.")
        head = _head(tuned, texts[test[0]], len(labels), first)
        losses = _train(tuned, head, texts, train, labels, first, epochs, learning_rate, batch_size, progress)
    right = 0
    tuned.module.eval()
    with torch.no_grad():
        for begin in range(0, len(test), batch_size):
            part = [texts[index] for index in test[begin : begin + batch_size]]
            right += int((head(_summary(tuned, part, first)).argmax(1).cpu() == _goals(part, labels)).sum())
    saved: Any = tuned.module
    weights = {name: on_cpu(weight).contiguous() for name, weight in head.named_parameters()}
    about = {"labels": "\t".join(labels), "token": "first" if first else "last"}
    with filling(directory) as aside:
        with redirect_stderr(StringIO()):  # transformers draws a bar there, terminal or not
            saved.save_pretrained(aside)
        model.tokenizer.save_pretrained(aside)
        write_file(aside / "head.safetensors", save(weights, metadata=about))
    return FineTuned(directory, labels, tuple(losses), right / len(test), len(test))


def _head(model: Model, text: Text, outputs: int, first: bool) -> nn.Linear:
    with torch.no_grad():
        summary = _summary(model, [text], first)
    head = nn.Linear(summary.shape[1], outputs)
    nn.init.normal_(head.weight, std=0.02)
    nn.init.zeros_(head.bias)
    # Drawn on the CPU, so that the weights are the same on every device.
    return head.to(summary)


def _train(
    model: Model,
    head: nn.Linear,
    texts: Sequence[Text],
    train: list[int],
    labels: tuple[str, ...],
    first: bool,
    epochs: int,
    learning_rate: float,
    batch_size: int,
    progress: Progress | None,
) -> list[float]:
    """AdamW with a linear decline of the learning rate; the mean loss of each epoch."""
    trainable = [weight for weight in (*model.module.parameters(), *head.parameters()) if weight.requires_grad]
    optimiser = torch.optim.AdamW(trainable, lr=learning_rate)
    steps = epochs * -(-len(train) // batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: max(0.0, 1 - step / steps))
    model.module.train()
    losses, done = [], 0
    for epoch in range(epochs):
        order = [train[index] for index in torch.randperm(len(train)).tolist()]
        total = 0.0
        for begin in range(0, len(order), batch_size):
            part = [texts[index] for index in order[begin : begin + batch_size]]
            scores = head(_summary(model, part, first))
            loss = nn.functional.cross_entropy(scores, _goals(part, labels).to(scores.device))
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(trainable, 1.0)
            optimiser.step()
            schedule.step()
            total += float(loss.detach()) * len(part)
            done += 1
            words = f"epoch {epoch + 1} of {epochs}, loss {total / (begin + len(part)):.3f}"
            tell(progress, words, done, steps)
        losses.append(total / len(order))
    return losses


def _summary(model: Model, texts: Sequence[Text], first: bool) -> Tensor:
    """The last layer's state of the first or last token of each text, [text, channel]."""
    batch = encode(model, [text.given for text in texts], targets=[None] * len(texts), truncate=True)
    states = forward(model, batch.arguments).hidden_states
    stream = next(name for name in ("encoder", "tokens", "text") if name in states)
    places = [labels[stream].positions[0 if first else -1] for labels in batch.labels]
    return states[stream][-1][torch.arange(len(texts)), torch.tensor(places)]


def _goals(texts: Sequence[Text], labels: tuple[str, ...]) -> Tensor:
    return torch.tensor([labels.index(text.label or "") for text in texts])
