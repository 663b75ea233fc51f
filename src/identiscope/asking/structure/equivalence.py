"""Two maps under two texts: are they the same to the model, here and there?"""

from typing import TYPE_CHECKING

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from identiscope.asking.provenance import map_digest, provenance, text_digest
from identiscope.errors import InputError
from identiscope.methods.fields import chosen_sites
from identiscope.methods.structure.attention_equivalence import RELATIONS, attention_equivalence
from identiscope.results import make_result, using

if TYPE_CHECKING:
    from identiscope.capture import Trace


def equivalence_under_texts(
    first: "Trace",
    second: "Trace",
    layer: int,
    head: int,
    alternative: xr.Dataset | Tensor,
    *,
    attention: str | None = None,
    stream: str | None = None,
) -> xr.Dataset:
    """Whether a map of the first text and an alternative are equivalent under its embeddings, and under another's.

    >>> other = identiscope.attention_alternative(first, 3, 5)
    >>> equivalence_under_texts(first, second, 3, 5, other).holds

    first, second: traces of two texts of the same number of keys. `holds` [relation, input] for the relations of
    section II-B of the structure-aware draft: the same output; row sums of one, too; and no negative weight, too.
    `output_difference` [input] says by how much the first fails, relative to the output. The draft's circularity is
    seen where a relation holds under the first text and not under the second.
    """
    sites = [chosen_sites(trace, [layer], attention, stream)[0] for trace in (first, second)]
    if sites[0].keys != sites[1].keys:
        raise InputError(
            f"texts of {sites[0].keys} and {sites[1].keys} keys were given; two inputs can be compared only where both"
            " have the same number of tokens. Choose texts of one length."
        )
    if isinstance(alternative, xr.Dataset):
        with using(alternative, "attention_alternative"):
            alternative = torch.from_numpy(np.array(alternative["alternative"].values))
    raw = sites[0].attention(head)
    if not alternative.is_floating_point() or alternative.shape != raw.shape or alternative.layout != torch.strided:
        raise InputError(
            f"an alternative of shape {tuple(alternative.shape)} and type {alternative.dtype} was given; expected"
            f" numbers {tuple(raw.shape)} [query, key]."
        )
    alternative = alternative.to(raw.device).double()
    equivalence = attention_equivalence(
        raw,
        alternative,
        [site.value_of(head).to(raw.device) for site in sites],
        sites[0].projection[head],
        precision=sites[0].value.dtype,
    )
    return make_result(
        "equivalence_under_texts",
        {
            "holds": (("relation", "input"), equivalence.holds),
            "output_difference": (("input",), equivalence.output_difference),
            "row_output_difference": (("input", "query"), equivalence.row_output_difference),
            "row_sum_error": ((), equivalence.row_sum_error),
            "negative_weight": ((), equivalence.negative_weight),
        },
        coordinates={"relation": list(RELATIONS), "input": ["first", "second"]},
        provenance=provenance(first, sites[0], layer=layer, head=head, attention=attention, stream=stream)
        | {"second_text_digest": text_digest(second), "alternative_digest": map_digest(alternative)}
        | {"tolerance": equivalence.tolerance, "frobenius": float((raw - alternative).norm())},
    )
