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
