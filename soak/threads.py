"""Three threads that trace, attribute, replay and call models that they share: `python -m soak threads`."""

import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from soak.outcome import Outcome

THREADS, CALLS = 3, 100
#: Families that are watched and replayed in different ways: by the interface, by hand, with an activation replaced.
FAMILIES = ("BERT", "GPT-2", "Bloom", "XLNet", "Llama")
TEXTS = [[5, 17, 42, 8, 63, 23], [11, 3, 70, 25, 41, 60, 18], [9, 33, 52, 7, 14, 80, 2, 77]]


@dataclass(frozen=True, eq=False)
class Call:
    """Something to compute, what it is called, and what it is alone."""

    name: str
    compute: Callable[[], list[torch.Tensor]]
    expected: list[torch.Tensor]


def calls() -> list[Call]:
    """Every kind of call on every model and text, with its answer when nobody else computes anything."""
    made = []
    for family in FAMILIES:
        for number, ids in enumerate(TEXTS):
            for kind, compute in kinds(model_of(family), ids).items():
                made.append(Call(f"{kind} of {family}, text {number}", compute, compute()))
    return made


_MODELS: dict[str, torch.nn.Module] = {}


def model_of(family: str) -> torch.nn.Module:
    """One model of a family, for all threads."""
    from soak import tiny  # noqa: F401  (where the families are found)

    if family not in _MODELS:
        import families

        _MODELS[family] = families.ALL[family].model()
    return _MODELS[family]


def kinds(model: torch.nn.Module, ids: list[int]) -> dict[str, Callable[[], list[torch.Tensor]]]:
    """What can be computed of a text: functions without arguments."""
    import identiscope

    traced = identiscope.trace(model, ids)
    replay = traced.replay

    def attribution(fast: bool) -> list[torch.Tensor]:
        found = identiscope.hidden_token_attribution(
            identiscope.trace(model, ids), mode="estimate", probes=3, fast=fast
        )
        return [torch.from_numpy(found["contribution"].values), torch.from_numpy(found["norm"].values)]

    def plain() -> list[torch.Tensor]:
        with torch.no_grad():
            outputs: Any = model(torch.tensor([ids]), output_hidden_states=True, return_dict=True)
        return [outputs[0], *outputs.hidden_states]

    def trace() -> list[torch.Tensor]:
        found = identiscope.trace(model, ids)
        return [*found.hidden_states, *(site.attentions() for site in found.sites)]

    def changed() -> list[torch.Tensor]:
        return list(identiscope.substitute(model, ids, {(0, 1): lambda attention: attention.flip(-1)}).hidden_states)

    return {
        "a plain call": plain,
        "a trace": trace,
        "a replay": lambda: [state.detach() for state in replay(1.5 * traced.embeddings)],
        "a substitution": changed,
        "an attribution through blocks": lambda: attribution(True),
        "an attribution through the replay": lambda: attribution(False),
    }


def run(seconds: float | None = None, count: int = CALLS) -> list[Outcome]:
    """Each thread makes so many calls in an order of its own; or as many as it can in so many seconds."""
    torch.set_num_threads(1)
    known = calls()
    failures: list[str] = []
    done = [0] * THREADS
    together = threading.Barrier(THREADS)
    end = None if seconds is None else time.monotonic() + seconds
    interval = sys.getswitchinterval()

    def work(number: int) -> None:
        chance = random.Random(number)
        together.wait()
        while done[number] < count if end is None else time.monotonic() < end:
            call = chance.choice(known)
            try:
                found = call.compute()
                if not all(torch.equal(one, two) for one, two in zip(found, call.expected, strict=True)):
                    failures.append(f"{call.name}: other numbers than alone")
            except Exception as error:
                failures.append(f"{call.name} raised {type(error).__name__}: {str(error)[:160]}")
            done[number] += 1

    # Threads take turns far more often than they would, so that they meet where they must not.
    sys.setswitchinterval(1e-4)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    goal = f"{THREADS} threads on shared models get, bit for bit, what one alone gets"
    return [Outcome(goal, sum(done), tuple(failures), f"{len(known)} different calls")]
