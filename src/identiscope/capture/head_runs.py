"""A traced model run on from one of its layers, with other outputs of heads there: what is below is not run again.

Blocks before the layer return what they returned in the pass that was traced, and so does the attention of the layer,
but for the heads that are changed; all that follows is the model's own. What was found is verified: each attention must
return the context of its heads, or what their projections make of it.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from identiscope.capture.anatomy import blocks_around
from identiscope.capture.experts import PlainExperts
from identiscope.capture.forward import Forward, forward, try_forward
from identiscope.capture.site import Site
from identiscope.capture.twin import twin
from identiscope.capture.watch.trying import first_tensor
from identiscope.errors import CaptureError, InputError
from identiscope.linalg.agreement import explained_by, relative_error

if TYPE_CHECKING:
    from identiscope.capture.trace import Trace


class HeadRuns:
    """Runs of one text. passes: how many whole passes all of them were worth. One thread at a time may use it.

    >>> runs = HeadRuns(trace)
    >>> runs.with_contexts(site.index, torch.stack([site.context, 0 * site.context])).logits      # of two variants
    """

    def __init__(self, trace: "Trace") -> None:
        if trace.model is None or trace.batch is None:
            raise CaptureError("a trace made from arrays has no model to run.")
        self.model, self.arguments, self.passes = trace.model, trace.batch.arguments, 0.0
        self.sites = {site.index: site for site in trace.sites}
        self._twin = twin(trace.model)
        modules = dict(self._twin.module.named_modules())
        # A block may hold an attention to another stream beside its own; a module may be shared by several layers.
        own = [site.name for site in trace.sites if site.query_stream == site.key_stream]
        self._blocks = set(blocks_around(self._twin.module, own).values())
        # What each call of a block and of an attention returned, and in which call of a block an attention ran.
        self._of_blocks: list[Any] = []
        self._of_attentions: list[Any] = []
        self._within: list[int] = []
        self._place = {index: place for place, index in enumerate(sorted(self.sites))}
        self._gated: dict[nn.Module, list[int]] = {}
        self._attentions = {modules[site.name] for site in trace.sites}
        self._record()
        self._projected = {index: self._is_projected(index) for index in self.sites}
        if None in self._projected.values():
            # An attention that does more (ALBERT's adds and norms) is entered at its output projection.
            self._attentions = set(self._projections())
            self._record()
            self._projected = {index: self._is_projected(index) for index in self.sites}
        if None in self._projected.values():
            raise CaptureError(
                f"{trace.model.name} cannot be run on from a layer: neither its attention modules nor their output"
                " projections return what the heads give. Capture all layers and heads."
            )
        self._start, self._changed, self._new = 0, -1, torch.empty(0)
        self._gates: Mapping[int, Tensor] = {}
        self._counts = dict.fromkeys(("block", "attention"), 0)
        for kind, parts in (("block", self._blocks), ("attention", self._attentions)):
            for part in parts:
                vars(part)["forward"] = self._instead(kind, part.forward)

    def with_contexts(self, index: int, contexts: Tensor) -> Forward:
        """What the model returns where the heads of an attention call return other contexts, [variant, head, query,
        channel]; before the output projection."""
        site = self.sites[index]
        if contexts.shape[1:] != site.context.shape:
            raise InputError(
                f"contexts of shape {list(contexts.shape)} were given; expected [variant, *{list(site.context.shape)}]."
            )
        place = self._place[index]
        self._start, self._changed = self._within[place], place
        before = first_tensor(self._of_attentions[place])
        assert before is not None
        self._new = (
            self._returned(site, contexts, bool(self._projected[index])).reshape(-1, *before.shape[1:]).to(before)
        )
        return self._run(len(contexts))

    def gated(self, gates: Mapping[int, Tensor]) -> Forward:
        """What the model returns where what heads return is scaled: by call [variant, head], zero to leave one out."""
        first = min(gates, key=lambda index: self._place[index])
        later = {self._place[index]: gate for index, gate in gates.items() if index != first}
        if later:
            self._find_projections()
        self._gates = later
        try:
            context = self.sites[first].context
            return self.with_contexts(first, context * gates[first].to(context)[..., None, None])
        finally:
            self._gates = {}

    def _run(self, size: int) -> Forward:
        arguments = {name: value.repeat(size, *[1] * (value.dim() - 1)) for name, value in self.arguments.items()}
        self._counts = dict.fromkeys(self._counts, 0)
        self._gate_counts = dict.fromkeys(self._gated, 0)
        self.passes += size * (len(self._of_blocks) - self._start) / max(len(self._of_blocks), 1)
        try:
            with torch.no_grad(), PlainExperts():
                return try_forward(self._twin, arguments)
        finally:
            self._changed, self._start = -1, 0

    def _instead(self, kind: str, own: Callable[..., Any]) -> Callable[..., Any]:
        """What a module does in place of its own forward."""

        def run(*given: Any, **named: Any) -> Any:
            number = self._counts[kind]
            self._counts[kind] += 1
            size = len(self._new)
            if kind == "block" and self._changed >= 0 and number < self._start:
                # The attentions inside it do not run.
                self._counts["attention"] += sum(within == number for within in self._within)
                kept = first_tensor(self._of_blocks[number])
                assert kept is not None
                return _with_first(self._of_blocks[number], kept.expand(size, *kept.shape[1:]))
            if kind == "attention" and number == self._changed:
                return _with_first(self._of_attentions[number], self._new)
            return own(*given, **named)

        return run

    def _record(self) -> None:
        """One pass, in which all that blocks and attentions return is kept."""
        self._of_blocks, self._of_attentions, self._within = [], [], []

        def block(module: nn.Module, given: Any, returned: Any) -> None:
            self._of_blocks.append(returned)

        def attention(module: nn.Module, given: Any, returned: Any) -> None:
            self._of_attentions.append(returned)
            self._within.append(len(self._of_blocks))

        handles = [part.register_forward_hook(block) for part in self._blocks]
        handles += [part.register_forward_hook(attention) for part in self._attentions]
        try:
            with torch.no_grad(), PlainExperts():
                forward(self._twin, self.arguments)
        finally:
            for handle in handles:
                handle.remove()

    def _is_projected(self, index: int) -> bool | None:
        """Whether an attention returns what the projections make of the contexts of its heads, or these themselves;
        None if neither."""
        if len(self._of_attentions) != len(self.sites):
            return None
        site, returned = self.sites[index], first_tensor(self._of_attentions[self._place[index]])
        for projected in (False, True):
            made = self._returned(site, site.context[None], projected)
            if returned is not None and returned.numel() == made.numel():
                shown = returned.reshape(made.shape).to(made.device)
                if explained_by(relative_error(made, shown), shown.dtype):
                    return projected
        return None

    @staticmethod
    def _returned(site: Site, contexts: Tensor, projected: bool) -> Tensor:
        """[variant, query, head·channel], or [variant, query, model]."""
        rows = contexts.transpose(1, 2).flatten(2)
        if not projected:
            return rows
        added = rows @ site.projection.flatten(0, 1).to(rows)
        return added if site.projection_bias is None else added + site.projection_bias.to(added)

    def _find_projections(self) -> None:
        """Let what output projections read be scaled."""
        if not self._gated:
            self._gated = self._projections()
            for module in self._gated:
                module.register_forward_pre_hook(self._scale)

    def _projections(self) -> dict[nn.Module, list[int]]:
        """The linear layers that read contexts, told by their weights, and the places of the calls that each is for."""
        linears = [(one, _weight(one)) for one in self._twin.module.modules()]
        places: dict[nn.Module, list[int]] = {}
        for index, place in self._place.items():
            wanted = self.sites[index].projection.flatten(0, 1)
            own = [one for one, weight in linears if weight is not None and _equal(weight, wanted)]
            if len(own) != 1:
                raise CaptureError(f"the output projection of {self.sites[index].name} was not found.")
            places.setdefault(own[0], []).append(place)
        return places

    def _scale(self, module: nn.Module, given: Any) -> Any:
        number = self._gate_counts[module]
        self._gate_counts[module] += 1
        # Of attentions that did not run, the projection did not either.
        places = [place for place in self._gated[module] if self._within[place] >= self._start]
        gate = self._gates.get(places[number]) if number < len(places) else None
        if gate is None:
            return None
        width = given[0].shape[-1] // gate.shape[1]
        return (given[0] * gate.to(given[0]).repeat_interleave(width, 1)[:, None], *given[1:])


def _weight(module: nn.Module) -> Tensor | None:
    """Of a linear layer, [in, out]; GPT-2's Conv1D stores it so."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2 or isinstance(module, nn.Embedding):
        return None
    return weight.detach() if type(module).__name__ == "Conv1D" else weight.detach().T


def _equal(weight: Tensor, wanted: Tensor) -> bool:
    return weight.shape == wanted.shape and torch.equal(weight, wanted.to(weight))


def _with_first(returned: Any, tensor: Tensor) -> Any:
    """What a module returned, with another first tensor."""
    if isinstance(returned, Tensor):
        return tensor
    if isinstance(returned, (tuple, list)):
        place = next(number for number, one in enumerate(returned) if isinstance(one, Tensor))
        return type(returned)([*returned[:place], tensor, *returned[place + 1 :]])
    raise CaptureError(f"a layer returned {type(returned).__name__}; expected a tensor, or a tuple with one.")
