"""Null attention that is rounding is zero in the viewer, too: rows that are identifiable have none."""

from typing import Any

import numpy as np

import families
import identiscope
from identiscope.reports.reporting import report_page

IDS = [(7 * place) % 90 + 5 for place in range(24)]


def test_null_attention_that_is_rounding_is_zero_in_a_browser(open_page: Any) -> None:
    trace = identiscope.trace(families.ALL["Llama"].model(), IDS)
    tab = open_page(report_page(trace, with_verdict=False))
    found = tab.evaluate("identiscope.maps(1, 2).then((maps) => Array.from(maps.simplex_null))")
    free = identiscope.attention_identifiability(trace)["simplex_null_dimension"].sel(layer=1, head=2).values > 0
    assert np.array_equal(np.reshape(found, (24, 24)).any(1), free) and 0 < free.sum() < 24
