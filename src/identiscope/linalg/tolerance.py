"""The only home of a tolerance: every cutoff and floor of the package, and why it is what it is."""

import math

import torch

from identiscope.errors import InputError

#: Squaring a matrix squares its condition number. A Gram matrix summed in float64 resolves singular values
#: down to about sqrt(eps64) = 1.5e-8 of the largest; at 1e-5 its eigenvalues still carry six digits and the
#: rows solved from it reproduce the output to about eps64 / 1e-5 = 2e-11. A float32 pass has its noise floor
#: at max(shape)·1.2e-7 (6e-5 at 512 tokens), above this, so Gram matrices suffice there; where the cutoff is
#: lower (a float64 pass, a tiny float32 one), an orthogonal factorisation is used instead.
GRAM_FLOOR = 1e-5

#: How much rounding, relative to the square of the cutoff, a Gram matrix formed as R·G·Rᵀ may carry.
GRAM_NOISE_SHARE = 1e-2

#: From this ratio of smallest to largest singular value on, an inverted Cholesky factor loses at most
#: eps64 / 1e-2² = 2e-12 of the output, and the eigenvectors of the Gram matrix need not be computed.
WELL_CONDITIONED = 1e-2

#: How far cells of a position bias may be from its thin form: some families add it inside a product, from which it is
#: had up to rounding. A logit that is off by so much moves a weight by a quarter of that, which is measured with all.
THIN_POSITION = 1e-4

#: From this condition of [T,1] on, rounding of a float32 context moves effective weights by 2e-4 of their size or more.
ENLARGED_ROUNDING = 3e3

#: A bound proves a rank only where it clears the cutoff by this share: far more than float64 rounds it by.
PROOF_MARGIN = 1e-2

#: A factorisation of a Gram matrix less the square of a cutoff counts what is above it for certain, but for eigenvalues
#: that differ from the square by no more than this share: at `GRAM_FLOOR` and 2,000 rows it is rounded by 0.01 of that.
#: It is rounded relative to its largest eigenvalue, so that a higher cutoff leaves less in doubt (`stacked_margin`).
STACKED_MARGIN = 0.05

#: What is in doubt in any case: the largest eigenvalue, which the cutoff is relative to, is known to far more digits.
_LEAST_MARGIN = 1e-6

#: Below this ratio between the last kept and the first dropped singular value, a rank is called uncertain.
CLEAR_GAP = 3.0

#: A Newton iteration on rows of order one is finished at this residual, relative to the target.
NEWTON_FINISHED = 1e-13

#: A row that a Newton iteration left with more than this residual is not solved.
NEWTON_ACCEPTED = 1e-10

#: A vertex, solved again in float64, keeps every constraint to this, relative to the row sum.
VERTEX_ROUNDING = 4e-15

#: The feasibility HiGHS is asked for; the vertex that is made of what it found is better than that.
PROGRAM_FEASIBILITY = 1e-9

#: A cone program that ends with a wider gap than this, in units of its costs, is held against the exact programs too.
CONE_GAP = 1e-6

#: A sum of weights whose least is at most this, in parts of the row sum, can be zero: no program tells the two apart.
LEAST_DENOMINATOR = PROGRAM_FEASIBILITY

#: A variance below this share of the mean square is rounding, and a correlation with it is undefined.
VARIANCE_FLOOR = 1e-20

#: A direction whose projection keeps less than this share of its norm has no part in the null space.
DIRECTION_FLOOR = 1e-9

_HALF_PRECISIONS = (torch.float16, torch.bfloat16)
_PRECISIONS = (torch.float64, torch.float32, *_HALF_PRECISIONS)


def machine_epsilon(precision: torch.dtype) -> float:
    """Spacing of the numbers next to one.

    >>> machine_epsilon(torch.float32)
    1.1920928955078125e-07
    """
    if precision not in _PRECISIONS:
        raise InputError(
            f"precision {precision} was given, expected one of {', '.join(map(str, _PRECISIONS))}; "
            "pass the dtype in which the forward pass computed the values"
        )
    return float(torch.finfo(precision).eps)


