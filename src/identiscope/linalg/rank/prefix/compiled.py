"""All prefixes of a text one after the other, compiled: each key is rotated into the triangle of the keys before it.

With V = Q·R over a prefix, one more row of V is rotated into R by d_v plane rotations, which lose nothing however long
the text and however ill-conditioned the prefix: no Gram matrix is formed and none inverted. Everything here is plain
loops over arrays (`linalg/compiling.py`).
"""

import numpy as np
from numpy.typing import NDArray

from identiscope.linalg.compiling import Numbers, compiled

Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]

_ROUNDING = float(np.finfo(np.float64).eps)


@compiled
def distinct_rows(points: Numbers, most: int, number: Integers) -> int:
    """Write which of the distinct rows each row is, counted from 0; give the number of rows before the one too many.

    `number` [key] is written up to there. Rows are the same if all their numbers are.
    """
    keys: int = points.shape[0]
    columns = points.shape[1]
    first = np.zeros(most, np.int64)
    count = 0
    for key in range(keys):
        same = -1
        for index in range(count):
            other = first[index]
            column = 0
            while column < columns and points[key, column] == points[other, column]:
                column += 1
            if column == columns:
                same = index
                break
        if same < 0:
            if count == most:
                return key
            first[count] = key
            same = count
            count += 1
        number[key] = same
    return keys


@compiled
def independent_prefixes(
    points: Numbers,
    number: Integers,
    most: int,
    product: Numbers,
    ones: float,
    cutoffs: Numbers,
    bias: float,
    norm: float,
    floor: float,
    margin: float,
) -> int:
    """The longest prefix up to which the distinct rows of T, or of [T,1], at most `most`, are proven independent.

    `product` is RᵀR of the head, so that T·Tᵀ = V·RᵀR·Vᵀ =: K; `ones` the square of the entries of the column of ones
    (zero for T alone), `cutoffs` [length] squares of relative cutoffs, `bias` the square of the norm of a bias taken
    out, `norm` the trace of the product. The factor of a leading block of K is a leading block of its factor L, and the
    trace of the block's inverse is the sum of squares of the leading rows of L⁻¹: one factorisation answers for all
    prefixes. A prefix is proven only where the bound clears the cutoff by the share `margin`, K is no worse conditioned
    than 1 / floor², and its rounding, which is relative to ‖V‖²·‖R‖² and not to K, is a share `margin` of what counts.
    """
    columns = points.shape[1]
    rows, turned = np.zeros((most, columns)), np.zeros((most, columns))
    lower, inverse = np.zeros((most, most)), np.zeros((most, most))
    # Sums over all keys so far, and over the distinct ones.
    squares, distinct, trace, value_squares = 0.0, 0.0, 0.0, 0.0
    norms, known = np.zeros(most), 0
    for key in range(len(number)):
        index, length = number[key], key + 1
        if index == most:
            return key
        if index == known:
            row = rows[index]
            row[:] = points[key]
            for k in range(columns):
                value_squares += row[k] * row[k]
                for j in range(columns):
                    turned[index, j] += row[k] * product[k, j]
            for j in range(index + 1):
                total = ones
                for k in range(columns):
                    total += turned[index, k] * rows[j, k]
                if j == index:
                    norms[index] = total
                for k in range(j):
                    total -= lower[index, k] * lower[j, k]
                lower[index, j] = total / lower[j, j] if j < index else np.sqrt(total)
            for k in range(index):
                for j in range(k + 1):
                    inverse[index, j] -= lower[index, k] * inverse[k, j]
            inverse[index, index] = 1.0
            for j in range(index + 1):
                inverse[index, j] /= lower[index, index]
                trace += inverse[index, j] ** 2
            distinct += norms[index]
            known += 1
        squares += norms[index]
        rounding = (columns + known) * _ROUNDING * (value_squares * norm + known * ones)
        # Written so that NaN, the root of a negative number, proves nothing.
        if not (
            cutoffs[length] * max(squares, bias * length) * trace < 1 - 2 * margin
            and distinct * trace * floor**2 < 1
            and rounding * trace < margin
        ):
            return key
    return len(number)


