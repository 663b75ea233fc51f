"""Freedom with a little room: cone programs against Clarabel, and what a prediction's freedom costs in passes.

    OMP_NUM_THREADS=1 python benchmarks/freedom.py

The baseline is Clarabel, one program for each end of the strongest weight of every row of a trained 128-token head, on
every fourth row and scaled to all. Both are held against each other: they must agree to 1e-6.
"""

import time

import numpy as np
import torch
from claims import at_most, claim, need
from timing import cpu_seconds, faster, least_seconds, one_thread

import identiscope
from identiscope.linalg.simplex.cone import cone_rows
from identiscope.methods.predictions import drawing_back

EPSILON = 0.01
QUESTION = (
    "The old lighthouse keeper walked down the stairs every morning to look at the sea. One day he found a letter in a"
    " bottle. It said that the treasure was hidden under the third stone behind the house of the old"
    " captain, who had left the island many years ago and had never come back to the"
)


def by_clarabel(points: np.ndarray, row: np.ndarray, radius: float, cost: np.ndarray) -> float:
    """The least cost·x over rows whose output moves by at most the radius."""
    import clarabel
    from scipy import sparse

    keys, channels = points.shape
    constraints = np.vstack([np.ones((1, keys)), -np.eye(keys), np.zeros((1, keys)), -points.T / radius])
    right = np.concatenate([[row.sum()], np.zeros(keys), [1.0], -(points.T @ row) / radius])
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(keys), clarabel.SecondOrderConeT(channels + 1)]
    options = clarabel.DefaultSettings()
    options.verbose = False
    nothing = sparse.csc_matrix((keys, keys))
    solver = clarabel.DefaultSolver(nothing, cost, sparse.csc_matrix(constraints), right, cones, options)
    return float(solver.solve().obj_val)


def cones(trace: identiscope.Trace) -> None:
    """Both ends of the strongest weight of every row."""
    for layer, head in ((1, 3), (3, 5)):
        site = trace.site(layer)
        points = (site.value_of(head).double() @ site.projection[head].double()).numpy()
        left, sizes, _ = np.linalg.svd(points - points.mean(0), full_matrices=False)
        points = np.ascontiguousarray(left[:, : site.value.shape[-1]] * sizes[: site.value.shape[-1]])
        rows, radii = site.attention(head).numpy(), EPSILON * site.output_size().numpy()
        costs = np.eye(rows.shape[1])[rows.argmax(1)]
        off, gap = 0.0, 0.0
        chosen = range(0, len(rows), 4)

        def ours(points=points, rows=rows, radii=radii, costs=costs) -> list:  # type: ignore[no-untyped-def, type-arg]
            return [cone_rows(points, rows, radii, sign * costs) for sign in (1.0, -1.0)]

        def theirs(points=points, rows=rows, radii=radii, costs=costs) -> list:  # type: ignore[no-untyped-def, type-arg]
            return [
                [
                    by_clarabel(points, rows[place], radii[place], sign * costs[place])
                    for place in range(0, len(rows), 4)
                ]
                for sign in (1.0, -1.0)
            ]

        for sign, found, expected in zip((1.0, -1.0), ours(), theirs(), strict=True):
            values = [float(sign * costs[place] @ found.rows[place]) for place in chosen]
            off = max(off, float(np.abs(np.array(values) - expected).max()))
            gap = max(gap, float(found.gap.max()))
        what = f"ε-intervals of the strongest weights of minilm layer {layer}, head {head}, {len(rows)} tokens"
        faster(f"{what}, against Clarabel", least_seconds(theirs) * len(rows) / len(chosen), cpu_seconds(ours, 3), 5)
        at_most(f"{what}: off Clarabel, in 1e-6", off / 1e-6, 1.0)
        at_most(f"{what}: largest duality gap, in 1e-6", gap / 1e-6, 1.0)


def prediction() -> None:
    """Passes, and what the linear programs take beside them."""
    model = identiscope.load("smollm2")
    trace = identiscope.trace(model, model.tokenizer(QUESTION)["input_ids"][:60])
    programs, own = 0.0, drawing_back.kept_rows

    def timed(*given: torch.Tensor) -> torch.Tensor:
        nonlocal programs
        begin = time.process_time()
        rows = own(*given)
        programs += time.process_time() - begin
        return rows

    identiscope.prediction_freedom(trace, layers=[0], all_at_once=False, refinements=0)  # compiled
    drawing_back.kept_rows = timed  # type: ignore[assignment]
    try:
        begin = time.process_time()
        found = identiscope.prediction_freedom(trace)
        whole = time.process_time() - begin
    finally:
        drawing_back.kept_rows = own
    what = f"prediction freedom of smollm2, {len(trace.main)} tokens, {found.sizes['layer']} layers and all at once"
    at_most(f"{what}: passes", float(found.attrs["passes"]), 300, digits=0)
    measured = f"{programs:.1f} s / {whole - programs:.1f} s"
    claim(
        f"{what}: linear programs beside all else", measured, "less than the passes",
        programs < whole - programs,
    )  # fmt: skip


if __name__ == "__main__":
    one_thread()
    need("clarabel")
    text = identiscope.load("minilm").tokenizer(identiscope.PASSAGE)["input_ids"][:128]
    cones(identiscope.trace("minilm", text))
    prediction()
