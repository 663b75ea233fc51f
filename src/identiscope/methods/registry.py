"""Every method, one line each: all that must be known of it without importing it.

A line brings a method into the library (`identiscope.NAME(trace)`), the command line, Runs, reports, comparisons, the
documentation and the contract tests, which all loop over `METHODS`. File, function and name are the same word:
`rollout` is the function `rollout` in `methods/mixtures/rollout.py`, the folder being that of its kind.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from identiscope.errors import InputError
from identiscope.methods.kinds import KINDS, Kind

_BRUNNER = "Brunner et al. 2020"

#: What a line may say of its method beside its kind.
TAGS: Mapping[str, str] = {
    "fast": "takes no longer than the forward pass",
    "part": "a part of attention that explains nothing by itself",
    "of heads": "a few numbers of a map that say what its head is like: asked of every text in a survey of heads",
    "signed": "a mixture whose parts may be negative, or need not sum to one",
    "weights": "a map of attention weights, or of parts of such: its cells can be put beside those of raw attention",
}


@dataclass(frozen=True)
class Method:
    """One method.

    kind: of `kinds.KINDS`. paper: where it is from. says: one sentence, shown wherever methods are listed. tags: of
    `TAGS`. aliases: names that people know it by. own_axes: where they are not those of its kind. varies: the arrays
    that rounding may change, because another answer is as good (a basis that is turned) or because they speak of the
    precision itself (a cutoff). on_cpu: the step of it that is taken to the CPU from wherever the tensors are.
    residual: of a map, the share of a token's own stream where maps are multiplied up. brief: options for an answer
    among many, where the usual ones would take too long.
    function: only of methods that are registered at run time; those of this package are found by their name.
    """

    name: str
    kind: str
    paper: str
    says: str
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    own_axes: tuple[str, ...] = ()
    varies: tuple[str, ...] = ()
    on_cpu: str = ""
    residual: float = 0.0
    brief: Mapping[str, Any] = field(default_factory=dict, hash=False)
    function: Callable[..., Any] | None = field(default=None, compare=False)

    @property
    def family(self) -> Kind:
        """What its kind says."""
        return KINDS[self.kind]

    @property
    def axes(self) -> tuple[str, ...]:
        """Of what it gives."""
        return self.own_axes or self.family.axes

    @property
    def module(self) -> str:
        """Where its function is."""
        if self.function is not None:
            return str(self.function.__module__)
        return f"identiscope.methods.{self.family.folder}.{self.name}"

    def load(self) -> Callable[..., Any]:
        """Its function, imported."""
        if self.function is not None:
            return self.function
        function: Callable[..., Any] = getattr(import_module(self.module), self.name)
        return function


# fmt: off
_LINES = (
    Method("attention", "map", "Vaswani et al. 2017, eq. 1", "raw attention, as the softmax gave it",
           tags=("fast", "weights"),
           aliases=("raw", "raw_attention", "head_view", "model_view", "neuron_view")),
    Method("effective_simplex_span", "map", "Naim & Asher 2024", "the part of attention that the output"
           " depends on: its projection on col([T,1])", tags=("fast", "weights")),
    Method("canonical", "map", f"{_BRUNNER}, §3.4 (its open question)",
           "of all attention with the same output the only one that spreads its weight most evenly",
           tags=("weights",),
           on_cpu="canonical rows"),
    Method("effective", "map", f"{_BRUNNER}, eq. 9", "the part of attention that T can see: projected on col(T);"
           " moves with the value bias", tags=("weights",)),
    Method("null", "map", f"{_BRUNNER}, eq. 8", "the part of attention in the null space of T; moves with the value"
           " bias", tags=("part", "weights")),
    Method("weighted_norm", "map", "Kobayashi et al. 2020, eq. 5", "the length of what a head moves: attention times"
           " that of the value", tags=("fast",), aliases=("attention_norm", "norm_based")),
    Method("gradient_attention", "map", "Barkan et al. 2021", "attention times the gradient of the outcome",
           tags=("fast",), aliases=("attention_x_gradient", "gradsam")),
    Method("attention_attribution", "map", "Hao et al. 2021, eq. 5", "what the outcome gains as a layer's attention"
           " grows from nothing", aliases=("attattr", "self_attention_attribution"),
           brief={"points": 4}),
    Method("attention_identifiability", "head", f"{_BRUNNER}, §3", "ranks, null spaces, null share and correlation",
           varies=("cutoff", "gap", "rank_is_uncertain")),
    Method("attention_rank", "head", f"{_BRUNNER}, eq. 6", "rank and spectrum of T over all keys", tags=("fast",),
           varies=("cutoff", "gap", "rank_is_uncertain")),
    Method("row_rank", "head", f"{_BRUNNER}, §3.3", "rank and null space of T for each query row",
           own_axes=("layer", "head", "query")),
    Method("layer_rank", "head", f"{_BRUNNER}, §3.3", "rank of all heads stacked: attention may move between heads",
           own_axes=("layer",), varies=("projection_condition",)),
    Method("null_share", "head", f"{_BRUNNER}, Fig. 1a", "how much of attention has no effect, and its correlation"),
    Method("head_summary", "head", "Clark et al. 2019", "entropy, weight on special tokens and itself, strongest one",
           tags=("fast",)),
    Method("head_pattern", "head", "Kovaleva et al. 2019", "diagonal, vertical, block, broad …: a score for each",
           aliases=("structure",)),
    Method("head_attends", "head", "Clark et al. 2019, §3; Olsson et al. 2022", "weight on the previous token, special"
           " tokens, copies …: raw, and what is real", tags=("of heads",)),
    Method("head_role", "head", "Voita et al. 2019, §4; Clark et al. 2019, §3.3", "how sure a head is of one key, where"
           " that is, and how broad it looks", tags=("of heads",)),
    Method("head_sink", "head", "Gu et al. 2024, eq. 7", "the key that most weight goes to, whatever the query",
           tags=("of heads",), varies=("sink_key", "simplex_sink_key")),
    Method("head_class", "head", "Kovaleva et al. 2019, §4.1", "vertical, diagonal, both, block or heterogeneous",
           tags=("of heads",)),
    Method("head_importance", "head", "Michel et al. 2019, eq. 2; Voita et al. 2019", "what the outcome loses without a"
           " head, and its gate's gradient"),
    Method("statistic_interval", "head", "linear programs over the maps of Brunner et al. 2020, §3.3",
           "mean weight on chosen tokens, and what it could be with the same output", on_cpu="linear programs"),
    Method("epsilon_freedom", "head", f"{_BRUNNER}, §3.3, with a second-order cone", "how far the strongest weights may"
           " go, the output moving by a share ε", varies=("gap",), on_cpu="cone programs"),
    Method("attends_interval", "head", "linear programs over the maps of Brunner et al. 2020, §3.3",
           "what heads look at, and what that could be with the same output", on_cpu="linear programs"),
    Method("structure_norm", "head", "structure-aware draft, eq. 5", "a norm that weighs cells by how much a task needs"
           " them"),
    Method("attention_intervals", "freedom", f"{_BRUNNER}, §3.3", "between which bounds a weight may lie",
           varies=("lower_row", "upper_row"), on_cpu="linear programs"),
    Method("interval_map", "freedom", f"{_BRUNNER}, §3.3", "the least and the most that every weight of a head may be",
           own_axes=("query", "key"), on_cpu="linear programs"),
    Method("attention_alternative", "freedom", f"{_BRUNNER}, §3.3", "another map with the same output",
           own_axes=("query", "key"), varies=("alternative", "total_variation", "jensen_shannon"),
           on_cpu="linear programs"),
    Method("few_keys", "freedom", f"{_BRUNNER}, §3.3, by Carathéodory", "the same output from few keys, and keys"
           " that no row needs", own_axes=("query", "key"), varies=("few", "common", "count", "kept", "dropping_bound"),
           on_cpu="linear programs"),
    Method("epsilon_curve", "freedom", f"{_BRUNNER}, §3.3, with a second-order cone", "how the freedom of a head grows"
           " with how much its output may move", own_axes=("epsilon", "row"), varies=("gap", "reach", "merged_reach"),
           on_cpu="cone programs"),
    Method("null_space_basis", "freedom", f"{_BRUNNER}, eq. 4 and 7", "the directions in which a row may move",
           own_axes=("direction", "key"), varies=("null_space_basis",)),
    Method("layer_alternative", "layer", f"{_BRUNNER}, §3.3, for a layer", "other maps of all heads of a layer that"
           " together give its output", varies=("layer_alternative", "projection_condition"), on_cpu="linear programs"),
    Method("hidden_token_attribution", "mixture", f"{_BRUNNER}, eq. 11", "Jacobian norms: how much of each input token"
           " is in each hidden embedding", aliases=("attribution", "hta"), own_axes=("layer", "input", "output"),
           brief={"mode": "estimate"}),
    Method("rollout", "mixture", "Abnar & Zuidema 2020", "attention multiplied up through the layers", tags=("fast",),
           aliases=("attention_rollout",)),
    Method("attention_flow", "mixture", "Abnar & Zuidema 2020", "the most that could flow from each input to a hidden"
           " token through attention", tags=("signed",), on_cpu="maximum flows"),
    Method("residual_norm", "mixture", "Kobayashi et al. 2021", "lengths of what tokens bring to each other, the stream"
           " included", tags=("fast",)),
    Method("layer_norm_norm", "mixture", "Kobayashi et al. 2021, eq. 15", "the same behind the norm of the sum",
           tags=("fast",)),
    Method("globenc", "mixture", "Modarressi et al. 2022", "the same behind both norms of a layer, rolled out",
           tags=("fast",)),
    Method("alti", "mixture", "Ferrando et al. 2022, eq. 7", "what a token's state would lose in length without each"
           " other one, rolled out", aliases=("alti_plus", "alti+")),
    Method("value_zeroing", "mixture", "Mohebbi et al. 2023", "how a layer's output turns when the value of a token is"
           " zero"),
    Method("gradient_rollout", "mixture", "Chefer et al. 2021", "attention times its positive gradient, added up"
           " through the layers", tags=("fast", "signed"), aliases=("chefer", "relevance_map")),
    Method("head_output_gradient", "mixture", "Pascual et al. 2021", "what the output of each head depends on, beside"
           " its attention", own_axes=("layer", "head", "output", "input")),
    Method("gradient_input", "score", "Shrikumar et al. 2016", "gradient times input: what the outcome loses to first"
           " order without a token", tags=("fast",),
           aliases=("gradient_x_input", "input_x_gradient", "layer_gradient_x_activation")),
    Method("received_attention", "score", "Tan et al. 2023", "what each token is given by all in the first layer; the"
           " outcome has no say", aliases=("column_sums",)),
    Method("saliency", "score", "Simonyan et al. 2014", "the length of the gradient by each token's embedding",
           tags=("fast",), aliases=("gradient_norm", "grad_norm", "vanilla_gradient")),
    Method("integrated_gradients", "score", "Sundararajan et al. 2017, eq. 1", "gradients along the way from a text"
           " that says nothing", aliases=("ig", "layer_integrated_gradients")),
    Method("smooth_gradient", "score", "Smilkov et al. 2017", "gradients averaged over noise",
           aliases=("smoothgrad", "noise_tunnel")),
    Method("attention_lrp", "score", "Achtibat et al. 2024", "relevance passed down by rules that conserve it",
           tags=("fast",), aliases=("attnlrp", "lrp")),
    Method("alti_logit", "score", "Ferrando et al. 2023", "what every layer brings to the outcome, carried to the"
           " inputs by ALTI"),
    Method("flow_routes", "score", "Ferrando & Voita 2024", "the routes by which the outcome came, edge by edge",
           aliases=("information_flow_routes",)),
    Method("direct_logit_attribution", "score", "Elhage et al. 2021", "what heads, feed-forward parts and embeddings"
           " write to the outcome", aliases=("dla", "logit_attribution", "logit_lens")),
    Method("occlusion", "score", "Zeiler & Fergus 2014", "what the outcome loses without a token",
           aliases=("leave_one_out", "loo", "feature_ablation")),
    Method("shapley", "score", "Shapley 1953; Lundberg & Lee 2017", "what a token adds to the outcome, over all orders"
           " of tokens", aliases=("shapley_values", "shapley_value_sampling")),
    Method("kernel_shap", "score", "Lundberg & Lee 2017, theorem 2", "Shapley values by a weighted regression",
           aliases=("shap",)),
    Method("prediction_freedom", "prediction", "after Jain & Wallace 2019; linear programs, run in the model",
           "how far attention can move while the outcome stays", on_cpu="linear programs"),
    Method("load_bearing", "prediction", "after Serrano & Smith 2019; linear programs, run in the model",
           "the weights that a prediction rests on, and how small each can be made", on_cpu="linear programs"),
    Method("replaced_attention", "prediction", "Jain & Wallace 2019; Wiegreffe & Pinter 2019; Serrano & Smith 2019",
           "the outcome with attention permuted, uniform, adversarial, erased by rank", on_cpu="linear programs"),
    Method("sparse_attention", "prediction", "Brahma et al. 2022", "how few keys, how small a window, keep the outcome;"
           " and how many keep the output exactly", varies=("exact_keys",), on_cpu="linear programs"),
    Method("token_identifiability", "token", f"{_BRUNNER}, §4", "can a hidden embedding be traced to its input token",
           aliases=("tokens",)),
)
# fmt: on

METHODS: dict[str, Method] = {method.name: method for method in _LINES}
#: Other public names of the package, which no method can have: the package fills them in.
TAKEN: set[str] = set()


def method(name: str) -> Method:
    """The method of that name, or with that alias, as it is written here or elsewhere: `IntegratedGradients` too.

    >>> method("raw").name, method("InputXGradient").name
    ('attention', 'gradient_input')
    """
    if name in METHODS:
        return METHODS[name]
    written = {_letters(known): one for one in METHODS.values() for known in (one.name, *one.aliases)}
    if _letters(name) in written:
        return written[_letters(name)]
    close = get_close_matches(_letters(name), written, 1)
    hint = f" Did you mean {written[close[0]].name}?" if close else ""
    raise InputError(f"there is no method {name!r}; there are {', '.join(METHODS)}.{hint}")


def _letters(name: str) -> str:
    """A name without what is written in several ways."""
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


def of_kind(*kinds: str) -> list[Method]:
    """All methods of some kinds, in the order of the registry."""
    return [one for one in METHODS.values() if one.kind in kinds]


def map_names(tag: str = "") -> tuple[str, ...]:
    """The maps there are, or those with a tag; raw attention by the name that sets it off from the others.

    First those that every way of writing the model agrees on.
    """
    maps = [one for one in of_kind("map") if not tag or tag in one.tags]
    return tuple("raw" if "raw" in one.aliases else one.name for one in maps)


def in_runs() -> tuple[str, ...]:
    """The methods that a Run can have: those whose kind has columns there."""
    return tuple(one.name for one in METHODS.values() if one.family.run_axes)


@contextmanager
def registered(new: Method) -> Iterator[Method]:
    """A method of one's own, for as long as the block lasts: it is everywhere where those of the package are.

    >>> with registered(Method("half", "map", "mine", "half of attention", function=half)):
    ...     identiscope.half(trace)
    """
    if new.kind not in KINDS:
        raise InputError(f"kind={new.kind!r} was given; there are {', '.join(KINDS)}.")
    strange = [tag for tag in new.tags if tag not in TAGS]
    if strange:
        raise InputError(f"tags={', '.join(strange)} was given; there are {', '.join(TAGS)}.")
    taken = TAKEN.union(*((one.name, *one.aliases) for one in METHODS.values()))
    if not new.name.isidentifier() or taken & {new.name, *new.aliases}:
        raise InputError(f"a method cannot be called {new.name!r}: it is no name, or something is called so already.")
    METHODS[new.name] = new
    try:
        yield new
    finally:
        del METHODS[new.name]
