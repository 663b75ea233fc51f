"""Small causal models made here, with a tokenizer of whole words: to be filled by hand, or trained."""

from collections.abc import Sequence
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from identiscope.capture.models import Model

#: The special tokens of such a model: one that says nothing, and padding.
MASK, PADDING = "<mask>", "<pad>"


def blank_model(
    words: Sequence[str],
    *,
    width: int,
    layers: int,
    heads: int,
    positions: int,
    epsilon: float = 1e-5,
    seed: int | None = None,
    name: str = "planted",
) -> Model:
    """A GPT-2 over these words: all weights zero and norms one, or drawn by a seed.

    The words are known by their numbers, after `<pad>` and `<mask>`. Input and output embeddings are apart.

    >>> blank_model(["a", "b"], width=8, layers=1, heads=2, positions=4)
    Model('planted', GPT2LMHeadModel, 992 parameters, float32)
    """
    known = {word: number for number, word in enumerate((PADDING, MASK, *words))}
    config = transformers.GPT2Config(
        vocab_size=len(known), n_positions=positions, n_embd=width, n_layer=layers, n_head=heads,
        activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, layer_norm_epsilon=epsilon,
        tie_word_embeddings=False, bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0 if seed is None else seed)
        module = transformers.GPT2LMHeadModel(config).eval()
    if seed is None:
        with torch.no_grad():
            for part, weight in module.named_parameters():
                weight.fill_(1.0 if "ln_" in part and part.endswith("weight") else 0.0)
    return Model(module, word_tokenizer(known), name)


def word_tokenizer(known: dict[str, int]) -> Any:
    """A tokenizer of words between blanks."""
    made = Tokenizer(models.WordLevel(known, unk_token=MASK))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token=PADDING, mask_token=MASK)
