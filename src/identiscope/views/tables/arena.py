"""What the judge said, on a terminal: the measures that methods are compared by, and whether controls land."""

from collections.abc import Mapping
from typing import Any

from identiscope.views.page.arena import counted, first_places, ordered
from identiscope.views.tables.terminal import console, print_table

_NONE = "no passes: it runs nothing of its own, or the budget is too small for it"


def print_plan(plan: Any) -> None:
    """What is to be done and what it will take, before it begins."""
    screen = console(stderr=True)
    texts = f"{counted(plan.texts, 'text')}, {counted(plan.tokens, 'token')}, " if plan.texts else ""
    screen.print(f"{texts}{counted(len(plan.methods), 'method')}: {', '.join(plan.methods)}", markup=False)
    if plan.planted:
        trained = f"; {counted(plan.trained, 'model')} trained once, in minutes, and then kept" if plan.trained else ""
        screen.print(f"  planted: {counted(plan.planted, 'input')}, asked of every method{trained}", markup=False)
    for name, passes in plan.passes.items():
        words = f"at most {passes:,} passes, {plan.longest[name]:,} for a text" if passes else _NONE
        screen.print(f"  {name}: {words}", markup=False)


def print_arena(said: Mapping[str, Any], directory: str) -> None:
    """A table for each test: the measures that methods are compared by, or all where none is."""
    screen = console()
    for test in said["tests"]:
        measures = [one for one in test["measures"] if one["pairs"]] or test["measures"][:2]
        if not measures:
            screen.print(f"{test['name']}: undecided ({test['undecided']})\n", markup=False)
            continue
        means = [{row["method"]: row for row in measure["rows"]} for measure in measures]
        names = [row["method"] for row in ordered(measures[0])]
        rows = [[name, *(_cell(mean.get(name), measure, name) for mean, measure in zip(means, measures, strict=True))]
                for name in names]  # fmt: skip
        title = f"{test['name']}: {test['says']}?" + ("" if test["trusted"] else " NOT TO BE TRUSTED")
        print_table(title, {"method": "left", **{measure["name"]: "left" for measure in measures}}, rows, screen)
        few = [f"{one['name']} {one['texts']}" for one in measures if one["texts"] < said["texts"]]
        if few and test["of"] == "corpus":
            screen.print(f"  of {said['texts']} texts these decide: {', '.join(few)}", markup=False)
        for control in test["controls"]:
            if not control["lands"]:
                screen.print(f"  does not land: {control['says']}", markup=False)
        screen.print()
    for name, why in said["reasons"].items():
        screen.print(f"{name}: {why}", markup=False)
    if any(first_places(measure) for test in said["tests"] for measure in test["measures"]):
        screen.print("* shares the first place: undecided which of these is better.")
    screen.print(f"saved: {directory}", markup=False)


def _cell(row: Mapping[str, Any] | None, measure: Mapping[str, Any], name: str) -> str:
    if row is None or row["mean"] is None:
        return "undecided"
    star = "*" if name in first_places(measure) else ""
    if row["low"] is None or row["low"] == row["high"]:
        return f"{row['mean']:.2f}{star}"
    return f"{row['mean']:.2f} [{row['low']:.2f}, {row['high']:.2f}]{star}"
