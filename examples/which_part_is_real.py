"""How much of one head's attention is real, what it could be instead, and the proof in the running model.

python examples/which_part_is_real.py
"""

import identiscope
from identiscope import PASSAGE

model = identiscope.load("minilm")
trace = identiscope.trace(model, PASSAGE)

result = identiscope.attention_identifiability(trace)
print(f"median null share over {result.simplex_null_share.size} heads: {float(result.simplex_null_share.median()):.2f}")

layer, head, row = 0, 0, 20
cells = identiscope.attention_intervals(trace, layer, head, row=row)
strongest = cells.isel(cell=int(cells.weight.argmax("cell")))
print(
    f"layer {layer}, head {head}: {strongest.query_token.item()!r} gives {strongest.key_token.item()!r}"
    f" {float(strongest.weight):.2f}; from {float(strongest.lower):.2f} to {float(strongest.upper):.2f} would do too"
)

other = identiscope.attention_alternative(trace, layer, head, rows=[row])
proof = identiscope.prove(model, PASSAGE, layer, head, other)
print(f"moved {float(other.total_variation.max()):.0%} of that row. {proof.attrs['verdict']}")
