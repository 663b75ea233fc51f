"""Draw the picture of each method that explains an outcome: `python docs/method_figures.py [NAME …]`.

Each is a function here of its method's name; `explain` draws the methods side by side. Two texts are used: a short
review for `minilm`, whose outcome is the likeness to a second text, and a sentence for `smollm2`, which says the next
word. What each method took and promised is printed.
"""

import sys
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes

import identiscope
from identiscope.views.plots.attention import name_bars
from identiscope.views.plots.kinds import DOWN, UP, matrix

IMAGES = Path(__file__).parent / "images" / "methods"
FILM, TOUCHING = "The film was slow, but the ending moved me to tears.", "similarity:A touching finale."
FRANCE = "The capital of France is the city of"


@cache
def film() -> identiscope.Trace:
    """A short review, for minilm."""
    return identiscope.trace("minilm", FILM)


@cache
def france() -> identiscope.Trace:
    """A sentence without its last word, for smollm2."""
    return identiscope.trace("smollm2", FRANCE)


@cache
def passage() -> identiscope.Trace:
    """138 tokens, more than a head of minilm has channels."""
    return identiscope.trace("minilm", identiscope.PASSAGE)


def asked(name: str, trace: identiscope.Trace, **options: Any) -> xr.Dataset:
    """What a method says, and in a line what it took."""
    result = identiscope.ask(name, trace, **options)
    told = {key: result.attrs[key] for key in ("passes", "promised_sum", "residual", "baseline") if key in result.attrs}
    print(name, trace.model.name if trace.model else "", told)
    return result


def save(name: str) -> None:
    """The figure that was drawn last, as a small file."""
    plt.gcf().savefig(IMAGES / f"{name}.png", dpi=80, pil_kwargs={"optimize": True})
    plt.close("all")


def panels(count: int, width: float = 4.2, height: float = 3.6) -> list[Axes]:
    """Some drawings side by side."""
    _, axes = plt.subplots(1, count, figsize=(width * count, height), layout="constrained", squeeze=False)
    return list(axes[0])


def heat(result: xr.Dataset, cells: xr.DataArray, ax: Axes, title: str, label: str) -> None:
    """A map or mixture with its tokens."""
    matrix(cells, ax, label, result)
    ax.set_title(title, loc="left", fontsize="medium")


def last(name: str, *, title: str, trace: identiscope.Trace | None = None, **options: Any) -> None:
    """One layer of a mixture beside all layers multiplied up."""
    result = asked(name, trace or film(), **options)
    left, right = panels(2)
    heat(result, result["step"].isel(layer=2), left, "layer 2 alone", "share")
    heat(result, result["mixture"].isel(layer=-1), right, title, "share")
    save(name)


def bars(name: str, *results: xr.Dataset) -> None:
    """Scores of both texts."""
    for ax, result in zip(panels(len(results), 4.2, 2.9), results, strict=True):
        identiscope.plot(result, ax)
        ax.set_title(
            str(result.attrs.get("outcome", result.attrs["model"])).replace(" (the most likely)", ""),
            loc="left",
            fontsize="small",
        )
    save(name)


def both(name: str, **options: Any) -> None:
    """Scores of the review and of the sentence."""
    bars(name, asked(name, film(), outcome=TOUCHING, **options), asked(name, france(), **options))


def attention() -> None:
    """One head, and all."""
    result = asked("attention", film())["attention"]
    left, right = panels(2)
    heat(result.to_dataset(), result.isel(layer=3, head=5), left, "layer 3, head 5", "attention")
    heat(result.to_dataset(), result.isel(layer=3).mean("head"), right, "layer 3, mean over heads", "attention")
    save("attention")


#: So many tokens of the passage are drawn.
_SHOWN = 64


def beside_attention(name: str, layer: int, head: int) -> None:
    """A map beside raw attention."""
    raw, result = asked("attention", passage()), asked(name, passage())
    left, right = panels(2, 4.0, 3.3)
    for ax, one, title in ((left, raw["attention"], "attention"), (right, result[name], name.replace("_", " "))):
        cells = one.isel(layer=layer, head=head).transpose("query", "key").values[:_SHOWN, :_SHOWN]
        # The few cells beyond it are as dark as the colour can be.
        reach = float(np.quantile(raw["attention"].isel(layer=layer, head=head), 0.985))
        image = ax.imshow(cells, cmap="PuOr_r", vmin=-reach, vmax=reach, interpolation="nearest")
        plt.colorbar(image, ax=ax, label="weight")
        ax.set(xlabel="key", ylabel="query")
        ax.set_title(title, loc="left", fontsize="medium")
    save(name)


def effective_simplex_span() -> None:
    """Beside raw attention."""
    beside_attention("effective_simplex_span", 3, 2)


