"""Hidden Token Attribution from the paper, literally, in plain NumPy float64. Shares no code with the package."""

import numpy as np


def block_norm(block, norm):
    """The norm of one block ∂e_j/∂x_i, [out, in]."""
    if norm == "frobenius":
        return np.sqrt((block**2).sum())
    if norm == "spectral":
        return np.linalg.svd(block, compute_uv=False)[0]
    assert norm == "ones"
    return np.sqrt((block.sum(0) ** 2).sum())


def contributions(jacobian, norm="frobenius"):
    """Eq. 11 from a whole Jacobian [output, out, input, in]: norms and contributions, [input, output]."""
    outputs, _, inputs, _ = jacobian.shape
    norms = np.zeros((inputs, outputs))
    for i in range(inputs):
        for j in range(outputs):
            norms[i, j] = block_norm(jacobian[j, :, i, :], norm)
    shares = np.zeros_like(norms)
    for j in range(outputs):
        total = 0.0
        for k in range(inputs):
            total += norms[k, j]
        for i in range(inputs):
            shares[i, j] = norms[i, j] / total
    return norms, shares


def toy_attention(x, query, key, value):
    """e_j = Σ_s A_js·W_V·x_s, with A = softmax of q·k/√d_k, and its Jacobian [output, out, input, in] by hand.

    ∂A_js/∂x_i = A_js·(∂l_js/∂x_i − Σ_r A_jr·∂l_jr/∂x_i), and l_js = (W_Q·x_j)·(W_K·x_s)/√d_k depends on x_j and x_s.
    """
    n, d = x.shape
    scale = 1 / np.sqrt(len(query))
    logits = np.array([[scale * (query @ x[j]) @ (key @ x[s]) for s in range(n)] for j in range(n)])
    attention = np.exp(logits - logits.max(1, keepdims=True))
    attention /= attention.sum(1, keepdims=True)
    output = np.array([sum(attention[j, s] * (value @ x[s]) for s in range(n)) for j in range(n)])
    jacobian = np.zeros((n, len(value), n, d))
    for j in range(n):
        for i in range(n):
            dlogits = np.zeros((n, d))
            for s in range(n):
                if i == j:
                    dlogits[s] += scale * query.T @ (key @ x[s])
                if i == s:
                    dlogits[s] += scale * key.T @ (query @ x[j])
            for s in range(n):
                dweight = attention[j, s] * (dlogits[s] - sum(attention[j, r] * dlogits[r] for r in range(n)))
                jacobian[j, :, i] += np.outer(value @ x[s], dweight)
            jacobian[j, :, i] += attention[j, i] * value
    return output, jacobian


def own_shares(contribution):
    """c_jj, and whether another input is larger, for one layer [input, output]."""
    outputs = contribution.shape[1]
    values, beaten = [], []
    for j in range(outputs):
        values.append(contribution[j, j])
        beaten.append(any(contribution[i, j] > contribution[j, j] for i in range(len(contribution))))
    return values, beaten


def group_mean(contribution_by_text, near, far):
    """Appendix C.2 before its normalisation: mean over a token's neighbours in the group, then over all tokens."""
    means = []
    for contribution in contribution_by_text:
        n = len(contribution)
        for j in range(n):
            found = [contribution[i, j] for i in range(n) if near <= abs(i - j) <= far]
            if found:
                means.append(sum(found) / len(found))
    return sum(means) / len(means) if means else float("nan")


def offset_mean(contribution_by_text, offset):
    """Mean and sum of the contributions from the token at an offset."""
    found = []
    for contribution in contribution_by_text:
        n = len(contribution)
        found += [contribution[j + offset, j] for j in range(n) if 0 <= j + offset < n]
    return sum(found) / len(found), sum(found)


def mean_ranks(values):
    """Ranks from 1, ties sharing their mean."""
    return np.array([1 + sum(other < value for other in values) + (sum(other == value for other in values) - 1) / 2
                     for value in values])  # fmt: skip


def pearson(one, other):
    """Correlation by its definition."""
    one, other = one - one.mean(), other - other.mean()
    return (one * other).sum() / np.sqrt((one**2).sum() * (other**2).sum())


