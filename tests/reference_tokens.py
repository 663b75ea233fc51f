"""Token identifiability written out from the paper (section 4, appendix B.1) in plain NumPy float64, slowly."""

import math

import numpy as np


def distance(one: np.ndarray, other: np.ndarray, metric: str) -> float:
    if metric == "l2":
        return float(np.sqrt(((one - other) ** 2).sum()))
    sizes = np.linalg.norm(one) * np.linalg.norm(other)
    return 1.0 if sizes == 0 else 1.0 - float(one @ other) / float(sizes)


def identified(predicted: np.ndarray, inputs: np.ndarray, lengths: list[int], metric: str, offset: int = 0):
    """For every token that has a target: (row, row of the nearest, whether right), token by token."""
    answers, start = [], 0
    for length in lengths:
        for place in range(length):
            goal = place + offset
            if not 0 <= goal < length:
                continue
            away = [distance(predicted[start + place], inputs[start + other], metric) for other in range(length)]
            nearest = min(range(length), key=lambda other: (away[other], other))
            right = nearest == goal or bool((inputs[start + nearest] == inputs[start + goal]).all())
            answers.append((start + place, start + nearest, right))
        start += length
    return answers


def rate(predicted: np.ndarray, inputs: np.ndarray, lengths: list[int], metric: str, offset: int = 0) -> float:
    answers = identified(predicted, inputs, lengths, metric, offset)
    return sum(right for _, _, right in answers) / len(answers)


def gelu(x: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda value: 0.5 * value * (1 + math.erf(value / math.sqrt(2))))(x)


def predict(weights: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    if "weight" in weights:
        return x @ weights["weight"]
    return gelu(x @ weights["weight_in"] + weights["bias_in"]) @ weights["weight_out"] + weights["bias_out"]


def loss(weights: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray, kind: str) -> float:
    predicted = predict(weights, x)
    if kind == "l2":
        return float(((predicted - y) ** 2).sum(1).mean())
    return float(np.mean([distance(one, other, "cosine") for one, other in zip(predicted, y, strict=True)]))


def numerical_gradient(weights, x, y, kind, step=1e-6):
    gradients = {}
    for name, weight in weights.items():
        gradient = np.zeros_like(weight)
        for index in np.ndindex(weight.shape):
            moved = {key: value.copy() for key, value in weights.items()}
            moved[name][index] += step
            up = loss(moved, x, y, kind)
            moved[name][index] -= 2 * step
            gradient[index] = (up - loss(moved, x, y, kind)) / (2 * step)
        gradients[name] = gradient
    return gradients


def adam(weight, gradients, rate, first_decay=0.9, second_decay=0.999, epsilon=1e-8):
    """Algorithm 1 of Kingma & Ba on a list of gradients."""
    first, second = np.zeros_like(weight), np.zeros_like(weight)
    for step, gradient in enumerate(gradients, 1):
        first = first_decay * first + (1 - first_decay) * gradient
        second = second_decay * second + (1 - second_decay) * gradient**2
        corrected = first / (1 - first_decay**step)
        weight = weight - rate * corrected / (np.sqrt(second / (1 - second_decay**step)) + epsilon)
    return weight


def bootstrap(correct: list[int], total: list[int], draws: np.ndarray, confidence: float) -> tuple[float, float]:
    """Percentiles of the rate over the given draws of sentence numbers."""
    rates = [sum(correct[i] for i in draw) / sum(total[i] for i in draw) for draw in draws]
    tail = 100 * (1 - confidence) / 2
    return float(np.percentile(rates, tail)), float(np.percentile(rates, 100 - tail))