def relative_cutoff(keys: int, channels: int, model: int, precision: torch.dtype) -> float:
    """Cutoff of the singular values of T (keys×model, of rank at most `channels`), relative to the largest.

    float64 and float32 products are summed in their own precision: max(shape)·eps, as LAPACK users expect.
    float16 and bfloat16 products are summed in float32 and rounded once, each number by an error of its own of
    standard deviation eps/√12 of it. Such errors have a spectral norm of about the largest norm of a row plus that of
    a column, times eps/√12, and neither norm exceeds σ_max: at most eps/√3·σ_max. max(shape)·eps would exceed one from
    128 tokens on in bfloat16 and call every rank zero; the bound for errors that all agree, sqrt(rank)·eps/2, still
    calls a third of the directions of a short text rounding that a float32 pass of the same text shows to be real.

    >>> relative_cutoff(512, 32, 384, torch.float32) == 512 * 2**-23
    True
    """
    epsilon = machine_epsilon(precision)
    if precision in _HALF_PRECISIONS:
        return epsilon / math.sqrt(3)
    return max(keys, model) * epsilon


def output_resolution(precision: torch.dtype) -> float:
    """Relative size below which a direction of T cannot be seen in an output of this precision.

    Alternatives must keep the output, so they respect every direction down to here and not only those above
    `relative_cutoff`: the polytope so described is never too large. An output of half precision is often small
    beside T and rounded relative to itself, so it shows much smaller directions than eps; for these, float32's
    resolution is asked for.
    """
    finest, coarsest = 8 * machine_epsilon(torch.float64), machine_epsilon(torch.float32)
    return min(max(machine_epsilon(precision), finest), coarsest)


def alternative_tolerance(precision: torch.dtype) -> float:
    """How much of non-negativity, row sums and output a map may lose and still be called an alternative.

    What the solvers here give keeps all three to 1e-9 or better; a map that was rounded to the precision of a float32
    model, to about 1e-7. Half precisions are held to float32's, since the certificate is computed in float64.

    >>> alternative_tolerance(torch.float32)
    1e-06
    """
    return 1e-8 if precision == torch.float64 else 1e-6


def equal_rows_tolerance(channels: int, precision: torch.dtype) -> float:
    """How far two rows of T may be apart, relative to their size, and be the same at the precision of the pass.

    Equal inputs give sums of `channels` products that differ only by the order in which they were added: each is off by
    about sqrt(channels)·eps of its size.
    """
    return 4 * math.sqrt(channels) * machine_epsilon(precision)


#: A proof's run counts as the same if it changes at most so many times what putting the raw map back does.
ROUNDING_SLACK = 4.0


def least_rounding(precision: torch.dtype) -> float:
    """The least relative change that a run may be held to, where putting the raw map back happens to change less.

    The spacing of the model's own numbers; and 1e-10, to which an alternative is solved, for a float64 model.
    """
    return max(machine_epsilon(precision), NEWTON_ACCEPTED)


def stacked_margin(rows: int, relative: float) -> float:
    """The share of the square of a relative cutoff within which a Gram matrix of so many rows leaves a rank in doubt.

    >>> stacked_margin(2000, GRAM_FLOOR)
    0.05
    >>> stacked_margin(2000, 1e-3) < 1e-5
    True
    """
    return max(_LEAST_MARGIN, STACKED_MARGIN * max(rows, 1) / 2000 * min(1.0, GRAM_FLOOR / relative) ** 2)


#: By how much of its largest number what a rewritten model returns may move: some thousand roundings in each precision,
#: far below what a wrong rewriting does (0.1 and more). In float64 every step of both passes is taken in float64.
REWRITTEN_IN_FLOAT64, REWRITTEN_IN_FLOAT32 = 1e-10, 1e-4

#: Two answers, as shares of their sizes, are the same if they differ by at most this in total variation: a reader of a
#: hundredth does not see it, and rounding in float32 stays below it.
SAME_ANSWER = 1e-2

#: An answer is linear in attention if its slope and what the slope foretells hold to this, relative to the largest.
LINEAR_ANSWER = 1e-6
