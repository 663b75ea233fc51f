"""Shortened texts on the page of heads."""

import xarray as xr


def shortened_section(shortened: xr.Dataset | None) -> str:
    """A table: by what tokens are kept, and how many."""
    if shortened is None:
        return ""
    rows = []
    for share in shortened["share"].values.tolist():
        one = shortened.sel(share=share)
        cells = ""
        for ranking in shortened["ranking"].values.tolist():
            own = one.sel(ranking=ranking)
            same = float(own["same"])
            stays = "" if same != same else f", same answer {100 * same:.0f} %"
            right = float(own["right"])
            stays += "" if right != right else f", right {100 * right:.0f} %"
            cells += (
                f"<td class='number'>{float(own['moved']):.3g} <span class='quiet'>± {float(own['moved_error']):.1g}"
                f"{stays}</span></td>"
            )
        rows.append(f"<tr><td>{100 * share:.0f} %</td>{cells}<td class='number'>{float(one['speed']):.2f}×</td></tr>")
    whole = float(shortened["right_whole"])
    known = "" if whole != whole else f" Whole texts are answered right in {100 * whole:.0f} %."
    header = "".join(f"<th>{ranking}</th>" for ranking in shortened["ranking"].values.tolist())
    return (
        "<h2>Shortened texts</h2><p class='quiet'>Mean size of the outcome's change when only a share of the tokens is"
        " kept: those that receive most raw or effective attention in the first layer, or drawn at random. Special"
        " tokens, and one from which the outcome is read, stay. Speed: CPU time of a pass of the whole text over that"
        f" of the shortened one; {shortened.attrs['texts']} texts.{known}</p><div class='wide'><table class='rows'>"
        f"<thead><tr><th>kept</th>{header}<th>speed</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
