"""Whether texts that run together give what each gives alone: tried once for each model, as a user would have to."""

from weakref import WeakKeyDictionary

import torch
from torch import nn

from identiscope.capture.batch import Batch
from identiscope.capture.capturing import trace_batch
from identiscope.capture.inputs import TokenRow, encode
from identiscope.capture.models import Model
from identiscope.capture.trace import Trace
from identiscope.errors import IdentiscopeError
from identiscope.linalg.agreement import relative_errors

# What padding may change by rounding, of the largest number; in half precision little more than the cells that a mask
# allows can be told. Taken for more than rounding, it costs time alone: each text is then run by itself.
_ROUNDING = {torch.float64: 1e-5, torch.float32: 1e-3}
_ROUGH = 0.1
_LONG, _SHORT = range(3, 12), range(3, 6)

# What was found of each model, and of what state of it.
_known: "WeakKeyDictionary[nn.Module, tuple[object, bool]]" = WeakKeyDictionary()


def passes(model: Model, batch: Batch) -> list[Batch]:
    """What is run together: all texts of a batch, or each alone where padding would change what it gives."""
    if not batch.is_padded or (not batch.apart and pads_well(model)):
        return batch.passes()
    return [batch.single(text) for text in range(batch.size)]


def pads_well(model: Model) -> bool:
    """Whether a model gives for a text with padding behind it what it gives for the text alone.

    Some leave their mask out where nothing is padded, and attend otherwise then; some pool, patch or route over all
    that they are given. Where it cannot be tried, it is not relied on.
    """
    # Hooks have numbers of their own, which are never given twice.
    hooks = [number for part in model.module.modules() for number in (*part._forward_hooks, *part._forward_pre_hooks)]
    state = model.dtype, getattr(model.config, "_attn_implementation", None), tuple(hooks)
    known, pads = _known.get(model.inner, (None, False))
    if known != state:
        pads = _tried(model)
        _known[model.inner] = state, pads
    return pads


def _tried(model: Model) -> bool:
    rows = [TokenRow(list(ids), None, None, [False] * len(ids), 0) for ids in (_LONG, _SHORT)]
    try:
        batch = encode(model, rows, targets=[None, None])
        padded, alone = trace_batch(model, batch)[1], trace_batch(model, batch.single(1))[0]
    except IdentiscopeError:
        return False
    return _alike(padded, alone, _ROUNDING.get(model.dtype, _ROUGH))


def _alike(one: Trace, other: Trace, tolerance: float) -> bool:
    def form(trace: Trace) -> list[tuple[object, ...]]:
        sites = [(site.kind, site.layer, site.mask, site.queries, site.keys) for site in trace.sites]
        return sites + [(name, *map(len, (part.tokens, part.hidden_states))) for name, part in trace.streams.items()]

    if form(one) != form(other):
        return False
    pairs = [(mine.context, theirs.context) for mine, theirs in zip(one.sites, other.sites, strict=True)]
    for name, part in other.streams.items():
        pairs += zip(one.streams[name].hidden_states, part.hidden_states, strict=True)
    if any(mine.shape != theirs.shape for mine, theirs in pairs):
        return False
    return all(error <= tolerance for error in relative_errors(pairs))