@compiled
def settle(
    points: Numbers,
    products: Numbers,
    inverses: Numbers,
    conditions: Numbers,
    whole: Numbers,
    ones: Numbers,
    cutoffs: Numbers,
    bias: Numbers,
    floor: float,
    margin: float,
    settled: Integers,
    proven: Flags,
) -> None:
    """Write the shortest prefix from which on T, and [T,1], has full column rank: `settled` [2, head].

    What is written there before is kept where there is no such prefix. `points` [key, column] are those of one value
    head; `products` RᵀR and `inverses` R⁻¹R⁻ᵀ of its heads, `conditions` [head] of R, infinite for a head of which
    nothing is to be proven, `whole` [head] the square of the norm of T over all keys, the rest as for
    `independent_prefixes`, for each head. For shorter prefixes `proven` [2, head, length] says which have full rank.

    For a prefix with the triangle R_V, tr(R⁻ᵀ·(R_VᵀR_V)⁻¹·R⁻¹)^(-1/2) is at most the smallest singular value of T, and
    the norm of T at least the largest. Adding a key never lowers the smallest, so that one prefix that clears the
    cutoff of the whole text settles all longer ones. Sums whose terms may cancel are given what they may have lost.
    """
    keys, columns = points.shape
    heads, pivots = len(products), columns + 1
    limit = 1 - margin
    sizes, inverse_sizes, done = np.zeros(heads), np.zeros(heads), np.zeros((2, heads), np.bool_)
    for head in range(heads):
        sizes[head] = np.sqrt(_inner(products[head], products[head]))
        inverse_sizes[head] = np.sqrt(_inner(inverses[head], inverses[head]))
        if not conditions[head] < np.inf:
            done[:, head] = True
    triangle, row = np.zeros((pivots, pivots)), np.zeros(pivots)
    gram = np.zeros((columns, columns))
    inverse, both = np.zeros((pivots, pivots)), np.zeros((columns, columns))
    for key in range(keys):
        if done.all():
            return
        row[:columns] = points[key]
        row[columns] = 1.0
        for i in range(columns):
            factor = row[i]
            for j in range(columns):
                gram[i, j] += factor * row[j]
        for k in range(pivots):
            _rotate(triangle[k], row, k)
        length = key + 1
        if length < columns:
            continue
        _invert(triangle, inverse, columns)
        size = np.sqrt(_squares(triangle, columns) * _squares(inverse, columns))
        # Beyond this the triangle is too ill-conditioned to solve rows with; NaN is, too.
        if not size * floor < 1:
            continue
        for i in range(columns):
            for j in range(i + 1):
                total = 0.0
                for k in range(i, columns):
                    total += inverse[i, k] * inverse[j, k]
                both[i, j], both[j, i] = total, total
        # The last column of the inverse of the triangle of [V,1]: [−R⁻¹q; 1] / ρ. A ρ that is small beside the column
        # of ones is rounding.
        last = triangle[columns, columns]
        apart = last * last > floor**2 * length
        inverse[columns, columns] = 1 / last
        for i in range(columns):
            total = 0.0
            for k in range(i, columns):
                total += inverse[i, k] * triangle[k, columns]
            inverse[i, columns] = -total / last
        both_size, gram_size = np.sqrt(_inner(both, both)), np.sqrt(_inner(gram, gram))
        for head in range(heads):
            if done[:, head].all():
                continue
            rounding = columns * _ROUNDING * (size + conditions[head])
            least = _inner(both, inverses[head]) + rounding * both_size * inverse_sizes[head]
            bent, bend = 0.0, 0.0
            for i in range(columns):
                factor = inverse[i, columns]
                bend += factor * factor
                for j in range(columns):
                    bent += factor * inverses[head, i, j] * inverse[j, columns]
            bent += rounding * bend * inverse_sizes[head]
            extended = least + bent + inverse[columns, columns] ** 2 / ones[head]
            squares = _inner(gram, products[head]) + length * _ROUNDING * gram_size * sizes[head]
            added = ones[head] * length
            proven[0, head, length] = cutoffs[length] * max(squares, bias[head] * length) * least < limit
            proven[1, head, length] = apart and cutoffs[length] * (squares + added) * extended < limit
            plain = cutoffs[keys] * max(whole[head], bias[head] * keys) * least < limit
            simplex = apart and cutoffs[keys] * (whole[head] + ones[head] * keys) * extended < limit
            for kind, holds in enumerate((plain, simplex)):
                if holds and not done[kind, head]:
                    settled[kind, head] = length
                    done[kind, head] = True


@compiled
def triangles_at(points: Numbers, pivots: int, lengths: Integers, triangles: Numbers) -> None:
    """Write the triangles of the prefixes of these growing lengths into `triangles` [length, pivot, column]."""
    columns = points.shape[1]
    triangle, row = np.zeros((pivots, columns)), np.zeros(columns)
    place = 0
    for key in range(len(points)):
        row[:] = points[key]
        for k in range(pivots):
            _rotate(triangle[k], row, k)
        if lengths[place] == key + 1:
            triangles[place] = triangle
            place += 1
            if place == len(lengths):
                break


