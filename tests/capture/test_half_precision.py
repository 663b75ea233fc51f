"""Maps of half precision are those of the captured queries and keys; a kernel that rounds its logits has others."""

import torch

import identiscope
from identiscope.capture.samples import PASSAGE


def check_the_bound(dtype: torch.dtype) -> tuple[float, float]:
    """The docs' bound: an eager kernel rounds query·key, and again after scaling it, each to within u of it.

    Two logits that are off by ε in opposite directions move a weight by no more than tanh(ε/2), here tanh(u·|l|); its
    own rounding adds u. Largest difference and largest share of the bound, over the rows of all heads.
    """
    model = identiscope.load("minilm", dtype=dtype, attn_implementation="eager")
    trace = identiscope.trace(model, PASSAGE)
    assert trace.batch is not None
    with torch.no_grad():
        shown = model.module(**trace.batch.arguments, output_attentions=True).attentions
    unit = torch.finfo(dtype).eps / 2
    largest = share = 0.0
    for site, maps in zip(trace.sites, shown, strict=True):
        assert site.query is not None and site.key is not None
        logits = site.query.double() @ site.key.double().mT * site.scale
        bound = torch.tanh(unit * (1 + unit) * logits.abs().amax(-1)) + unit
        difference = (site.attentions() - maps[0].double()).abs().amax(-1)
        assert bool((difference <= bound).all())
        largest, share = max(largest, float(difference.max())), max(share, float((difference / bound).max()))
    return largest, share


def test_eager_maps_in_float16_differ_by_no_more_than_the_rounding_of_logits() -> None:
    largest, share = check_the_bound(torch.float16)
    assert 1e-3 < largest < 1e-2 and share > 0.1  # the bound says something


def test_eager_maps_in_bfloat16_differ_by_no_more_than_the_rounding_of_logits() -> None:
    largest, share = check_the_bound(torch.bfloat16)
    assert 1e-2 < largest < 0.1 and share > 0.1
