"""Draw the pictures of the documentation: `python docs/figures.py [NAME …]`; each is a function here of its name."""

import copy
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes

import identiscope

IMAGES = Path(__file__).parent / "images"


def shifted_values(module: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """A BERT with other value biases and the same function: what is added to b_V is taken off b_O again."""
    other = copy.deepcopy(module)
    generator = torch.Generator().manual_seed(seed)
    for layer in other.encoder.layer:  # type: ignore[operator, union-attr]
        value, output = layer.attention.self.value, layer.attention.output.dense
        with torch.no_grad():
            shift = torch.randn(value.bias.shape, generator=generator, dtype=torch.float64)
            shift = (0.5 * shift * value.weight.double().norm(dim=1)).to(value.weight.dtype)
            value.bias += shift
            output.bias -= output.weight @ shift
    return other


def value_bias() -> None:
    """One head of minilm and of the same function with another value bias: eq. 9, and what keeps row sums."""
    model = identiscope.load("minilm")
    module = copy.deepcopy(model.module).double()
    traces = [
        identiscope.trace(identiscope.load(one, model.tokenizer), identiscope.PASSAGE)
        for one in (module, shifted_values(module))
    ]
    figure, axes = plt.subplots(2, 2, figsize=(7.6, 7.4), sharex=True, sharey=True, constrained_layout=True)
    names = {"effective": "effective, eq. 9", "effective_simplex_span": "effective, row sums kept"}
    for line, (name, title) in zip(axes, names.items(), strict=True):
        maps = [
            identiscope.ask(name, trace, layers=[2], heads=[7])[name].values[0, 0, 40:80, 40:80] for trace in traces
        ]
        reach = max(float(np.abs(cells).max()) for cells in maps)
        for ax, cells, which in zip(line, maps, ("as trained", "value bias shifted, same function"), strict=True):
            _signed(ax, cells, reach)
            ax.set_title(f"{title}\n{which}", fontsize="medium")
    for ax in axes[-1]:
        ax.set_xlabel("key")
    for ax in axes[:, 0]:
        ax.set_ylabel("query")
    figure.savefig(IMAGES / "value-bias.png", dpi=110)


def _signed(ax: Axes, cells: np.ndarray, reach: float) -> None:
    image = ax.imshow(cells, cmap="PuOr", vmin=-reach, vmax=reach, interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    plt.colorbar(image, ax=ax, shrink=0.8)


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for name in sys.argv[1:] or ["value_bias"]:
        globals()[name]()
