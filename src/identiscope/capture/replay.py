"""The model as a function from input embeddings to the hidden states of every layer."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, overload

import torch
from torch import Tensor, nn

from identiscope.capture.batch import Batch
from identiscope.capture.experts import PlainExperts
from identiscope.capture.forward import forward
from identiscope.capture.models import Model
from identiscope.capture.twin import original, twin
from identiscope.capture.watch.plain_attention import PlainAttention
from identiscope.errors import CaptureError, InputError
from identiscope.linalg.agreement import explained_by, relative_error

States = tuple[Tensor, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Replay:
    """Input embeddings [n, d] to hidden states (the embeddings, then what each block wrote), each [n, d].

    >>> states = trace.replay(trace.embeddings)
    >>> torch.func.jvp(trace.replay, (trace.embeddings,), (direction,))

    With several streams (encoder and decoder), a mapping of embeddings gives a mapping of states.
    It runs the model itself, on PyTorch's attention in plain operations, so that forward-mode derivatives
    and `vmap` pass through. `entries` are the module calls, by stream, that read the input embeddings, and `shapes`
    the shapes of these.
    """

    model: Model
    batch: Batch
    entries: Mapping[str, frozenset[tuple[nn.Module, int]]]
    norms: Mapping[str, nn.Module]
    shapes: Mapping[str, tuple[int, ...]]

    @overload
    def __call__(self, embeddings: Tensor, *, summed: bool = False) -> States: ...
    @overload
    def __call__(self, embeddings: Mapping[str, Tensor], *, summed: bool = False) -> dict[str, States]: ...
    def __call__(
        self, embeddings: Tensor | Mapping[str, Tensor], *, summed: bool = False
    ) -> States | dict[str, States]:
        """Hidden states for these input embeddings.

        summed: the embeddings are the sums (token + segment + position) before the embedding norm, if the
        model has one there.
        """
        if isinstance(embeddings, Mapping):
            return self._run(embeddings, summed)
        if len(self.entries) != 1:
            raise CaptureError(
                f"{self.model.name} has the streams {sorted(self.entries)}; give a mapping from stream to embeddings."
            )
        stream = next(iter(self.entries))
        return self._run({stream: embeddings}, summed)[stream]

    def _check_shapes(self, embeddings: Mapping[str, Tensor]) -> None:
        for stream, x in embeddings.items():
            if stream not in self.entries:
                raise InputError(f"embeddings of {stream!r} were given; {self.model.name} has {sorted(self.entries)}.")
            if tuple(x.shape) != self.shapes[stream] or not x.is_floating_point():
                raise InputError(
                    f"embeddings of shape {tuple(x.shape)} and type {x.dtype} were given for {stream}; this text has"
                    f" {self.shapes[stream]} [token, model]."
                )

    def _run(self, embeddings: Mapping[str, Tensor], summed: bool) -> dict[str, States]:
        running = twin(self.model)
        copies = running.copies
        self._check_shapes(embeddings)
        # States come back to where the embeddings were given, wherever the layers are that made them.
        home = next((x.device for x in embeddings.values()), self.model.device)
        inputs = {
            stream: _normed(copies[self.norms[stream]], x) if summed and stream in self.norms else x
            for stream, x in embeddings.items()
        }
        replaced = {
            (copies[module], number): inputs[stream]
            for stream, entries in self.entries.items()
            if stream in inputs
            for module, number in entries
        }
        counts: dict[nn.Module, int] = {}

        def enter(module: nn.Module, args: Any, kwargs: Any) -> Any:
            number = counts[module] = counts.get(module, -1) + 1
            x = replaced.get((module, number))
            if x is None:
                return None
            if args:
                return (x.to(args[0].device).reshape(args[0].shape), *args[1:]), kwargs
            given = kwargs["hidden_states"]
            return args, kwargs | {"hidden_states": x.to(given.device).reshape(given.shape)}

        _use_plain_activations(running.module)
        for module in {module for module, _ in replaced}:
            module.register_forward_pre_hook(enter, with_kwargs=True)
        with PlainAttention(), PlainExperts():
            states = forward(running, self.batch.arguments).hidden_states
        return {
            stream: tuple(
                (inputs[stream] if layer == 0 and stream in inputs else state[0]).to(home)
                for layer, state in enumerate(layers)
            )
            for stream, layers in states.items()
        }


def _normed(norm: nn.Module, x: Tensor) -> Tensor:
    """A norm of the model's, where its weights are."""
    normed: Tensor = norm(x.to(next((weight.device for weight in norm.parameters()), x.device)))
    return normed


def _use_plain_activations(module: nn.Module) -> None:
    """Bloom's activation hides its formula in a function that forward-mode derivatives cannot pass; use the formula."""
    for inner in module.modules():
        if type(inner).__name__ == "BloomGelu":
            inner.forward = sys.modules[type(inner).__module__].bloom_gelu_forward


def make_replay(model: Model, batch: Batch, states: Mapping[str, States], norms: Mapping[str, nn.Module]) -> Replay:
    """Find the calls that read the input embeddings of one text, and check that replaying them reproduces `states`."""
    entries: dict[str, set[tuple[nn.Module, int]]] = {stream: set() for stream in states}
    counts: dict[nn.Module, int] = {}

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        number = counts[module] = counts.get(module, -1) + 1
        x = args[0] if args else kwargs.get("hidden_states")
        if not isinstance(x, Tensor):
            return
        for stream, layers in states.items():
            # A batch of one: [1, n, d] and XLNet's [n, 1, d] hold the same numbers in the same order.
            first = layers[0]
            alike = x.numel() == first.numel() and x.shape[-1] == first.shape[-1] and x.dtype == first.dtype
            if alike and torch.equal(x.reshape(first.shape), first.to(x.device)):
                entries[stream].add((original(module), number))

    running = twin(model)
    for module in running.module.modules():
        module.register_forward_pre_hook(enter, with_kwargs=True)
    with torch.no_grad():
        forward(running, batch.arguments)
    missing = [stream for stream, places in entries.items() if not places]
    if missing:
        raise CaptureError(
            f"no module of {model.name} reads the input embeddings of {missing}; it cannot be replayed from them."
        )
    shapes = {stream: tuple(layers[0].shape) for stream, layers in states.items()}
    replay = Replay(model, batch, {stream: frozenset(places) for stream, places in entries.items()}, norms, shapes)
    _check(replay, states)
    return replay


def _check(replay: Replay, states: Mapping[str, States]) -> None:
    """Replaying must reproduce the states, and must really depend on what is put in."""
    with torch.no_grad():
        again = replay({stream: layers[0] for stream, layers in states.items()})
        zero = replay({stream: torch.zeros_like(layers[0]) for stream, layers in states.items()})
    for stream, layers in states.items():
        for layer, (replayed, state) in enumerate(zip(again[stream], layers, strict=True)):
            error = relative_error(replayed, state)
            if not explained_by(error, state.dtype):
                casting = torch.is_autocast_enabled(replay.model.device.type)
                raise CaptureError(
                    f"replaying {replay.model.name} from its input embeddings gives other hidden states: {stream},"
                    f" layer {layer}, relative error {error:.1e}."
                    f"{' Autocast rounds inside its layers: leave it, or load the model in half.' * casting}"
                )
        if len(layers) > 1 and torch.equal(zero[stream][1], layers[1].to(zero[stream][1].device)):
            raise CaptureError(f"the hidden states of {replay.model.name} do not follow its input embeddings.")
