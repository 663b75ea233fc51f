"""How much tokens take from others, as Kobayashi et al. 2021 measured it of BERT-base: `python docs/mixing_ratios.py`.

    python docs/mixing_ratios.py [MODEL [FILE]]

FILE has a text in every line; without it, one short passage is all there is. The published numbers are means over
layers, tokens and 992 sequences of Wikipedia, of bert-base-uncased; of another model they are shown and not compared.
"""

import sys
from pathlib import Path

import numpy as np

import identiscope
from identiscope.linalg.decomposition import Moved, mixing_ratio

#: What counts → the published mean over layers.
PUBLISHED = {"attention": 0.9641, "norms": 0.8528, "norms, stream": 0.2225, "norms, stream, layer norm": 0.1875}
PAPERS_MODEL = "bert-base-uncased"


def ratios(trace: identiscope.Trace) -> dict[str, float]:
    """‖from others‖ ÷ (‖from others‖ + ‖from itself‖), mean over layers and tokens, by what counts.

    Attention: weights themselves, mean over heads. Norms: what is moved, of all heads together.
    """
    weights, moved = [], []
    for site in trace.sites:
        maps = site.attentions()
        weights.append(1 - float(maps.mean(0).diagonal().mean()))
        moved.append(float(mixing_ratio(Moved(maps, site.value, site.projection, None, (), 1.0, None)).mean()))
    behind = [
        float(identiscope.ask(name, trace)["mixing_ratio"].mean()) for name in ("residual_norm", "layer_norm_norm")
    ]
    return dict(zip(PUBLISHED, [float(np.mean(weights)), float(np.mean(moved)), *behind], strict=True))


def main(name: str = PAPERS_MODEL, file: str = "") -> None:
    """Measure, and print beside what is published."""
    try:
        model = identiscope.load(name)
    except identiscope.IdentiscopeError as error:
        sys.exit(f"{error}\nNothing was measured. Another model can be: python docs/mixing_ratios.py minilm")
    texts = Path(file).read_text(encoding="utf-8").splitlines() if file else [identiscope.PASSAGE]
    found = [ratios(identiscope.trace(model, text, truncate=True)) for text in texts if text.strip()]
    if not found:
        sys.exit(f"{file} has no text.")
    print(f"{name}, {len(found)} texts")
    for what, published in PUBLISHED.items():
        mean = float(np.mean([one[what] for one in found]))
        print(f"{what:26} {mean:.4f}   published of {PAPERS_MODEL}: {published:.4f}")
    if not file or name != PAPERS_MODEL:
        print("Other texts or another model than the paper's: the numbers need not agree.")


if __name__ == "__main__":
    main(*sys.argv[1:])
