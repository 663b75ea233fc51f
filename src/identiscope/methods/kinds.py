"""The kinds of methods: what a method of each kind gives, on which axes, and how it is called. Nothing is imported.

A kind owns what all its methods share. Here stand its axes and its common options; `ask.labels` names the axes,
`views.kinds` draws, tabulates and compares, `runs.compute.columns` makes columns of a Run, and the contract tests
demand what a kind promises. A method that needs a branch anywhere else shows that a kind is missing or wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """What all methods of a kind share.

    folder: of `methods/`, where their files are. axes: of what they give; a method may give several arrays, some with
    further axes; `output` is the place of a hidden token. scope: what the method is called with: the fields of one
    `layer` after the other, of one `head`, or of the whole `trace`. says: one sentence.
    run_axes: of its table in a Run, after `text`; none where it has no columns there. exact: its methods are given the
    raw map and the context and row sums of that map in float64, instead of those that the pass rounded.
    """

    name: str
    folder: str
    axes: tuple[str, ...]
    scope: str
    says: str
    run_axes: tuple[str, ...] = ()
    exact: bool = False


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("map", "maps", ("layer", "head", "query", "key"), "layer", "what a head moves from where to where",
             ("layer", "head"), exact=True),
        Kind("head", "heads", ("layer", "head"), "layer", "a few numbers for each head", ("layer", "head")),
        Kind("freedom", "freedom", ("cell",), "head", "what weights of a head may be, its output being what it is"),
        Kind("layer", "layers", ("layer", "head", "query", "key"), "layer",
             "what the heads of a layer may be together, its output being what it is"),
        Kind("mixture", "mixtures", ("layer", "output", "input"), "trace", "what a hidden token is made of",
             ("layer",)),
        Kind("score", "scores", ("input",), "trace", "what an outcome rests on"),
        Kind("prediction", "predictions", ("layer",), "trace",
             "what attention may be, the outcome of the running model being what it is", ("layer",)),
        Kind("token", "tokens", ("layer", "output"), "trace", "a few numbers for each hidden token",
             ("layer",)),
    )
}  # fmt: skip

#: The options that every method of a scope has, beside its own: name → annotation, default, help.
CHOICES: Mapping[str, Mapping[str, tuple[str, object, str]]] = {
    "layer": {
        "layers": ("Sequence[int] | None", None, "only these layers (blocks, from 0)"),
        "heads": ("Sequence[int] | None", None, "only these heads, from 0"),
        "attention": ("str | None", None, "which attention: encoder-self, decoder-self or cross"),
        "stream": ("str | None", None, "whose queries, if the model has several streams"),
    },
    "head": {
        "layer": ("int", ..., "the layer (block, from 0)"),
        "head": ("int", ..., "the head, from 0"),
        "attention": ("str | None", None, "which attention: encoder-self, decoder-self or cross"),
        "stream": ("str | None", None, "whose queries, if the model has several streams"),
    },
    "trace": {
        "layers": ("Sequence[int] | None", None, "only these layers (blocks, from 0)"),
        "stream": ("str | None", None, "whose tokens, if the model has several streams"),
    },
}
#: A field that may be one thing or another brings an option that says which: field → the option, as above.
OF_FIELDS: Mapping[str, Mapping[str, tuple[str, object, str]]] = {
    "value_bias": {
        "value_bias": ("bool", True, "leave the bias in the values; without it, T = E·W_V·H as in the paper"),
    },
    "embeddings": {
        "input": (
            'Literal["embeddings", "embedding_sum"]',
            "embeddings",
            "what the first block reads, or the sum of token, segment and position embeddings before the norm that BERT"
            " has there",
        ),
    },
    **{
        field: {
            "outcome": (
                "str | int | Callable[..., Any] | None",
                None,
                "what is explained: a word, a class, a difference `A-B`, `similarity:TEXT`; in Python a function of"
                " what a run returns; without, the most likely word or class",
            )
        }
        for field in (
            "outcome",
            "answer",
            "gradient",
            "without",
            "relevance_gradient",
            "attention_gradient",
            "attention_path",
            "attention_runs",
            "with_contexts",
        )
    },
    "baseline": {
        "baseline": (
            'Literal["mask", "unknown", "padding", "mean", "zero"] | None',
            None,
            "what stands for a token that says nothing; without, the first of the special tokens that the model has, or"
            " the mean embedding",
        ),
    },
    "blocks": {
        "fast": ("bool", True, "use the model's blocks where they are recognised and verified"),
    },
}
#: A function that can go on from an earlier answer has the option `resume`, to which a result is given.
RESUME = ("xr.Dataset | None", None, "a result to go on from, of the same model, text and options")
