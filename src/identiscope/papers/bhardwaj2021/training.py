"""Train one classifier, and see how it does: the best epoch on held-out texts, every random number from the seed."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from identiscope.errors import InputError
from identiscope.papers.bhardwaj2021.classifier import (
    PADDING,
    ClassifierConfig,
    IdentifiableClassifier,
    WordTokenizer,
)
from identiscope.progress import Progress, tell


@dataclass(frozen=True)
class TrainingRecipe:
    """Adam with decay, the learning rate falling to zero; of all epochs the one that is best on validation texts."""

    epochs: int = 12
    batch_size: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1 or self.learning_rate <= 0 or self.weight_decay < 0:
            raise InputError(f"{self}: expected an epoch, a text in a batch, a rate above 0 and a decay of at least 0.")


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts as ids with the number of each one's label; `cut` counts tokens beyond the longest that is read."""

    ids: tuple[Tensor, ...]
    goals: Tensor
    cut: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, chosen: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Ids and mask [batch, n], padded on the right, and goals [batch]."""
        rows = [self.ids[number] for number in chosen]
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PADDING)
        lengths = torch.tensor([len(row) for row in rows])
        return ids, (torch.arange(ids.shape[1]) < lengths[:, None]).long(), self.goals[list(chosen)]


def texts_of(
    tokenizer: WordTokenizer, labels: Sequence[str], texts: Sequence[tuple[str, str]], *, longest: int = 256
) -> Texts:
    """(text, label) pairs as ids and numbers of labels."""
    rows, cut = [], 0
    for text, label in texts:
        if label not in labels:
            raise InputError(f"the label {label!r} of {text[:60]!r} is not among those of training, {list(labels)}.")
        ids = tokenizer(text)["input_ids"]
        if not ids:
            raise InputError(f"the text {text!r} has no word.")
        cut += max(0, len(ids) - longest)
        rows.append(torch.tensor(ids[:longest]))
    return Texts(tuple(rows), torch.tensor([list(labels).index(label) for _, label in texts]), cut)


@dataclass(frozen=True, eq=False)
class Trained:
    """A classifier at its best epoch (from 1), with mean training loss and validation accuracy of every epoch."""

    module: IdentifiableClassifier
    best_epoch: int
    losses: tuple[float, ...]
    validation: tuple[float, ...]


def train_classifier(
    config: ClassifierConfig,
    train: Texts,
    validation: Texts,
    *,
    recipe: TrainingRecipe | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Trained:
    """Train one classifier. The same seed gives the same weights, and leaves torch's own generator as it was."""
    if not len(train) or not len(validation):
        raise InputError(f"{len(train)} texts to train on and {len(validation)} to choose by; expected some of both.")
    recipe = TrainingRecipe() if recipe is None else recipe
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _train(IdentifiableClassifier(config), train, validation, recipe, progress)


def _train(
    module: IdentifiableClassifier,
    train: Texts,
    validation: Texts,
    recipe: TrainingRecipe,
    progress: Progress | None,
) -> Trained:
    optimiser = torch.optim.AdamW(module.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    steps = recipe.epochs * -(-len(train) // recipe.batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / steps)
    best, best_epoch, done = copy.deepcopy(module.state_dict()), 0, 0
    losses: list[float] = []
    accuracies: list[float] = []
    for epoch in range(1, recipe.epochs + 1):
        module.train()
        total = 0.0
        for chosen in _batches(train, recipe.batch_size):
            ids, mask, goals = train.batch(chosen)
            loss = nn.functional.cross_entropy(module(ids, mask), goals)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            total += float(loss.detach()) * len(goals)
            done += 1
            tell(progress, f"epoch {epoch} of {recipe.epochs}", done, steps)
        losses.append(total / len(train))
        accuracies.append(float(answers(module, validation).mean()))
        # The first of equals: a later epoch must be better to be taken.
        if best_epoch == 0 or accuracies[-1] > max(accuracies[:-1]):
            best, best_epoch = copy.deepcopy(module.state_dict()), epoch
    module.load_state_dict(best)
    return Trained(module.eval(), best_epoch, tuple(losses), tuple(accuracies))


def _batches(texts: Texts, size: int, pool: int = 32) -> list[list[int]]:
    """Random batches, in random order, of texts of like length: sorted within pools of `pool` batches, less padding."""
    order = torch.randperm(len(texts)).tolist()
    batches = []
    for begin in range(0, len(order), pool * size):
        near = sorted(order[begin : begin + pool * size], key=lambda number: len(texts.ids[number]))
        batches += [near[first : first + size] for first in range(0, len(near), size)]
    return [batches[number] for number in torch.randperm(len(batches)).tolist()]


@torch.no_grad()
def answers(module: IdentifiableClassifier, texts: Texts, *, batch_size: int = 256) -> np.ndarray:
    """Whether each text gets its label, [text], without dropout."""
    module.eval()
    # Texts of like length together: less padding.
    order = sorted(range(len(texts)), key=lambda number: len(texts.ids[number]))
    right = np.zeros(len(texts), dtype=bool)
    for begin in range(0, len(order), batch_size):
        chosen = order[begin : begin + batch_size]
        ids, mask, goals = texts.batch(chosen)
        right[chosen] = (module(ids, mask).argmax(1) == goals).numpy()
    return right