def log_errors(sums, sizes, contribution, slope, anchor_sums, anchor, width):
    """Standard errors of log norm and log contribution of one layer and their degrees of freedom, cell by cell.

    sums [output, input, group] of the squared responses to the probes of each group, sizes [group]; contribution
    [output, input]; slope (two numbers), anchor_sums [output, input, group] and anchor [output, input], or None.
    """
    outputs, inputs, groups = sums.shape
    probes = sum(sizes)

    def deviations(row):
        """Of each group from the mean: straight, and as what the logarithm of the mean loses without the group."""
        mean = sum(row) / probes
        straight = [row[g] / sizes[g] / mean - 1 for g in range(groups)]
        without = [(sum(row) - row[g]) / (probes - sizes[g]) for g in range(groups)]
        bent = [(np.log(mean) - np.log(without[g])) * (probes - sizes[g]) / sizes[g] for g in range(groups)]
        middle = sum(bent[g] * sizes[g] for g in range(groups)) / probes
        return straight, [one - middle for one in bent]

    straight, bent = np.zeros(sums.shape), np.zeros(sums.shape)
    for j in range(outputs):
        for i in range(inputs):
            straight[j, i], bent[j, i] = deviations(sums[j, i])
    extra, shared_extra, spent = np.zeros((outputs, inputs)), np.zeros((outputs, inputs)), 0.0
    if anchor is not None:
        x, y, off = np.zeros((outputs, inputs, groups, 2)), np.zeros((outputs, inputs, groups, 2)), {}
        for j in range(outputs):
            for i in range(inputs):
                column = anchor_sums[:, i].mean(0)
                for r, row in enumerate((anchor_sums[j, i], column)):
                    x[j, i, :, r], y[j, i, :, r] = deviations(row)
                known = (anchor[j, i], anchor[:, i].mean())
                off[j, i] = np.log([known[0] / (sum(anchor_sums[j, i]) / probes), known[1] / (sum(column) / probes)])
        moments = [sum(sizes[g] * np.outer(x[j, i, g], x[j, i, g]) for j, i in off) for g in range(groups)]
        inverse = np.linalg.inv(sum(moments))
        residual = {(j, i): straight[j, i] - x[j, i] @ slope for j, i in off}
        bent = np.array([[bent[j, i] - y[j, i] @ slope for i in range(inputs)] for j in range(outputs)])
        scores = [sum(sizes[g] * x[cell][g] * residual[cell][g] for cell in off) for g in range(groups)]
        left = 2 - sum(np.trace(inverse @ moment @ inverse @ moment) for moment in moments)
        tau = sum(score @ inverse @ score for score in scores) / left
        spent = 2 * tau / sum(sizes[g] * residual[cell][g] ** 2 for cell in off for g in range(groups))
        for j, i in off:
            common = sum(contribution[j, k] * off[j, k] for k in range(inputs))
            extra[j, i] = tau * off[j, i] @ inverse @ off[j, i]
            shared_extra[j, i] = tau * (off[j, i] - common) @ inverse @ (off[j, i] - common)
    alone = bent - np.einsum("ji,jig->jg", contribution, bent)[:, None]
    found = []
    for values, more, freedom in ((bent, extra, (groups - 1) / (1 + spent)), (alone, shared_extra, groups - 1)):
        weighted = values * np.sqrt(sizes)
        variance = (weighted**2).sum(-1) / freedom * (1 / probes - 1 / width) + more
        peaks = []
        for j in range(outputs):
            for i in range(inputs):
                second, fourth = (weighted[j, i] ** 2).mean(), (weighted[j, i] ** 4).mean()
                n = groups
                peaks.append((n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * (fourth / second**2 - 3) + 6))
        found.append((0.5 * np.sqrt(variance), 2 / (2 / freedom + max(np.mean(peaks), 0) / groups)))
    return found


def pooled_slopes(responses, anchor_responses):
    """β of one layer from one round of probes: least squares over all cells of relative deviations, two regressors."""
    outputs, inputs, probes = responses.shape
    rows, goals = [], []
    for j in range(outputs):
        for i in range(inputs):
            column = anchor_responses[:, i].mean(0)
            for p in range(probes):
                rows.append([anchor_responses[j, i, p] / anchor_responses[j, i].mean() - 1,
                             column[p] / column.mean() - 1])  # fmt: skip
                goals.append(responses[j, i, p] / responses[j, i].mean() - 1)
    return np.linalg.lstsq(np.array(rows), np.array(goals), rcond=None)[0]
