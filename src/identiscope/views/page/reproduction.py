"""A reproduction on disk: each figure as PNG, SVG and data, and one page that lists claim by claim what holds."""

from collections.abc import Sequence
from html import escape
from importlib import import_module
from pathlib import Path

from identiscope.files import make_directory, write_file
from identiscope.results import save_result
from identiscope.views.plots.figures import Claim, Figure
from identiscope.views.plots.plotting import plot, save_figure

_HOLDS = {True: "holds", False: "fails", None: "open"}

STYLE = """
:root { color-scheme: light dark; --line: #8886; --quiet: #767676; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 84rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .35rem .6rem; vertical-align: top;
border-bottom: 1px solid var(--line); } th { font-weight: 600; } .wide { overflow-x: auto; }
.holds { color: #0a7a55; } .fails { color: #c2410c; } .open, .data { color: var(--quiet); }
.claims td { min-width: 9rem; } .claims td:first-child, .claims td:nth-child(3) { min-width: 0; }
.claims .data, .rule { font-size: .85em; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 30rem), 1fr)); gap: 1rem; }
figure { margin: 0; } img { width: 100%; background: #fff; }
@media (prefers-color-scheme: dark) { body { background: #16181c; color: #e8e8e8; } .holds { color: #4ade80; }
.fails { color: #fb923c; } :root { --quiet: #a0a0a0; } a { color: #8ab4ff; } }
"""


def write_figure(figure: Figure, directory: Path) -> list[str]:
    """Draw every panel as PNG and SVG and save its data; the stems of the files, in order."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    make_directory(directory)
    stems = []
    saved: dict[int, str] = {}
    for panel in figure.panels:
        stem = f"figure-{_plain(figure.number)}-{_plain(panel.name)}"
        picture, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
        if panel.function is None:
            plot(panel.result, ax, **panel.options)
        else:
            module, _, name = panel.function.partition(".")
            getattr(import_module(f"identiscope.views.plots.{module}"), name)(panel.result, ax, **panel.options)
        for kind in ("png", "svg"):
            # Without a date, so that the same numbers give the same file.
            about = {"Date": None} if kind == "svg" else {}
            save_figure(picture, directory / f"{stem}.{kind}", metadata=about)
        # Panels of one result share its data.
        if id(panel.result) not in saved:
            saved[id(panel.result)] = save_result(panel.result, directory / f"{stem}.safetensors").stem
        stems.append(stem)
    return stems


def write_page(
    directory: Path,
    title: str,
    about: Sequence[tuple[str, str]],
    figures: Sequence[tuple[Figure, Sequence[str]]],
    missing: Sequence[tuple[str, str]],
) -> Path:
    """`index.html`: what was run; every claim with its source, rule, what was published and came out; the pictures."""
    rows = [_row(figure, claim) for figure, _ in figures for claim in figure.claims]
    pictures = "".join(_section(figure, stems) for figure, stems in figures)
    left = "".join(f"<li>{escape(number)}: needs {escape(needs)}</li>" for number, needs in missing)
    answers = [claim.holds for figure, _ in figures for claim in figure.claims]
    yes, no, unknown = (answers.count(answer) for answer in (True, False, None))
    counted = f"{yes} of {len(answers)} claims hold, {no} do not, {unknown} cannot be decided."
    if by_shape := sum(bool(claim.untrained) for figure, _ in figures for claim in figure.claims):
        counted += f" Of those that hold, {by_shape} hold of an untrained model of the same shape too."
    facts = "".join(f"<tr><th scope='row'>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in about)
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{STYLE}</style></head><body>
<h1>{escape(title)}</h1><p>{counted}</p>
<table>{facts}</table>
<h2>Claim by claim</h2><p class="data">Intervals in brackets are those that other texts of the kind would give (95 %,
drawing texts anew). A claim is undecided where they cover its threshold, or where it is a number of another model or
other data.</p><div class="wide"><table class="claims"><thead><tr><th>figure</th><th>claim</th><th>result</th>
<th>published</th><th>here</th><th>rule</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>
{f"<h2>Not made</h2><ul>{left}</ul>" if left else ""}
<h2>Figures</h2>{pictures}
</body></html>
"""
    return write_file(directory / "index.html", page.encode("utf-8"))


def _row(figure: Figure, claim: Claim) -> str:
    name = "open" if claim.untrained else _HOLDS[claim.holds]
    return (
        f"<tr><td><a href='#figure-{_plain(figure.number)}'>{escape(figure.number)}</a></td>"
        f"<td>{escape(claim.statement)}<div class='data'>{escape(claim.source)}</div></td>"
        f"<td class='{name}'>{claim.verdict}</td><td>{escape(claim.published)}</td>"
        f"<td>{escape(claim.here)}<div class='data'>{escape(figure.data)}</div></td>"
        f"<td class='rule'>{escape(claim.rule)}</td></tr>"
    )


def _section(figure: Figure, stems: Sequence[str]) -> str:
    pictures = "".join(
        f"<figure><a href='{stem}.svg'><img src='{stem}.png' alt='{escape(f'{figure.title}, {panel.name}')}'></a>"
        "</figure>"
        for panel, stem in zip(figure.panels, stems, strict=True)
    )
    return (
        f"<section id='figure-{_plain(figure.number)}'><h3>Figure {escape(figure.number)}: {escape(figure.title)}</h3>"
        f"<p class='data'>{escape(figure.data)}</p><div class='panels'>{pictures}</div></section>"
    )


def _plain(words: str) -> str:
    """As a part of a file's name."""
    return "".join(letter if letter.isalnum() else "-" for letter in words.replace("–", "-").replace(", ", "-"))