def canonical() -> None:
    """Beside raw attention."""
    beside_attention("canonical", 3, 2)


def effective() -> None:
    """Beside raw attention."""
    beside_attention("effective", 3, 2)


def rollout() -> None:
    """One layer's attention, and all layers multiplied up."""
    raw, result = asked("attention", film()), asked("rollout", film())
    left, right = panels(2)
    heat(raw, raw["attention"].isel(layer=5).mean("head"), left, "last layer: attention, mean over heads", "attention")
    heat(result, result["rollout"].isel(layer=-1), right, "rollout, last layer", "share")
    save("rollout")


def hidden_token_attribution() -> None:
    """Two layers."""
    result = asked("hidden_token_attribution", film(), mode="exact")
    left, right = panels(2)
    for ax, layer in ((left, 0), (right, 5)):
        cells = result["contribution"].isel(layer=layer).transpose("output", "input")
        heat(result, cells, ax, f"layer {layer}", "share")
    save("hidden_token_attribution")


def received_attention() -> None:
    """Both texts."""
    bars("received_attention", asked("received_attention", film()), asked("received_attention", france()))


def weighted_norm() -> None:
    """Attention beside the length of what it moves."""
    raw, result = asked("attention", film()), asked("weighted_norm", film())
    left, right = panels(2)
    heat(raw, raw["attention"].isel(layer=3).mean("head"), left, "layer 3: attention, mean over heads", "attention")
    heat(result, result["together"].isel(layer=3), right, "layer 3: length of what is moved", "length")
    save("weighted_norm")


def gradient_attention() -> None:
    """Two layers, heads added up."""
    result = asked("gradient_attention", film(), outcome=TOUCHING)
    left, right = panels(2)
    for ax, layer in ((left, 3), (right, 5)):
        heat(result, result["gradient_attention"].isel(layer=layer).sum("head"), ax, f"layer {layer}, sum of heads", "")
    save("gradient_attention")


def attention_attribution() -> None:
    """One layer, the importance of every head, and the tree."""
    result = asked("attention_attribution", film(), outcome=TOUCHING)
    print(result["outcome_change"].values, result["completeness_residual"].values)
    left, middle, right = panels(3)
    cells = result["attention_attribution"].isel(layer=3).sum("head")
    heat(result, cells, left, "layer 3, sum of heads", "attribution")
    _heads(result, middle)
    identiscope.plot(identiscope.attribution_tree(result), right)
    right.set_title("attribution tree", loc="left", fontsize="medium")
    save("attention_attribution")


def _heads(result: xr.Dataset, ax: Axes, name: str = "head_importance", reach: float | None = None) -> None:
    cells = result[name].transpose("layer", "head").values
    limits = {"cmap": "PuOr_r", "vmin": -reach, "vmax": reach} if reach else {"cmap": "viridis"}
    image = ax.imshow(cells, aspect="auto", interpolation="nearest", **limits)
    plt.colorbar(image, ax=ax, label=name.replace("_", " "))
    ax.set(xlabel="head", ylabel="layer")


def attention_flow() -> None:
    """Beside rollout."""
    rolled, result = asked("rollout", film()), asked("attention_flow", film())
    print(result["decided_by_input"].values, result.attrs["largest_gap"])
    left, right = panels(2)
    heat(rolled, rolled["rollout"].isel(layer=-1), left, "rollout, last layer", "share")
    heat(result, result["attention_flow"].isel(layer=-1), right, "attention flow, last layer", "flow")
    save("attention_flow")


def residual_norm() -> None:
    """What the last states are made of, and how much is from others."""
    result = asked("residual_norm", film())
    left, right = panels(2)
    heat(result, result["mixture"].isel(layer=-1), left, "all six layers", "share")
    heat(result, result["mixing_ratio"], right, "mixing ratio: from other tokens", "share")
    right.invert_yaxis()
    save("residual_norm")


def layer_norm_norm() -> None:
    """Mixing ratios before and behind the norm."""
    result, plain = asked("layer_norm_norm", film()), asked("residual_norm", film())
    ax = panels(1, 6.0, 3.0)[0]
    for one, name, colour in ((plain, "before the norm", DOWN), (result, "behind it", UP)):
        ratio = one["mixing_ratio"].transpose("layer", "output").values
        ax.plot(100 * ratio.mean(1), "o-", color=colour, label=f"{name} ({one.attrs['method']})")
    ax.set(xlabel="layer", ylabel="mixing ratio, %, mean over tokens", ylim=(0, 32), xticks=range(6))
    ax.legend(frameon=False)
    save("layer_norm_norm")


def globenc() -> None:
    """One layer and all."""
    last("globenc", title="all six layers")


