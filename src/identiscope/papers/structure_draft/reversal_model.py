"""A sequence model with attention that is no transformer: two LSTM layers that learn to reverse a sequence.

The draft's section V: an encoder and a decoder LSTM, attention of the decoder's outputs over the encoder's outputs, a
dense output layer, one-hot tokens, length 20. The draft gives no vocabulary and no width, and trains for 150 epochs on
a data set of unknown size. Here: 20 tokens, width 64, and fresh random sequences in every step, of which a thousand
steps (seconds) give an accuracy above 0.99. With 10 tokens some seeds end with the antidiagonal *shifted by one*: the
encoder's state one position later still holds the token, so that it may as well be read there.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from identiscope.errors import InputError
from identiscope.papers.memory import check_memory
from identiscope.papers.module_files import load_module, save_module
from identiscope.progress import Progress, tell

FORMAT = "identiscope-reversal-1"


@dataclass(frozen=True)
class ReversalConfig:
    """How long the sequences are, how many tokens there are, and how wide both LSTM layers are."""

    length: int = 20
    vocabulary: int = 20
    width: int = 64

    def __post_init__(self) -> None:
        if self.length < 2 or self.vocabulary < 2 or self.width < 1:
            raise InputError(
                f"{self}: expected at least two positions, two tokens and a width of one; nothing else can be reversed."
            )

    @property
    def is_encoder_decoder(self) -> bool:
        """Two sequences: what is read, and what is written. (So transformers calls it, and so capture asks.)"""
        return True


class CrossAttention(nn.Module):
    """Luong's general attention: softmax(W·decoder · encoder / √d) over the encoder's outputs. (torch's base class.)"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)

    def forward(self, decoded: Tensor, encoded: Tensor) -> Tensor:
        """[batch, query, width] and [batch, key, width] to the context [batch, query, width]."""
        return nn.functional.scaled_dot_product_attention(self.query(decoded), encoded, encoded)


class ReversalModel(nn.Module):
    """Encoder LSTM, decoder LSTM, attention after the decoder, dense output. (A base class of torch's.)

    >>> identiscope.trace(model, reversal_inputs(model, ids))

    The decoder reads a start token and then the tokens written so far. Attention comes after it (Luong et al. 2015), so
    that all steps attend in one call and no step's attention changes what a later one reads. The dense layer over
    [context, decoder output] is written as the sum of its two halves: the half over the context is then this head's H.
    """

    def __init__(self, config: ReversalConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = nn.LSTM(config.vocabulary, config.width, batch_first=True)
        self.decoder = nn.LSTM(config.vocabulary + 1, config.width, batch_first=True)
        self.cross_attention = CrossAttention(config.width)
        self.output_of_context = nn.Linear(config.width, config.vocabulary)
        self.output_of_decoder = nn.Linear(config.width, config.vocabulary, bias=False)

    @property
    def start(self) -> int:
        """The token that the decoder reads first; it is never written."""
        return self.config.vocabulary

    def encode(self, input_ids: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The encoder's outputs [batch, n, width], and its last state, with which the decoder begins."""
        if input_ids.numel() and not 0 <= int(input_ids.min()) <= int(input_ids.max()) < self.config.vocabulary:
            raise InputError(
                f"token ids from {int(input_ids.min())} to {int(input_ids.max())} were given; this model knows 0 to"
                f" {self.config.vocabulary - 1}."
            )
        encoded, state = self.encoder(self._one_hot(input_ids, self.config.vocabulary))
        return encoded, state

    def decode(
        self, decoder_input_ids: Tensor, encoded: Tensor, state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Logits [batch, n, vocabulary] of the next tokens, and the decoder's state after them."""
        decoded, state = self.decoder(self._one_hot(decoder_input_ids, self.config.vocabulary + 1), state)
        context = self.cross_attention(decoded, encoded)
        return self.output_of_context(context) + self.output_of_decoder(decoded), state

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor) -> Tensor:
        """Logits [batch, n, vocabulary] of the reversed sequence, given what the decoder has read."""
        return self.decode(decoder_input_ids, *self.encode(input_ids))[0]

    def _one_hot(self, ids: Tensor, size: int) -> Tensor:
        return nn.functional.one_hot(ids, size).to(self.output_of_context.weight.dtype)


def reversal_samples(config: ReversalConfig, count: int, *, seed: int) -> Tensor:
    """Random sequences [count, length], every token equally likely at every position."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(config.vocabulary, (count, config.length), generator=generator)


@torch.no_grad()
def write_reversed(model: ReversalModel, ids: Tensor) -> Tensor:
    """What the model writes [batch, n] for sequences [batch, n], each step reading the token of the step before."""
    encoded, state = model.encode(ids)
    token = torch.full((len(ids), 1), model.start)
    written = []
    for _ in range(ids.shape[1]):
        logits, state = model.decode(token, encoded, state)
        token = logits.argmax(-1)
        written.append(token)
    return torch.cat(written, 1)


def reversal_inputs(model: ReversalModel, ids: Tensor) -> dict[str, Tensor]:
    """Sequences [batch, n], or one [n], as `identiscope.trace` takes them, with what the model itself wrote.

    All steps run in one call on what free writing would have read, so the attention is that of free writing.
    """
    rows = ids if ids.dim() == 2 else ids[None]
    written = write_reversed(model, rows)
    start = torch.full((len(rows), 1), model.start)
    return {"input_ids": rows, "decoder_input_ids": torch.cat([start, written[:, :-1]], 1)}


def untrained_reversal(config: ReversalConfig | None = None, *, seed: int = 0) -> ReversalModel:
    """A model with the weights that training begins from."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ReversalModel(ReversalConfig() if config is None else config).eval()


def train_reversal(
    config: ReversalConfig | None = None,
    *,
    steps: int = 1000,
    batch_size: int = 64,
    learning_rate: float = 5e-3,
    seed: int = 0,
    progress: Progress | None = None,
) -> ReversalModel:
    """Train a model to reverse: Adam, the learning rate falling to zero, fresh sequences in every step.

    The decoder is given the right tokens while it trains. The same seed gives the same model.
    """
    if steps < 1 or batch_size < 1 or learning_rate <= 0:
        raise InputError(
            f"{steps} steps of {batch_size} sequences at learning rate {learning_rate} were asked for; expected at"
            " least one of each, and a rate above 0."
        )
    config = ReversalConfig() if config is None else config
    _check_size(config, batch_size)
    generator = torch.Generator().manual_seed(seed)
    model = untrained_reversal(config, seed=seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / steps)
    start = torch.full((batch_size, 1), model.start)
    for step in range(1, steps + 1):
        ids = torch.randint(config.vocabulary, (batch_size, config.length), generator=generator)
        goal = ids.flip(1)
        logits = model(ids, torch.cat([start, goal[:, :-1]], 1))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), goal.flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if progress is not None:
            tell(progress, f"loss {float(loss.detach()):.3f}", step, steps)
    return model.eval()


def _check_size(config: ReversalConfig, sequences: int) -> None:
    """Weights with what Adam keeps of them, and what a step keeps for its gradient, in float32."""
    length, tokens, width = config.length, config.vocabulary, config.width
    weights = 8 * width * (tokens + 2 * width) + width * (width + 2 * tokens)
    of_step = sequences * length * (4 * tokens + 24 * width + 2 * length)
    sizes = f"{sequences} sequences of {length} of {tokens} tokens, at width {width},"
    check_memory(4 * (4 * weights + of_step), sizes)


@dataclass(frozen=True)
class ReversalAccuracy:
    """Share of tokens, and of whole sequences, that the model writes right on sequences it has not seen."""

    tokens: float
    sequences: float
    samples: int


def reversal_accuracy(model: ReversalModel, *, samples: int = 1000, seed: int) -> ReversalAccuracy:
    """Free writing, each step reading what the model itself wrote; never the right answer."""
    _check_size(model.config, samples)
    ids = reversal_samples(model.config, samples, seed=seed)
    right = write_reversed(model, ids) == ids.flip(1)
    return ReversalAccuracy(float(right.double().mean()), float(right.all(1).double().mean()), samples)


def save_reversal(model: ReversalModel, path: str | Path) -> Path:
    """Write the model to one safetensors file; its configuration is in the header."""
    return save_module(model, path, FORMAT, {"config": asdict(model.config)})


def load_reversal(path: str | Path) -> ReversalModel:
    """Read a model that `save_reversal` wrote."""

    def build(about: dict[str, Any]) -> ReversalModel:
        return ReversalModel(ReversalConfig(**about["config"]))

    return load_module(path, FORMAT, "a reversal model", build)[0]
