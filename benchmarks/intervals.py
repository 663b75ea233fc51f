"""Bounds of all weights of a head against one linear program for each: ratio of CPU time, one thread, one run.

    OMP_NUM_THREADS=1 python benchmarks/intervals.py

The baseline is SciPy's `linprog` (HiGHS) for every bound, on some hundred bounds of a trained 128-token head, scaled to
all of them. The bounds themselves are compared on ten thousand: trained rows of two models, and rows of these made
nearly one-hot and degenerate (copies of keys).
"""

import numpy as np
from claims import at_most
from scipy.optimize import linprog
from timing import faster, least_seconds, one_thread

import identiscope
from identiscope.linalg.simplex.row_bounds import row_bounds
from identiscope.methods.fields import layer_fields
from identiscope.methods.freedom.polytopes import HeadRows, head_rows

#: Bounds that are solved by the baseline: for time, and for agreement.
TIMED, COMPARED = 200, 10_000


def rows_of_head(trace: identiscope.Trace, layer: int, head: int) -> HeadRows:
    fields = layer_fields(trace.site(layer)).of_head(head)
    return head_rows(fields.value, fields.projection, fields.raw, 0, fields.queries, fields.allowed, fields.precision)


def program(basis: np.ndarray, row: np.ndarray, key: int, sign: float, tight: bool = False) -> float:
    cost = np.zeros(len(row))
    cost[key] = sign
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10} if tight else {}
    found = linprog(cost, A_eq=basis.T, b_eq=basis.T @ row, bounds=(0, None), method="highs", options=options)
    return sign * float(found.fun) if found.status == 0 else float("nan")


def time_of_a_head(trace: identiscope.Trace) -> None:
    generator = np.random.default_rng(0)
    for layer, head in ((1, 3), (3, 5)):
        rows = rows_of_head(trace, layer, head)
        count = rows.allowed.queries
        polytopes = [rows.polytope(query) for query in range(count)]
        weights = np.stack([polytope.row for polytope in polytopes])
        basis = polytopes[0].basis
        row_bounds(basis, weights[:1])
        ours = least_seconds(lambda basis=basis, weights=weights: row_bounds(basis, weights))  # type: ignore[misc]
        places = generator.integers(count, size=(TIMED, 2))

        def one_by_one(basis: np.ndarray = basis, weights: np.ndarray = weights, places: np.ndarray = places) -> None:
            for number, (query, key) in enumerate(places):
                program(basis, weights[query], key, 1.0 if number % 2 else -1.0)

        theirs = least_seconds(one_by_one) * 2 * count * count / TIMED
        faster(f"all bounds of minilm layer {layer}, head {head}, {count} tokens, against linprog", theirs, ours, 40)


def agreement(traces: dict[str, tuple[identiscope.Trace, list[tuple[int, int]]]]) -> None:
    """The largest difference of any bound, from the same bound by HiGHS."""
    generator = np.random.default_rng(1)
    worst = done = 0
    each = COMPARED // (2 * 3 * sum(len(heads) for _, heads in traces.values()))
    for trace, heads in traces.values():
        for layer, head in heads:
            rows = rows_of_head(trace, layer, head)
            for kind in ("trained", "nearly one-hot", "copies"):
                for _ in range(-(-each // 20)):
                    polytope = rows.polytope(int(generator.integers(rows.allowed.queries // 2, rows.allowed.queries)))
                    basis, row = polytope.basis, polytope.row
                    if kind == "nearly one-hot":
                        row = row**8 / (row**8).sum()
                    elif kind == "copies":
                        half = len(row) // 2
                        points = np.concatenate([basis[:half], basis[:half]])
                        left, sizes, _ = np.linalg.svd(points, full_matrices=False)
                        basis = np.ascontiguousarray(left[:, sizes > 1e-9 * sizes[0]])
                        row = row[: 2 * half] / row[: 2 * half].sum()
                    if basis.shape[1] >= len(row):
                        continue
                    found = row_bounds(basis, row[None])
                    for key in generator.choice(len(row), size=min(20, len(row)), replace=False):
                        for bound, sign in ((found.lower[0, key], 1.0), (found.upper[0, key], -1.0)):
                            expected = program(basis, row, key, sign, tight=True)
                            if expected == expected:
                                worst, done = max(worst, abs(bound - expected)), done + 1
    print(f"{done:,} bounds compared")
    at_most("largest difference from HiGHS, in 1e-9", worst / 1e-9, 1.0)


if __name__ == "__main__":
    one_thread()
    text = identiscope.PASSAGE
    minilm = identiscope.trace("minilm", identiscope.load("minilm").tokenizer(text)["input_ids"][:128])
    smollm2 = identiscope.trace("smollm2", text)
    time_of_a_head(minilm)
    agreement(
        {
            "minilm": (minilm, [(0, 4), (2, 5), (3, 1), (5, 7)]),
            "smollm2": (smollm2, [(0, 0), (10, 3), (29, 8)]),
        }
    )
