"""What a reproduction of Brunner et al. (2020) is given: data, a budget, and whether numbers can be compared."""

from dataclasses import dataclass, field

from identiscope.capture import Model
from identiscope.corpus.readers import Text
from identiscope.papers.judging import FEWEST_TEXTS
from identiscope.papers.untrained import NULL_PAIRS, NULL_TEXTS


@dataclass(frozen=True)
class Budget:
    """How much is computed: texts of each kind, probes of an attribution, folds and kinds of token probes, epochs.

    null_texts and null_pairs: on how many texts claims are judged of an untrained model too; 0: they are not.
    """

    wiki: int | None = None
    pairs: int | None = None
    attributed: int | None = None
    probes: int = 16
    folds: int = 10
    mlp: bool = True
    mlp_folds: int = 1
    offsets: tuple[int, ...] = (-3, -2, -1, 1, 2, 3)
    epochs: int = 3
    null_texts: int = NULL_TEXTS
    null_pairs: int = NULL_PAIRS


#: Hours for a small model, most of them for the MLPs; and minutes. Token probes take most of these: what an untrained
#: model says of their claims is left to the full budget.
FULL = Budget()
QUICK = Budget(
    wiki=40, pairs=100, attributed=8, probes=8, folds=2, mlp=False, offsets=(-2, -1, 1, 2), epochs=1,
    null_texts=FEWEST_TEXTS, null_pairs=0,
)  # fmt: skip


@dataclass(frozen=True)
class Data:
    """The texts: sentence pairs with labels (MRPC), passages (Wikipedia), and what else is at hand.

    names: what to call them, where they are not what the paper used: {"MRPC": "my pairs"}.
    """

    mrpc: list[Text] | None = None
    wiki: list[Text] | None = None
    cola: list[Text] | None = None
    mnli: list[Text] | None = None
    pos: list[Text] | None = None
    names: dict[str, str] = field(default_factory=dict)


def is_bert_base(model: Model) -> bool:
    """Whether published numbers may be expected of this model."""
    config = model.config
    wanted = {"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12, "vocab_size": 30522}
    return all(getattr(config, name, None) == value for name, value in wanted.items())
