"""Two models on the page of heads: which head is which, and which changed most."""

import numpy as np
import xarray as xr


def moved_heads(against: xr.Dataset) -> int:
    """How many heads have their partner in another layer or place than their own."""
    layers, heads = (against[name].values for name in ("layer", "head"))
    own = (against["matched_layer"].values == layers[:, None]) & (against["matched_head"].values == heads)
    return int((~own).sum())


def against_section(against: xr.Dataset | None, most: int = 16) -> str:
    """A table of the heads whose maps are farthest apart; data-layer and data-head choose a card."""
    if against is None:
        return ""
    cosine = against["map_cosine"].values
    order = np.argsort(np.nan_to_num(cosine.ravel(), nan=np.inf), kind="stable")[:most]
    rows = []
    for place in order:
        at = np.unravel_index(int(place), cosine.shape)
        numbers = {str(name): float(values.values[at]) for name, values in against.data_vars.items()}
        if numbers["matched_head"] != numbers["matched_head"]:
            continue
        cells = "".join(
            f"<td class='number'>{numbers[name]:.3f} <span class='quiet'>± {numbers[f'{name}_error']:.1g}</span></td>"
            for name in ("map_cosine", "map_change", "simplex_map_cosine", "output_similarity")
        )
        rows.append(
            f"<tr data-layer='{at[0]}' data-head='{at[1]}'><td>{against['layer'].values[at[0]]}."
            f"{against['head'].values[at[1]]}</td><td>{numbers['matched_layer']:.0f}.{numbers['matched_head']:.0f}</td>"
            f"{cells}<td class='number'>{numbers['changed_statistics']:.0f}</td></tr>"
        )
    changed = int((against["changed_statistics"].values > 0).sum())
    return (
        f"<h2>Against the other model</h2><p>{changed} of {cosine.size} heads changed; {moved_heads(against)} stand in"
        " another place.</p><p class='quiet'>Heads are matched by what they write (one to one, most alike in all), not"
        " by their maps. Changed: in at least one statistic the paired interval over texts (95 % for all heads and"
        f" {against.attrs['statistics']} statistics together) is off zero. Those whose maps are farthest apart come"
        " first.</p><div class='wide'><table class='rows'><thead><tr><th>head</th><th>is there</th><th>cosine of maps"
        "</th><th>weight that stands elsewhere</th><th>cosine of maps that no rewriting changes</th><th>output alike"
        "</th><th>statistics changed</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
