"""A tiny random model with a tokenizer, in a directory: what tests of corpora run on."""

from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from families import VOCABULARY

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = (".", ",", *(f"w{number}" for number in range(VOCABULARY - len(SPECIAL) - 2)))


def tokenizer() -> Any:
    """Words w0, w1, … and full stop and comma; control characters are no tokens at all."""
    known = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    made = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]",
    )  # fmt: skip


def save_tiny(folder: Path, architecture: str = "BertModel", **options: Any) -> Path:
    """A model of two layers and four heads of eight channels, with its tokenizer."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "max_position_embeddings": 64,
    }  # fmt: skip
    model = getattr(transformers, architecture)
    made = model(model.config_class(**(sizes | options)))
    with torch.no_grad():
        # As initialised, attention is nearly uniform.
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.mul_(6)
    made.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def words(count: int, seed: int = 0) -> str:
    """A text of so many words, with a comma and a full stop in it."""
    generator = torch.Generator().manual_seed(1000 * seed + count)
    chosen = torch.randint(len(WORDS) - 2, (count,), generator=generator).tolist()
    text = [f"w{number}" for number in chosen]
    if count > 3:
        text[count // 2], text[-1] = ",", "."
    return " ".join(text)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
