"""Write the pages that are measured or generated: `make docs`. A test holds that they are up to date."""

import math
import sys
from pathlib import Path

from click.testing import CliRunner

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "tests"))


def command_page() -> str:
    """docs/cli.md: the help of every command."""
    from identiscope.cli import main

    parts = ["# Commands", "Written by `make docs` from the commands' own help."]
    for name in ("", *sorted(main.commands)):
        asked = CliRunner().invoke(main, [*name.split(), "--help"], prog_name="identiscope", terminal_width=100)
        parts.append(f"## identiscope {name}".rstrip() + f"\n\n```\n{asked.output.strip()}\n```")
    return "\n\n".join(parts) + "\n"


def measure() -> list[tuple[str, str, int, str, float]]:
    """One row a family: name, class, number of sites, effective precision, largest relative error."""
    import torch
    import transformers

    import families
    import identiscope

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    rows = []
    for name, family in families.ALL.items():
        model = family.model()
        verification = identiscope.trace(model, family.inputs()).verify()
        coarsest = "float32" if any(site.precision == "float32" for site in verification.sites) else "float64"
        rows.append((name, type(model).__name__, len(verification.sites), coarsest, verification.error))
    return rows


def family_page(rows: list[tuple[str, str, int, str, float]]) -> str:
    """docs/families.md: what was measured, with the error rounded up to a power of ten."""
    lines = [
        "# Verified families",
        "",
        "Written by `make docs`: tiny random models in float64, one forward pass each. *Error* is the largest relative",
        "difference, over all sites, between Σ_h A_h·V_h·H_h + b_O rebuilt from the capture and what the attention",
        "block returned, rounded up to a power of ten. *Precision* is that of the family's own attention: some compute",
        "their softmax in float32 whatever their weights are.",
        "",
        "| family | class | sites | precision | error below |",
        "|---|---|---|---|---|",
    ]
    for name, architecture, sites, precision, error in rows:
        lines.append(f"| {name} | {architecture} | {sites} | {precision} | {bound(error):.0e} |")
    lines += ["", "A family that is not in this list may well work: `identiscope check MODEL` tells."]
    return "\n".join(lines) + "\n"


def bound(error: float) -> float:
    """The next power of ten, at least twice the error, so that another machine's rounding stays below it."""
    return float(10.0 ** math.ceil(math.log10(max(2 * error, 1e-16))))


if __name__ == "__main__":
    (DOCS / "cli.md").write_text(command_page(), encoding="utf-8")
    (DOCS / "families.md").write_text(family_page(measure()), encoding="utf-8")