@compiled
def sweep(
    points: Numbers,
    begin: int,
    end: int,
    first: int,
    triangle: Numbers,
    targets: Numbers,
    squares: Numbers,
    own: Numbers,
    sums: Numbers,
    plain_left: Numbers,
    plain_solved: Flags,
    left: Numbers,
    solved: Flags,
) -> None:
    """Rotate keys `begin` to `end` into the triangle, and project the row of attention that ends at each of them.

    `points` [key, column] are the values, a one, then columns to sum over, then zeros up to a multiple of eight;
    `targets` [head, row, channel + 1] are A·[V,1] of the last keys among these. From the row `first` on are written, of
    y = A⊥ on col(V) and of y on col([V,1]), which the last pivot makes of it: Σy² and y at the last key
    [head, 2, row], Σy·column [head, 2, row, column], and, of the rows that are to be solved [row], w with y = V·w into
    `plain_left` [head, row, channel], and y = [V,1]·w into `left` [head, row, channel + 1]. Either has no rows where
    none is to be solved.
    """
    heads, rows, pivots = targets.shape
    width, wanted, pivot_count = np.uintp(points.shape[1]), sums.shape[3], np.uintp(pivots)
    channels, eight = pivot_count - np.uintp(1), np.uintp(8)
    row, right, solutions = np.zeros(width), np.zeros((heads, width)), np.zeros((heads, pivots))
    totals = np.zeros((heads, 2))
    skipped = end - begin - rows
    for key in range(begin, end):
        place = key - begin - skipped
        row[:] = points[key]
        if place < first:
            for k in range(pivot_count):
                _rotate(triangle[k], row, k)
            continue
        # Behind the pivots, what is subtracted from zero is the sums over columns.
        right[:, :pivots] = targets[:, place]
        right[:, pivots:] = 0.0
        totals[:] = 0.0
        remaining = 1.0
        for k in range(pivot_count):
            if k == channels:
                squares[:, 0, place], own[:, 0, place] = totals[:, 0], totals[:, 1]
                sums[:, 0, place] = -right[:, pivots : pivots + wanted]
            upper = triangle[k]
            cosine, sine, scale = _rotate(upper, row, k)
            # The last row of Q, in the basis in which the projected row is `value`.
            last = sine * remaining
            remaining *= cosine
            start = k - k % eight
            for head in range(heads):
                rest = right[head]
                value = rest[k] * scale
                solutions[head, k] = value
                totals[head, 0] += value * value
                totals[head, 1] += value * last
                for j in range(start, width):
                    rest[j] -= value * upper[j]
        squares[:, 1, place], own[:, 1, place] = totals[:, 0], totals[:, 1]
        sums[:, 1, place] = -right[:, pivots : pivots + wanted]
        if plain_left.shape[1] and plain_solved[place]:
            _solve(triangle, solutions, pivots - 1, right)
            plain_left[:, place] = right[:, : pivots - 1]
        if left.shape[1] and solved[place]:
            _solve(triangle, solutions, pivots, right)
            left[:, place] = right[:, :pivots]


@compiled
def _solve(triangle: Numbers, given: Numbers, count: int, found: Numbers) -> None:
    """Write w [head, pivot] with R·w = given, R the leading block of a triangle; what is behind it is overwritten."""
    pivots, eight = np.uintp(count), np.uintp(8)
    found[:] = 0.0
    # From the last pivot up, all heads together: each waits for its own number before.
    for done in range(pivots):
        pivot = pivots - np.uintp(1) - done
        upper = triangle[pivot]
        scale, start = 1 / upper[pivot], pivot - pivot % eight
        for head in range(len(given)):
            solution, value = found[head], given[head, pivot]
            for j in range(start, pivots):
                value -= upper[j] * solution[j]
            solution[pivot] = value * scale


@compiled
def _rotate(upper: Numbers, row: Numbers, pivot: int) -> tuple[float, float, float]:
    """Turn a row of the triangle and the new row so that the new one is zero at the pivot; 1/the pivot comes last."""
    # An unsigned index cannot count from the end, and a loop that may not do so runs on vectors. It starts at a
    # multiple of eight, where both rows are zero up to the pivot, so that nothing is left over before a vector.
    first, width = np.uintp(pivot), np.uintp(len(row))
    old, new = upper[first], row[first]
    length = np.sqrt(old * old + new * new)
    if length == 0:
        return 1.0, 0.0, np.inf
    scale = 1 / length
    cosine, sine = old * scale, new * scale
    for j in range(first - first % np.uintp(8), width):
        above, below = upper[j], row[j]
        upper[j] = cosine * above + sine * below
        row[j] = cosine * below - sine * above
    row[first] = 0.0
    return cosine, sine, scale


@compiled
def _invert(triangle: Numbers, inverse: Numbers, count: int) -> None:
    """Write the inverse of the leading block of an upper triangle."""
    for done in range(count):
        i = count - 1 - done
        inverse[i, i:count] = 0.0
        for k in range(i + 1, count):
            factor = triangle[i, k]
            for j in range(k, count):
                inverse[i, j] -= factor * inverse[k, j]
        inverse[i, i] = 1.0
        scale = 1 / triangle[i, i]
        for j in range(i, count):
            inverse[i, j] *= scale


@compiled
def _squares(triangle: Numbers, count: int) -> float:
    """Sum of squares of the leading block of an upper triangle."""
    total = 0.0
    for i in range(count):
        for j in range(i, count):
            total += triangle[i, j] ** 2
    return total


@compiled
def _inner(first: Numbers, second: Numbers) -> float:
    """Sum of the products of two matrices of one shape."""
    total = 0.0
    for i in range(len(first)):
        for j in range(first.shape[1]):
            total += first[i, j] * second[i, j]
    return total