def alti() -> None:
    """One layer and all."""
    last("alti", title="all six layers")


def value_zeroing() -> None:
    """One layer and all."""
    last("value_zeroing", title="all six layers")


def gradient_rollout() -> None:
    """With the identity and without."""
    result = asked("gradient_rollout", film(), outcome=TOUCHING)
    cells = result["gradient_rollout"].isel(layer=-1).transpose("output", "input")
    left, right = panels(2)
    heat(result, cells, left, "R after the last layer", "relevance")
    heat(result, cells - np.eye(len(cells)), right, "R without the identity", "relevance")
    save("gradient_rollout")


def head_output_gradient() -> None:
    """One layer, and the agreement of every head with its attention."""
    result = asked("head_output_gradient", film())
    left, right = panels(2)
    share = result["head_output_gradient"].isel(layer=3).mean("head")
    heat(result, share.transpose("output", "input"), left, "layer 3, mean over heads", "share")
    _heads(result, right, "agreement_with_attention", 1.0)
    save("head_output_gradient")


def gradient_input() -> None:
    """Both texts."""
    both("gradient_input")


def saliency() -> None:
    """Both texts."""
    both("saliency")


def integrated_gradients() -> None:
    """Both texts."""
    both("integrated_gradients")


def smooth_gradient() -> None:
    """Both texts, with error bars."""
    both("smooth_gradient")


def attention_lrp() -> None:
    """Both texts."""
    both("attention_lrp")


def occlusion() -> None:
    """Both texts."""
    both("occlusion")


def shapley() -> None:
    """Both texts: drawn, and exact."""
    both("shapley")


def kernel_shap() -> None:
    """Beside exact values."""
    asked("kernel_shap", france())
    result, exact = asked("kernel_shap", france(), budget=150), asked("shapley", france())
    ax = panels(1, 6.0, 2.9)[0]
    at = np.arange(len(result["score"]))
    ax.bar(at - 0.2, exact["score"].values, 0.38, color="#999999", label="exact (shapley)")
    errors = result["score_error"].values
    ax.bar(at + 0.2, result["score"].values, 0.38, yerr=errors, color=UP, capsize=2, label="kernel_shap, 150 passes")
    name_bars(ax, result["input_token"].values)
    ax.axhline(0, color="#000000", linewidth=0.8)
    ax.set(ylabel="score")
    ax.legend(frameon=False, fontsize="small")
    save("kernel_shap")


def alti_logit() -> None:
    """Of all layers, and by layer."""
    result = asked("alti_logit", france())
    left, right = panels(2)
    identiscope.plot(result, left)
    heat(result, result["by_layer"], right, "by layer", "score")
    right.invert_yaxis()
    save("alti_logit")


def direct_logit_attribution() -> None:
    """By head, by layer, and the logit lens."""
    result = asked("direct_logit_attribution", france(), outcome="Paris-London")
    left, right = panels(2)
    reach = float(np.abs(result["by_head"].values).max())
    _heads(result, left, "by_head", reach)
    right.plot(result["lens"].values, "o-", color=UP, markersize=3, label="logit lens")
    right.bar(range(30), result["layer_total"].values, color="#999999", label="what each layer adds")
    right.set(xlabel="layer", ylabel="difference of the logits")
    right.axhline(0, color="#000000", linewidth=0.8)
    right.legend(frameon=False, fontsize="small")
    left.set_title("Paris − London, by head", loc="left", fontsize="medium")
    save("direct_logit_attribution")


def flow_routes() -> None:
    """The graph of routes."""
    result = asked("flow_routes", france(), threshold=0.03)
    print(result.sizes["edge"], "edges")
    identiscope.plot(result, panels(1, 7.0, 5.4)[0], graph=True)
    save("flow_routes")


def explain() -> None:
    """All methods on the review."""
    result = identiscope.explain(film(), TOUCHING, methods="all")
    identiscope.plot(result)
    save("explain")


#: In the order of the file: one picture each.
PICTURES = (
    attention, effective_simplex_span, canonical, effective, rollout, hidden_token_attribution, received_attention,
    weighted_norm, gradient_attention, attention_attribution, attention_flow, residual_norm, layer_norm_norm, globenc,
    alti, value_zeroing, gradient_rollout, head_output_gradient, gradient_input, saliency, integrated_gradients,
    smooth_gradient, attention_lrp, occlusion, shapley, kernel_shap, alti_logit, direct_logit_attribution, flow_routes,
    explain,
)  # fmt: skip

if __name__ == "__main__":
    IMAGES.mkdir(parents=True, exist_ok=True)
    for picture in PICTURES:
        if len(sys.argv) < 2 or picture.__name__ in sys.argv[1:]:
            picture()
