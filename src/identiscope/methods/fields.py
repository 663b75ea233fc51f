"""What a Trace holds, under the names by which methods ask for it, made when asked for.

A method's positional parameters are fields. `FIELDS` says what each is; `LayerFields` makes those of one layer's chosen
heads, `trace_fields.TraceFields` those of a whole trace, where a field of a layer becomes a sequence of such.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from identiscope.errors import InputError
from identiscope.linalg.allowed import Allowed, describe_allowed
from identiscope.linalg.rank.full_rank import HeadProducts, head_products
from identiscope.linalg.rank.projection_factor import projection_factor
from identiscope.linalg.simplex.raw_rows import RawRows as SoftmaxRows
from identiscope.methods.maps.factored import row_slices

if TYPE_CHECKING:
    from identiscope.capture import Site, Stream, Trace
    from identiscope.methods.outcome_runs import OutcomeRuns

#: Raw attention that several methods read, by site; and the most cells of a layer that are kept for them.
_KEPT: ContextVar[dict[int, Tensor] | None] = ContextVar("attention that methods share", default=None)
_MOST_KEPT = 2**21


@contextmanager
def shared_attention() -> Iterator[None]:
    """A block in which raw attention of a trace, which must outlive it, is made once for all methods."""
    before = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(before)


def _shared(site: "Site") -> Tensor | None:
    """All heads of a site, if they are shared, and not too large for that."""
    kept = _KEPT.get()
    if kept is None or len(site.heads) * site.queries * site.keys > _MOST_KEPT:
        return None
    if id(site) not in kept:
        kept[id(site)] = site.attentions()
    return kept[id(site)]


#: Name → axes and meaning. Those above the blank line are of a layer; of a whole trace they are sequences of such.
FIELDS: Mapping[str, str] = {
    "attention": "[head, query, key] raw attention in float64",
    "raw": "a function from a slice of queries to their raw attention [head, query, key]",
    "softmax_rows": "queries and keys from which rows of raw attention can be made in compiled code, or None",
    "value": "[kv_head, key, channel] values, with their bias",
    "value_bias": "[kv_head, channel] the bias to take out of the values, or None to leave it in",
    "projection": "[head, channel, model] each head's slice of the output projection",
    "context": "[head, query, channel] A·V as the pass computed it",
    "exact_context": "a function that gives A·V in float64, without the rounding of the pass: [head, query, channel]",
    "row_sum": "[head, query] what rows of raw attention sum to, or None if that is one",
    "allowed": "which keys each query may see: None for all, 'causal', or a mask [query, key]",
    "queries": "the number of queries",
    "special": "[key] whether a key is a special token, such as [CLS]",
    "output_size": "[query] the length of each row of the attention block's output, all heads and its bias included",
    "copies": "[key] the number of the group of equal tokens that a key is of, from 0",
    "key_tokens": "the tokens of the keys",
    "query_tokens": "the tokens of the queries",
    "precision": "the dtype in which the forward pass computed the values",
    "key_channels": "the width of queries and keys, or None if they were not captured",
    "layer": "the number of the layer (block, from 0)",
    "heads": "the numbers of the chosen heads",
    "head_count": "how many heads the layer has, chosen or not",
    "attention_gradient": "[head, query, key] derivative of the outcome by attention",
    "attention_path": "a function from factors to the outcome with the layer's attention times each [factor], and its"
    " derivative by that [factor, head, query, key], or None with slopes=False",
    "with_contexts": "a function from what the heads return in place of `context` [variant, head, query, channel] to"
    " the outcome [variant]",
    "rerun": "a function from a map [query, key] of the chosen head to how much that moves the last hidden states and"
    " the logits of the running model, by name; None without a model",
    #
    "hidden_states": "input embeddings and the output of every block, each [token, model]",
    "embeddings": "[input, model] what the first block reads; a decoder that reads an encoder has the encoder's first",
    "special_tokens": "[token] whether a token is special, such as [CLS]",
    "replay": "a function from `embeddings` to the input and what each block wrote, each [token, model]",
    "blocks": "the replay as blocks of known structure at these embeddings, or None if they were not recognised",
    "parts": "what each layer adds to the stream, part by part: attention, feed-forward, norms (linalg/parts.py)",
    "sides": "attention, values, projections and parts of the stream, after those of the encoder that it reads, if any",
    "head_tangents": "a function from tangents of `embeddings` [text, input, model] to those of what each head returns"
    " before its projection, for every layer [text, head, query, channel]",
    "outcome": "what is explained: its name and value, how much it reads of each last state (read [token]), and its"
    " derivative there (direction [token, model])",
    "answer": "a function from embeddings [text, input, model] to the outcome of each [text]",
    "gradient": "a function from embeddings [text, input, model] to the outcome of each [text] and its derivative",
    "relevance_gradient": "the same with the derivative by the rules of relevance propagation, and what it shares out",
    "attention_runs": "attention put into the running model: the maps of every layer, derivatives of the outcome by"
    " them, and what comes out with others in their place",
    "baseline": "[input, model] embeddings of tokens that say nothing",
    "without": "a function from which inputs are kept [text, input] to the outcome without the others [text]",
}

#: The fields through which a method sees the weights of attention themselves. All others are the same for any weights
#: that give the same output: what heads return, what rows sum to, and all that the model is run for.
SEE_WEIGHTS = frozenset({"attention", "raw", "softmax_rows", "sides"})


@dataclass(frozen=True, eq=False, repr=False)
class LayerFields:
    """One site's chosen heads: value [kv_head, key, d_v], projection [head, d_v, model], context [head, query, d_v].

    `raw` gives the attention of some consecutive queries, computed when asked for. `bias` [kv_head, d_v] is that inside
    the values; it and `row_sum` [head, query] are None where the site has none to speak of. `value_bias` is the bias if
    it is to be taken out. `weights` are the rows of raw attention, where they are held already.
    """

    site: "Site"
    heads: tuple[int, ...]
    value: Tensor
    projection: Tensor
    context: Tensor
    allowed: Allowed
    row_sum: Tensor | None
    bias: Tensor | None
    special: Tensor | None = None
    key_tokens: tuple[str, ...] = ()
    query_tokens: tuple[str, ...] = ()
    keep_bias: bool = True
    weights: Tensor | None = None
    runs: "OutcomeRuns | None" = None
    trace: "Trace | None" = None

    @property
    def rerun(self) -> Callable[[Tensor], dict[str, float]] | None:
        """What a map of the first chosen head changes in the running model."""
        if self.trace is None or self.trace.model is None:
            return None
        from identiscope.methods.freedom.map_rerun import changes_in_the_run

        return partial(changes_in_the_run, self.trace, self.site, self.heads[0])

    @property
    def attention_gradient(self) -> Tensor:
        """Derivative of the outcome by the attention of the chosen heads, [head, query, key]."""
        assert self.runs is not None
        slopes = self.runs.attention_gradient(self.site.index)
        return slopes if list(self.heads) == list(range(len(slopes))) else slopes[list(self.heads)]

    def attention_path(self, factors: Sequence[float], *, slopes: bool = True) -> tuple[Tensor, Tensor | None]:
        """The outcome with the layer's attention times each factor, and its derivative by that of the chosen heads."""
        assert self.runs is not None
        values, gradients = self.runs.attention_path(self.site.index, factors, slopes=slopes)
        return values, None if gradients is None else gradients[:, list(self.heads)]

    def with_contexts(self, contexts: Tensor) -> Tensor:
        """The outcome where the chosen heads return something else, [variant, head, query, channel] → [variant]."""
        assert self.runs is not None
        whole = self.site.context.expand(len(contexts), -1, -1, -1).clone()
        whole[:, list(self.heads)] = contexts.to(whole)
        return self.runs.with_contexts(self.site.index, whole)

    @property
    def precision(self) -> torch.dtype:
        """The dtype in which the forward pass computed the values."""
        return self.site.value.dtype

    @property
    def queries(self) -> int:
        """The number of queries."""
        return self.site.queries

    @property
    def layer(self) -> int:
        """The number of the block."""
        return self.site.layer

    @property
    def head_count(self) -> int:
        """How many heads the layer has."""
        return self.site.head_count

    @property
    def key_channels(self) -> int | None:
        """The width of queries and keys."""
        return None if self.site.query is None else self.site.query.shape[-1]

    @property
    def output_size(self) -> Tensor:
        """The length of each row of Σ_h A_h·V_h·H_h + b_O, of all heads, chosen or not: [query]."""
        return self.site.output_size()

    @property
    def copies(self) -> Tensor:
        """Which keys are the same token: the number of its group for each, [key]."""
        number: dict[str, int] = {}
        groups = [number.setdefault(token, len(number)) for token in self.key_tokens]
        return torch.tensor(groups if groups else range(self.site.keys))

    @property
    def value_bias(self) -> Tensor | None:
        """The bias to take out of the values, if any is to be."""
        if self.keep_bias:
            return None
        if self.bias is None:
            raise InputError(
                f"the bias inside the values of {self.site.name} could not be told, so it cannot be taken out;"
                " leave value_bias as it is."
            )
        return self.bias

    @property
    def attention(self) -> Tensor:
        """Raw attention of all queries, [head, query, key]."""
        return self.raw(slice(0, self.site.queries))

    def raw(self, rows: slice) -> Tensor:
        """Raw attention of some consecutive queries, [head, query, key]."""
        if self.weights is not None:
            return self.weights[:, rows]
        whole = _shared(self.site)
        if whole is not None:
            if self.heads == self.site.heads:
                return whole[:, rows]
            return whole[[self.site.place(head) for head in self.heads], rows]
        chosen = range(self.site.queries)[rows]
        return torch.stack([self.site.attention(head, chosen) for head in self.heads])

    def exact_context(self) -> Tensor:
        """A·V of every head in float64, [head, query, d_v], without the rounding of the pass."""
        if self.site.given is not None or self.precision == torch.float64:
            return self.context
        group = len(self.projection) // len(self.value)
        value = self.value.double().repeat_interleave(group, 0)
        blocks = row_slices((len(self.heads), self.site.queries, self.site.keys))
        return torch.cat([self.raw(rows) @ value for rows in blocks], 1)

    @cached_property
    def products(self) -> HeadProducts:
        """What ranks need of the output projection."""
        return head_products(projection_factor(self.projection))

    @property
    def softmax_rows(self) -> SoftmaxRows | None:
        """Rows from queries and keys, for loops that are compiled for the CPU; None elsewhere, and for given maps."""
        site = self.site
        if site.given is not None or site.query is None or site.key is None or site.value.device.type != "cpu":
            return None
        allowed = describe_allowed(self.allowed, site.queries, site.keys, site.value.device)
        if not (allowed.everything or allowed.consecutive_prefixes):
            return None
        places = [site.place(head) for head in self.heads]
        # Heads of a group share their keys where they share their values.
        shared = len(self.value) == len(site.key) and len(places) == len(site.query)
        key = site.key if shared else site.key[[site.key_value_heads[place] for place in places]]
        position = site.bias.position
        if position is not None and len(position) > 1:
            position = position[places]
        sinks = None if site.sinks is None else site.sinks[places]
        return SoftmaxRows(
            site.query[places].double(), key.double(), allowed.stop, site.scale, site.softcap, position, sinks
        )

    def without_bias(self) -> "LayerFields":
        """With the bias taken out of the values, for methods that mind."""
        return replace(self, keep_bias=False)

    def exactly(self, names: Sequence[str] = ("context", "row_sum")) -> "LayerFields":
        """With the raw map, and the context and row sums of it in float64: what dense maps are made of.

        names: the fields that will be asked for; of those two, what is not among them stays as it is.
        """
        raw = self.attention
        exact: dict[str, Any] = {}
        if "context" in names:
            group = len(self.projection) // len(self.value)
            exact["context"] = raw @ self.value.double().repeat_interleave(group, 0)
        if "row_sum" in names:
            exact["row_sum"] = raw.sum(-1)
        return replace(self, weights=raw, **exact)

    def of_heads(self, heads: Sequence[int]) -> "LayerFields":
        """Some heads alone, each with values of its own."""
        if not heads:
            raise InputError("heads=[] was given; expected at least one, or None for all.")
        for head in heads:
            self.site.place(head)
        places = [self.heads.index(head) for head in heads]
        group = len(self.projection) // len(self.value)
        kept = [place // group for place in places]
        return replace(
            self,
            heads=tuple(heads),
            value=self.value[kept],
            projection=self.projection[places],
            context=self.context[places],
            row_sum=None if self.row_sum is None else self.row_sum[places],
            bias=None if self.bias is None else self.bias[kept],
        )

    def of_head(self, head: int) -> "LayerFields":
        """One head alone."""
        return self.of_heads([head])


def layer_fields(site: "Site", streams: "Mapping[str, Stream] | None" = None) -> LayerFields:
    """The fields of a site: its own tensors, where all heads are meant, and no copies. streams: of its trace."""
    heads = list(site.heads)
    projection, context = site.projection, site.context
    if heads != list(range(site.head_count)):
        projection, context = projection[heads], context[heads]
    value, bias = site.value, site.value_bias
    if len(heads) != site.head_count:
        # A choice of heads need not be whole groups: give each head its own values.
        value = value[list(site.key_value_heads)]
        bias = None if bias is None else bias[list(site.key_value_heads)]
    allowed: Allowed = None
    if site.bias.allowed is not None:
        if site.bias.allowed.shape[0] > 1 and not _same_for_all(site.bias.allowed):
            raise InputError(f"the heads of {site.name} see different keys; capture one head at a time (heads=[h]).")
        allowed = site.allowed_keys(heads[0])
    elif site.bias.causal:
        allowed = "causal"
    fields = LayerFields(site, site.heads, value, projection, context, allowed, site.row_sums(), bias)
    if streams is None:
        return fields
    keys, queries = streams[site.key_stream], streams[site.query_stream]
    flags = torch.tensor(keys.special, dtype=torch.bool, device=value.device)
    return replace(fields, special=flags, key_tokens=keys.tokens, query_tokens=queries.tokens)


def _same_for_all(allowed: Tensor) -> bool:
    return torch.equal(allowed, allowed[:1].expand_as(allowed))


def chosen_sites(
    trace: "Trace", layers: Sequence[int] | None = None, attention: str | None = None, stream: str | None = None
) -> list["Site"]:
    """The sites of one kind of attention, in order of their layers."""
    if layers is not None and not len(layers):
        raise InputError("layers=[] was given; expected at least one, or None for all.")
    sites = [
        site
        for site in trace.sites
        if (layers is None or site.layer in layers)
        and attention in (None, site.kind)
        and stream in (None, site.query_stream)
    ]
    places = {(site.kind, site.query_stream) for site in sites}
    if len(places) > 1:
        raise InputError(f"the trace has several attentions; say which (attention or stream): {sorted(places)}.")
    missing = sorted(set(layers or ()) - {site.layer for site in sites})
    if missing or not sites:
        have = sorted({(site.kind, site.query_stream, site.layer) for site in trace.sites})
        raise InputError(f"no captured layers {missing or 'at all'}; captured (attention, stream, layer): {have}.")
    return sites
