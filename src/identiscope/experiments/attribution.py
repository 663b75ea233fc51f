"""Hidden Token Attribution of models and texts: labelled results, and the figures of section 5 and appendix C."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from identiscope.analysis.attention import factored_attention
from identiscope.capture import Trace, load, trace
from identiscope.capture.blocks import find_blocks
from identiscope.errors import InputError
from identiscope.experiments.attribution_results import as_result, resumed, with_tokens
from identiscope.linalg.jacobian_blocks import Blocks
from identiscope.methods.attribution_tags import TaggedWord, tags_of_tokens
from identiscope.methods.hidden_token_attribution import (
    DEFAULT_MEMORY,
    Mode,
    NormName,
    Progress,
    hidden_token_attribution,
)

#: The words of a text's part with their tags, from any tagger.
Tagger = Callable[[str], Sequence[TaggedWord]]


def attribution(
    model: Any,
    text: Any,
    *,
    target: Any = None,
    truncate: bool = False,
    stream: str | None = None,
    layers: Sequence[int] | None = None,
    norm: NormName = "frobenius",
    input: str = "embeddings",
    mode: Mode = "exact",
    probes: int | None = None,
    tolerance: float | None = None,
    seconds: float | None = None,
    seed: int = 0,
    memory: int = DEFAULT_MEMORY,
    fast: bool = True,
    resume: xr.Dataset | None = None,
    progress: Progress | None = None,
) -> xr.Dataset:
    """How much each input token contributes to each hidden embedding of a text (eq. 11).

    >>> result = attribution("minilm", "The cat sat on the mat.", mode="estimate", probes=16)
    >>> result.contribution.sel(layer=6, output=2)   # what the last layer's `cat` is made of

    model, text, target, truncate: as for `identiscope.trace`; text may be a Trace that was made before, or model a
    replay (any function from embeddings to hidden states) and text its embeddings. The
    result has `contribution` [layer, input, output], `norm`, and their standard errors `contribution_error` and
    `norm_error`, which are zero in exact mode. Layer l is the output of the l-th block, and the last is after
    the final norm, as in transformers' hidden states. stream: which hidden states; for an encoder–decoder
    those of the decoder, whose inputs are the tokens of the encoder and then those of the decoder.
    input: "embeddings", what the first layer reads, or "embedding_sum", the sum of token, segment and position
    embeddings before the norm that BERT has there. mode, norm, layers, probes, tolerance, seconds, seed, memory,
    progress: see `hidden_token_attribution`. fast: use the model's blocks where they are recognised and verified.
    resume: a result that was interrupted, or an estimate to continue.
    """
    if isinstance(text, Tensor) and callable(model) and not isinstance(model, torch.nn.Module):
        # A replay, or any function from embeddings [n, d] to hidden states: there are no tokens to name.
        return as_result(
            hidden_token_attribution(
                model,
                text,
                layers=layers,
                norm=norm,
                mode=mode,
                probes=probes,
                tolerance=tolerance,
                seconds=seconds,
                seed=seed,
                memory=memory,
                progress=progress,
                resume=None if resume is None else resumed(resume),
            )
        )
    traced = text if isinstance(text, Trace) else trace(load(model), text, target=target, truncate=truncate)
    if isinstance(traced, list):
        raise InputError("several texts were given; call attribution_of_texts, or give one.")
    setting = _setting(traced, stream, input)
    blocks, reason = _blocks(traced, setting, fast)
    found = hidden_token_attribution(
        setting.replay, setting.inputs, layers=layers, norm=norm, mode=mode, probes=probes, tolerance=tolerance,
        seconds=seconds, seed=seed, memory=memory, blocks=blocks, progress=progress,
        resume=None if resume is None else resumed(resume),
    )  # fmt: skip
    return with_tokens(
        as_result(found),
        inputs=setting.input_tokens,
        outputs=setting.output_tokens,
        special=setting.output_special,
        provenance={
            "model": "" if traced.model is None else traced.model.name,
            "stream": setting.stream,
            "input": input,
            "path": "blocks" if blocks is not None else "replay",
            "why_replay": reason,
            "cut": traced.main.cut,
        },
    )


def attribution_of_texts(
    model: Any, texts: Sequence[Any], *, progress: Progress | None = None, **options: Any
) -> list[xr.Dataset]:
    """`attribution` of each text, in order; an interrupt returns those that are done.

    progress is called with (texts done, texts in all).
    """
    loaded, results = load(model), []
    for number, text in enumerate(texts):
        result = attribution(loaded, text, **options)
        if not result.attrs["complete"]:
            break
        results.append(result)
        if progress is not None:
            progress(number + 1, len(texts))
    return results


@dataclass(frozen=True, eq=False)
class _Setting:
    """What is differentiated: inputs [input, model] and the function from them to the states of one stream."""

    stream: str
    inputs: Tensor
    replay: Callable[[Tensor], Sequence[Tensor]]
    input_tokens: tuple[str, ...]
    output_tokens: tuple[str, ...]
    output_special: tuple[bool, ...]
    summed: bool
    alone: bool


def _setting(traced: Trace, stream: str | None, input: str) -> _Setting:
    if input not in ("embeddings", "embedding_sum"):
        raise InputError(f"input {input!r} was asked for; there are embeddings and embedding_sum.")
    names = list(traced.streams)
    chosen = stream or ("decoder" if "decoder" in names else names[0])
    if chosen not in names:
        raise InputError(f"stream {chosen!r} was asked for; this model has {', '.join(names)}.")
    summed = input == "embedding_sum"
    read = ["encoder", "decoder"] if chosen == "decoder" and "encoder" in names else [chosen]
    parts = [traced.streams[name] for name in read]
    given = [part.embedding_sum if summed and part.embedding_sum is not None else part.embeddings for part in parts]
    widths = {part.shape[1] for part in given}
    if len(widths) > 1:
        raise InputError(f"encoder and decoder have embeddings of widths {sorted(widths)}; one width is needed.")
    lengths, replay = [len(part) for part in given], traced.replay

    def states(x: Tensor) -> Sequence[Tensor]:
        pieces = dict(zip(read, x.split(lengths), strict=True))
        return replay(pieces, summed=summed)[chosen]

    return _Setting(
        stream=chosen,
        inputs=torch.cat([part.detach() for part in given]),
        replay=states,
        input_tokens=tuple(token for part in parts for token in part.tokens),
        output_tokens=parts[-1].tokens,
        output_special=parts[-1].special,
        summed=summed,
        alone=len(read) == 1,
    )


def _blocks(traced: Trace, setting: _Setting, fast: bool) -> tuple[Blocks | None, str]:
    if not fast:
        return None, "not asked for"
    if not setting.alone:
        return None, "several streams"
    found = find_blocks(traced, setting.stream, summed=setting.summed)
    return found.blocks, found.reason


def token_tags(
    traced: Trace, words: Sequence[Sequence[TaggedWord]] | Tagger, parts: Sequence[str] | None = None
) -> list[str | None]:
    """The part-of-speech tag of every token of a text; word pieces inherit their word's.

    words: (start, end, tag) of the words of each part of the text, as `corpus.readers` gives them from CoNLL-U;
    or a function from a text to those, with the `parts` it is to tag.
    """
    stream = traced.main
    if stream.offsets is None:
        raise InputError("the tokenizer gives no character offsets, which tags need; use a fast tokenizer.")
    if callable(words):
        if parts is None:
            raise InputError("a tagger needs the text: give parts=[text], or two for a pair.")
        words = [words(part) for part in parts]
    return tags_of_tokens(stream.tokens, stream.offsets, stream.special, words)


def attention_maps(traced: Trace, layers: Sequence[int], stream: str | None = None) -> dict[str, np.ndarray[Any, Any]]:
    """Raw and effective attention averaged over heads, [layer, query, key], of the blocks that end in these layers."""
    maps: dict[str, list[Tensor]] = {"raw": [], "effective": []}
    for layer in layers:
        maps["raw"].append(traced.site(layer - 1, stream=stream).attentions().mean(0).double())
        maps["effective"].append(factored_attention(traced, layer - 1, stream=stream).dense().mean(0))
    return {name: torch.stack(parts).numpy() for name, parts in maps.items()}
