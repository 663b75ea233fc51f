"""Write the pages that are measured or generated: `make docs`. A test holds that they are up to date.

`python docs/generate.py NAME` begins the page of a new method.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "tests"))


def command_page() -> str:
    """docs/cli.md: the help of every command."""
    from identiscope.cli import main

    parts = ["# Commands", "Written by `make docs` from the commands' own help."]
    parts.append("The options of a method are those of its function: `identiscope method NAME --help` shows them.")
    # In the order of the help; what a group has stands after it. Methods have pages of their own.
    names = [""]
    for name, command in main.commands.items():
        names += [name, *(f"{name} {below}" for below in getattr(command, "commands", {}))]
    for name in names:
        asked = CliRunner().invoke(main, [*name.split(), "--help"], prog_name="identiscope", terminal_width=100)
        parts.append(f"## identiscope {name}".rstrip() + f"\n\n```\n{asked.output.strip()}\n```")
    return "\n\n".join(parts) + "\n"


#: What a page of a method has at least, as a pattern each.
PARTS_OF_A_PAGE = {
    "a heading": r"^# \S",
    "the formula": r"^\*\*Formula\.\*\* ",
    "what it costs": r"^\*\*Cost\.\*\* ",
    "what it cannot tell": r"^(\*\*|## )What it cannot (tell|know)",
}


def method_index() -> str:
    """docs/methods/index.md: every method of the registry, by its kind."""
    from identiscope.methods.kinds import KINDS
    from identiscope.methods.registry import of_kind
    from identiscope.methods.signatures import signature

    parts = [
        "# Methods",
        "Written by `make docs` from the registry. Each is `identiscope.NAME(trace, …)` and gives a labelled result;"
        " positional arguments beside the trace are marked \\*.",
    ]
    for kind in KINDS.values():
        methods = of_kind(kind.name)
        if methods:
            parts.append(f"## {kind.name.capitalize()}: {kind.says}")
            rows = ["| method | what it gives | options | axes | from |", "|---|---|---|---|---|"]
            for one in methods:
                options = ", ".join(
                    f"`{option.name}`" + ("\\*" if option.default is None else "") for option in signature(one).options
                )
                axes, named = " × ".join(one.axes), f"[`{one.name}`]({one.name}.md)"
                rows.append(f"| {named} | {one.says} | {options} | {axes} | {one.paper} |")
            parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


def method_skeleton(name: str) -> str:
    """The page of a method as far as its line and its file tell; its author writes the rest."""
    from identiscope.methods.registry import method
    from identiscope.methods.signatures import signature

    one = method(name)
    told = signature(one)
    words = " ".join(told.documentation.partition(">>>")[0].split("\n\n")[0].split())
    needed = [f"{option.name}=0" for option in told.options if option.default is None]
    rows = [
        f"| `{option.name}` | {option.says} | {'needed' if option.default is None else f'`{option.default}`'} |"
        for option in told.options
    ]
    parts = [
        f"# {one.name.replace('_', ' ').capitalize()}",
        f"**What it answers.** {one.says[0].upper()}{one.says[1:]} ({one.paper}).",
        f"**Formula.** {words}",
        f"```python\nresult = identiscope.{one.name}({', '.join(['trace', *needed])})\n"
        f"identiscope.plot(result)                  # axes: {', '.join(one.axes)}\n```",
        "\n".join(["| option | meaning | default |", "|---|---|---|", *rows]),
        "**Cost.** …",
        "**How to read it.** …",
        "**What it cannot tell.** …",
    ]
    return "\n\n".join(parts) + "\n"


def tried() -> dict[str, Any]:
    """What docs/families_run.py found."""
    found: dict[str, Any] = json.loads((DOCS / "families.json").read_text(encoding="utf-8"))
    return found


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


def family_page(rows: list[tuple[str, str, int, str, float]], tried: dict[str, Any]) -> str:
    """docs/families.md: the families that tests hold, measured here, and what docs/families_run.py found of all."""
    by_result: dict[str, list[dict[str, Any]]] = {}
    for row in tried["families"]:
        by_result.setdefault(row["result"], []).append(row)
    verified, refused = by_result["verified"], by_result["refused"]
    total = len(tried["families"])
    without, unbuilt = by_result["no softmax attention"], by_result["not built"]
    lines = [
        "# Families",
        "",
        "*Error* is the largest relative difference, over all sites, between Σ_h A_h·V_h·H_h + b_O rebuilt from the",
        "capture and what the attention block returned, rounded up to a power of ten. *Precision* is that of the",
        "family's own attention: some compute their softmax in float32 whatever their weights are. A family that is",
        "not here may well work: `identiscope check MODEL` tells.",
        "",
        "## Held by tests",
        "",
        "Tiny random models in float64, measured by `make docs` and again by the tests, which also hold that the",
        "forward pass is unchanged to the bit, that maps are those of NumPy and of the family's own eager form, that",
        "batches give what each text gives alone, and that attention can be substituted and the model replayed and",
        "differentiated.",
        "",
        "| family | class | sites | precision | error below |",
        "|---|---|---|---|---|",
    ]
    for name, architecture, sites, precision, error in rows:
        lines.append(f"| {name} | {architecture} | {sites} | {precision} | {bound(error):.0e} |")
    lines += [
        "",
        "## Every architecture of transformers",
        "",
        f"Written by `python docs/families_run.py` with transformers {tried['transformers']}: of {total} types that",
        f"have a model, {len(verified)} are verified, {len(refused)} refused with a reason, {len(without)} have no",
        f"softmax attention, and {len(unbuilt)} could not be built tiny by rule.",
        "",
        "Each is one small random model, in float64 where the family runs in it. *Error* here is against what the",
        "block returned in another pass, which nobody watched, rebuilt with NumPy. *Own maps* is the largest",
        "difference from the maps that the family's eager form shows when asked to: “–” where it shows none,",
        "*other* where it shows something else than the weights it uses (Falcon leaves out its mask, Granite SWA its",
        "sinks, and SqueezeBERT shows logits).",
        "",
        "| type | class | sites | kinds | precision | error below | own maps |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in verified:
        maps = "–" if row["maps"] is None else f"{row['maps']:.0e}" if row["maps"] < 1e-3 else "other"
        lines.append(
            f"| {row['model_type']} | {row['architecture']} | {row['sites']} | {row['kinds']} | {row['precision']} |"
            f" {row['error']:.0e} | {maps} |"
        )
    lines += ["", "### Refused", "", "| type | class | reason |", "|---|---|---|"]
    lines += [f"| {row['model_type']} | {row['architecture']} | {in_short(row['reason'])} |" for row in refused]
    lines += ["", "### Without softmax attention", ""]
    lines += [", ".join(row["model_type"] for row in without) + "."]
    lines += ["", "### Not built", "", "| type | class | reason |", "|---|---|---|"]
    lines += [f"| {row['model_type']} | {row['architecture']} | {in_short(row['reason'])} |" for row in unbuilt]
    return "\n".join(lines) + "\n"


def in_short(reason: str) -> str:
    """The beginning of an error message, in one cell of a table."""
    line = " ".join(reason.replace("|", "¦").replace("See docs/add-a-model.md.", "").split())
    return line if len(line) <= 160 else line[:159].rsplit(" ", 1)[0] + " …"


def bound(error: float) -> float:
    """The next power of ten, at least twice the error, so that another machine's rounding stays below it."""
    return float(10.0 ** math.ceil(math.log10(max(2 * error, 1e-16))))


def write_lists() -> None:
    """The pages that name every method: those of the commands and of the methods."""
    (DOCS / "cli.md").write_text(command_page(), encoding="utf-8")
    (DOCS / "methods" / "index.md").write_text(method_index(), encoding="utf-8")


if __name__ == "__main__" and len(sys.argv) == 2:
    # One new page, for its author to complete: python docs/generate.py NAME
    page = DOCS / "methods" / f"{sys.argv[1]}.md"
    if page.exists():
        sys.exit(f"{page} is there already.")
    page.write_text(method_skeleton(sys.argv[1]), encoding="utf-8")
    write_lists()
elif __name__ == "__main__":
    write_lists()
    (DOCS / "families.md").write_text(family_page(measure(), tried()), encoding="utf-8")
