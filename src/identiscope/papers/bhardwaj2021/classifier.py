"""A text classifier around identifiable attention that starts from nothing: own words, own weights, one file."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from identiscope.capture import Model, load
from identiscope.capture.tokenizing import tokenize
from identiscope.errors import InputError
from identiscope.methods.structure.identifiable_attention import Combine, IdentifiableSelfAttention
from identiscope.papers.memory import check_memory
from identiscope.papers.module_files import load_module, save_module

FORMAT = "identiscope-classifier-1"
PADDING, UNKNOWN = 0, 1
MOST_LAYERS = 1000
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class WordTokenizer:
    """Lower-case words and signs of punctuation, each an id; called as transformers' tokenizers are.

    >>> WordTokenizer(("cat", "the"))("The dog.")["input_ids"]
    [3, 1, 1]
    """

    words: tuple[str, ...]
    pad_token_id: int = PADDING
    padding_side: str = "right"
    is_fast: bool = True

    @property
    def all_special_ids(self) -> tuple[int, ...]:
        """Ids that stand for no word of the text."""
        return (PADDING,)

    @property
    def size(self) -> int:
        """How many ids: padding, unknown, and the words."""
        return len(self.words) + 2

    def __call__(
        self, *parts: str, truncation: bool = False, max_length: int | None = None, **_: Any
    ) -> dict[str, Any]:
        """Ids, special flags and character spans of one text."""
        if len(parts) != 1:
            raise InputError("this classifier reads one text at a time, not pairs; join the two texts into one.")
        matches = list(_WORD.finditer(parts[0]))[: max_length if truncation else None]
        return {
            "input_ids": [self._places.get(one.group().lower(), UNKNOWN) for one in matches],
            "special_tokens_mask": [0] * len(matches),
            "offset_mapping": [one.span() for one in matches],
        }

    @cached_property
    def _places(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words, 2)}

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        """The words of ids."""
        names = ("[PAD]", "[UNK]", *self.words)
        return [names[number] for number in ids]


def learn_words(texts: Iterable[str], *, least: int = 2) -> WordTokenizer:
    """The words that the texts have at least so often, the commonest first; ties in order of the alphabet."""
    counts = Counter(one.group().lower() for text in texts for one in _WORD.finditer(text))
    kept = sorted((word for word, count in counts.items() if count >= least), key=lambda word: (-counts[word], word))
    return WordTokenizer(tuple(kept))


@dataclass(frozen=True)
class ClassifierConfig:
    """Shape of a classifier. key_width and value_width: None is d/h, and d for the values of added heads."""

    vocabulary: int
    labels: int
    width: int = 64
    heads: int = 8
    layers: int = 1
    feed_forward: int = 128
    key_width: int | None = None
    value_width: int | None = None
    combine: Combine = "concatenate"
    dropout: float = 0.3
    longest: int = 256

    def __post_init__(self) -> None:
        least = (self.vocabulary, self.labels, self.width, self.heads, self.layers, self.feed_forward, self.longest)
        if min(least) < 1 or self.width % self.heads or self.layers > MOST_LAYERS:
            raise InputError(
                f"{self}: expected numbers of at least 1, heads that divide the width, and up to {MOST_LAYERS} layers."
            )

        width, keys = self.width, self.key_width or self.width // self.heads
        values = self.value_width or (self.width if self.combine == "add" else self.width // self.heads)
        of_layer = width * (2 * self.heads * (keys + values) + 2 * self.feed_forward)
        tables = width * (self.vocabulary + self.longest + self.labels)
        check_memory(16 * (tables + self.layers * of_layer), "a classifier of these sizes, while it is trained,")

    @property
    def max_position_embeddings(self) -> int:
        """The most tokens of a text. (So transformers calls it, and so capture asks.)"""
        return self.longest


class IdentifiableClassifier(nn.Module):
    """Words, sine positions, encoder layers with `IdentifiableSelfAttention`, their mean, one linear map.

    (A base class of torch's.)
    """

    main_input_name = "input_ids"

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width, padding_idx=PADDING)
        nn.init.normal_(self.embedding.weight, std=config.width**-0.5)
        self.register_buffer("positions", _sines(config.longest, config.width), persistent=False)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(_layer(config) for _ in range(config.layers))
        self.output = nn.Linear(config.width, config.labels)

    def get_input_embeddings(self) -> nn.Embedding:
        """The table of words. (So transformers calls it, and so capture asks.)"""
        return self.embedding

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Logits [batch, label] of ids [batch, n]; attention_mask is 1 at real tokens."""
        seen = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        positions: Tensor = self.get_buffer("positions")
        x = self.embedding(input_ids) * self.config.width**0.5 + positions[: input_ids.shape[1]]
        x = self.dropout(x)
        hidden = None if bool(seen.all()) else seen == 0
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=hidden)
        weight = seen.to(x.dtype)[..., None]
        pooled = (x * weight).sum(1) / weight.sum(1)
        logits: Tensor = self.output(self.dropout(pooled))
        return logits


def _layer(config: ClassifierConfig) -> nn.TransformerEncoderLayer:
    """torch's own layer, with the attention in its place exchanged."""
    layer = nn.TransformerEncoderLayer(
        config.width, config.heads, config.feed_forward, config.dropout, batch_first=True, norm_first=True
    )
    made: Any = IdentifiableSelfAttention(
        config.width,
        config.heads,
        key_width=config.key_width,
        value_width=config.value_width,
        combine=config.combine,
        dropout=config.dropout,
    )
    layer.self_attn = made
    return layer


def _sines(length: int, width: int) -> Tensor:
    """The positions of Vaswani et al. 2017, §3.5."""
    place = torch.arange(length)[:, None]
    rate = torch.exp(-math.log(10000) * torch.arange(0, width, 2) / width)
    angle = place * rate
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :width]


@dataclass(frozen=True, eq=False)
class Classifier:
    """A classifier with its words and the names of its labels.

    >>> identiscope.trace(classifier.model, "What county is Modesto in ?")
    """

    module: IdentifiableClassifier
    tokenizer: WordTokenizer
    labels: tuple[str, ...]

    @property
    def model(self) -> Model:
        """As `identiscope.trace` and every other function here takes it."""
        return load(self.module, self.tokenizer)

    @torch.no_grad()
    def classify(self, text: str) -> str:
        """The label of one text."""
        ids = tokenize(self.tokenizer, text, truncation=True, max_length=self.module.config.longest)["input_ids"]
        if not ids:
            raise InputError(f"the text {text!r} has no word.")
        return self.labels[int(self.module.eval()(torch.tensor([ids])).argmax())]


def save_classifier(classifier: Classifier, path: str | Path) -> Path:
    """Write a classifier to one safetensors file; its shape, words and labels are in the header."""
    about = {
        "config": asdict(classifier.module.config),
        "words": classifier.tokenizer.words,
        "labels": classifier.labels,
    }
    return save_module(classifier.module, path, FORMAT, about)


def load_classifier(path: str | Path) -> Classifier:
    """Read a classifier that `save_classifier` wrote."""

    def build(about: dict[str, Any]) -> IdentifiableClassifier:
        config = ClassifierConfig(**about["config"])
        for name, count in (("words", config.vocabulary - 2), ("labels", config.labels)):
            names = about[name]
            if not isinstance(names, list) or len(names) != count or not all(isinstance(one, str) for one in names):
                raise InputError(f"its {name} are not {count} names")
        return IdentifiableClassifier(config)

    module, about = load_module(path, FORMAT, "a classifier of this kind", build)
    return Classifier(module, WordTokenizer(tuple(about["words"])), tuple(about["labels"]))
