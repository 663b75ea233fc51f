"""What a worker needs to know to compute shards, wherever it is."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

from identiscope.capture.digests import model_hash
from identiscope.capture.models import Model, load
from identiscope.capture.placement import device_of_worker
from identiscope.errors import InputError
from identiscope.runs.compute.batch import Worker
from identiscope.runs.compute.identity import environment
from identiscope.runs.compute.options import options_from
from identiscope.runs.format.tables import manifest_shape


@dataclass(frozen=True)
class Work:
    """A Run's manifest, and the name of its model with what it takes to load it; pickles, for workers elsewhere.

    modules: those that bring what the Run computes beside the methods of the registry; a worker imports them first.
    """

    manifest: Mapping[str, Any]
    model: str
    loading: Mapping[str, Any]
    modules: tuple[str, ...] = ()

    def worker(self, model: Model | None = None, number: int = 0) -> Worker:
        """A worker with the model, loaded here if it is not given, and the same as the Run's; number: of the worker."""
        for name in self.modules:
            import_module(name)
        recorded, here = self.manifest["environment"], environment()
        differing = [
            f"{name} {here[name]} (the Run: {recorded[name]})" for name in recorded if here[name] != recorded[name]
        ]
        if differing:
            raise InputError(
                f"a worker has other versions than the Run: {', '.join(differing)}. Its numbers could differ in the"
                " last bits. Install the same versions; for the processor, set ATEN_CPU_CAPABILITY on all alike."
            )
        if model is None:
            device = self.loading.get("device")
            place = {} if device is None else {"device": device_of_worker(device, number)}
            model = load(self.model, **{**self.loading, **place})
            wanted = self.manifest["model"].get("device", "cpu")
            if model.device.type != wanted:
                raise InputError(
                    f"a worker would compute on {model.device.type}, and the Run does on {wanted}. Say which device:"
                    f" device={wanted!r}, on the command line --device {wanted}."
                )
            if model_hash(model) != self.manifest["model"]["weights"]:
                raise InputError(f"a worker found another model under the name {self.model} than the Run has.")
        return Worker(model, options_from(self.manifest["options"]), manifest_shape(self.manifest))


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch use so many threads, and afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
