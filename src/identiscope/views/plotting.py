"""`plot(result, ax=…)`: which function draws the result of which method."""

import inspect
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from identiscope.errors import InputError
from identiscope.files import replacing

# method → the function in views that draws its result.
PLOTS = {
    "attention_alternative": "proof_plots.plot_attention_alternative",
    "attention_identifiability": "attention_plots.plot_attention_identifiability",
    "attention_intervals": "attention_plots.plot_attention_intervals",
    "attention_maps": "attention_plots.plot_attention_maps",
    "attention_between_types": "attention_plots.plot_attention_between_types",
    "comparison_with_attention": "attribution_plots.plot_comparison",
    "contributions_by_distance": "attribution_plots.plot_by_distance",
    "contributions_by_offset": "attribution_plots.plot_by_offset",
    "contributions_by_tag": "attribution_plots.plot_by_tag",
    "contributions_of_word": "attribution_plots.plot_of_word",
    "contributions_to_token": "attribution_plots.plot_by_offset",
    "correlation_by_length": "attention_plots.plot_correlation_by_length",
    "hidden_token_attribution": "attribution_plots.plot_attribution",
    "identifiable_comparison": "identifiable_plots.plot_comparison",
    "perturbation_effects": "structure_plots.plot_perturbation_effects",
    "prove": "proof_plots.plot_proof",
    "reversal_damage": "reversal_plots.plot_reversal_damage",
    "reversal_structure": "reversal_plots.plot_reversal_structure",
    "run_attention": "run_plots.plot_run_table",
    "run_attention_means": "run_plots.plot_run_means",
    "run_attribution": "run_plots.plot_run_table",
    "run_attribution_means": "run_plots.plot_run_means",
    "run_structure": "run_plots.plot_run_table",
    "run_structure_means": "run_plots.plot_run_means",
    "run_tokens": "run_plots.plot_run_table",
    "run_tokens_means": "run_plots.plot_run_means",
    "self_contributions": "attribution_plots.plot_self_contributions",
    "shared_subspaces": "structure_plots.plot_shared_subspaces",
    "structural_maps": "attention_plots.plot_attention_maps",
    "structure_extraction": "structure_plots.plot_structure",
    "token_identifiability": "token_plots.plot_token_rates",
    "token_identifiability_across_layers": "token_plots.plot_across_layers",
    "token_identifiability_against_contribution": "token_plots.plot_against_contribution",
    "token_identifiability_checkpoints": "token_plots.plot_checkpoints",
    "token_identifiability_fractions": "token_plots.plot_fractions",
    "token_identifiability_neighbours": "token_plots.plot_neighbours",
    "token_identifiability_previous_layer": "token_plots.plot_token_rates",
    "token_losses": "token_plots.plot_losses",
}


def plot(result: xr.Dataset, ax: Axes | None = None, **options: Any) -> Axes:
    """Draw a result; its method says how.

    >>> identiscope.plot(identiscope.attention_identifiability(trace))
    >>> identiscope.plot(identiscope.attention_between_types(model, texts), figure="separator")

    Without an `ax` a new figure is made. options are those of the drawing function, such as `values="raw"`.
    """
    if not isinstance(result, xr.Dataset):
        raise InputError(f"a {type(result).__name__} was given; expected a result, such as attention_maps gives.")
    method = str(result.attrs.get("method"))
    if method not in PLOTS:
        raise InputError(f"there is no plot for {method!r}; there are plots for {', '.join(sorted(PLOTS))}.")
    module, _, name = PLOTS[method].partition(".")
    function: Callable[..., Axes] = getattr(import_module(f"identiscope.views.{module}"), name)
    _check_options(method, function, options)
    if ax is not None:
        return function(result, ax, **options)
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
    try:
        return function(result, ax, **options)
    except InputError:
        plt.close(figure)  # or a notebook would show it, empty
        raise


def save_figure(figure: Figure, path: Path, **options: Any) -> Path:
    """Write a figure in the format that the name ends in, and close it."""
    import matplotlib.pyplot as plt

    try:
        with replacing(path) as aside:
            figure.savefig(aside, format=path.suffix.removeprefix("."), dpi=150, **options)
    finally:
        plt.close(figure)
    return path


def expect_one_of(name: str, given: object, among: Iterable[Any]) -> None:
    """Refuse the value of an option that is none of those there are."""
    known = [str(one) for one in among]
    if str(given) not in known:
        raise InputError(f"{name}={given!r} was given; expected one of {', '.join(known)}.")


def _check_options(method: str, function: Callable[..., Axes], options: dict[str, Any]) -> None:
    """Refuse options that the drawing function does not take, and say which ones it does."""
    parameters = list(inspect.signature(function).parameters.values())[2:]
    known = [parameter.name for parameter in parameters]
    needed = [parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty]
    unknown, missing = sorted(set(options) - set(known)), sorted(set(needed) - set(options))
    if unknown or missing:
        wrong = f"{', '.join(unknown)} was given" if unknown else f"{', '.join(missing)} was not given"
        expected = f"expected {', '.join(known)}" if known else "expected no options"
        raise InputError(f"{wrong} to the plot of {method}; {expected}.")
