"""Run the arenas that docs/judge.md shows, and write its tables.

    OMP_NUM_THREADS=1 python docs/judge_run.py            # some 25 minutes on one core; goes on where it was stopped
    OMP_NUM_THREADS=1 python docs/judge_run.py minilm/null           # one of them; other tables stay as they are
    python docs/judge_run.py --write                      # the tables alone, from docs/judge/NAME/judge.json

Of each the page, the numbers as CSV and all as JSON are kept in docs/judge/NAME; what is run by itself, since it takes
long, as NAME/TEST, is joined to that page.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from identiscope.careful_reading import json_bytes
from identiscope.files import write_file
from identiscope.judge.registry import TESTS
from identiscope.views.page.arena import CONTROLS, arena_csv, first_places, write_arena_page

DOCS = Path(__file__).parent
ARENAS = {
    "minilm": "minilm docs/judge/pairs.jsonl --columns sentence1,sentence2 --budget 1000"
    " --tests planted,gauge,redrawn,erasure,causal",
    "minilm/null": "minilm docs/judge/pairs.jsonl --columns sentence1,sentence2 --tests null",
    "smollm2": "smollm2 docs/judge/prompts.txt --budget 700 --tests gauge,redrawn,erasure,causal"
    " --methods attention,effective_simplex_span,weighted_norm,rollout,gradient_input,saliency,attention_lrp",
}
PAGES = [name for name in ARENAS if "/" not in name]
#: What two runs of one page must have in common.
SAME = ("model", "corpus", "texts", "outcome", "methods", "seed")


def judge(name: str) -> None:
    """Run one arena and keep what it said, on its page."""
    place = Path(tempfile.gettempdir()) / f"identiscope-judge-{name.replace('/', '-')}"
    words = ["judge", *ARENAS[name].split(), "-o", str(place)]
    subprocess.run([sys.executable, "-m", "identiscope", *words], check=True, cwd=DOCS.parent)
    said = json.loads((place / "judge.json").read_text(encoding="utf-8"))
    page = name.partition("/")[0]
    kept = DOCS / "judge" / page
    kept.mkdir(exist_ok=True)
    if (kept / "judge.json").is_file():
        said = joined(said, json.loads((kept / "judge.json").read_text(encoding="utf-8")))
    commands = [f"identiscope judge {words} -o DIR" for one, words in ARENAS.items() if one.partition("/")[0] == page]
    write_arena_page(said, kept, "\n".join(commands))
    write_file(kept / "judge.csv", arena_csv(said).encode())
    write_file(kept / "judge.json", json_bytes(said))


def joined(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Tests of two runs that are of the same texts and methods; those of the new one in place of their like."""
    for fact in SAME:
        assert new[fact] == old[fact], f"{fact} is {new[fact]}, and was {old[fact]}: remove the old page"
    known = {test["name"]: test for said in (old, new) for test in said["tests"]}
    return {
        **new,
        "tests": [
            known[name] for of in ("planted", "corpus") for name in TESTS if TESTS[name].of == of and name in known
        ],
        "passes": {**old["passes"], **new["passes"]},
        "reasons": {**old["reasons"], **new["reasons"]},
    }


def table(name: str) -> str:
    """The measures that methods are compared by, in Markdown: bold shares the first place."""
    said = json.loads((DOCS / "judge" / name / "judge.json").read_text(encoding="utf-8"))
    shown = [(test, one) for test in said["tests"] for one in test["measures"] if one["pairs"]]
    titles = [f"{test['name']}<br>{one['name'].replace('_', ' ')} {_arrow(one)}" for test, one in shown]
    rows = [["", *titles]]
    for method in [*said["methods"], *CONTROLS]:
        label = f"*{method}*" if method in CONTROLS else f"`{method}`"
        rows.append([label, *(_cell(one, method) for _, one in shown)])
    rows.append(["texts", *(str(one["texts"]) for _, one in shown)])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def _arrow(measure: dict[str, Any]) -> str:
    return "↓" if measure["better"] == "low" else "↑"


def _cell(measure: dict[str, Any], method: str) -> str:
    row = next((one for one in measure["rows"] if one["method"] == method), None)
    if row is None or row["mean"] is None:
        return "–"
    number = f"{row['mean']:.2f}".replace("-", "−")
    return f"**{number}**" if method in first_places(measure) else number


def main() -> None:
    """Judge what is asked for, and write the page."""
    if "--write" not in sys.argv:
        for name in sys.argv[1:] or ARENAS:
            judge(name)
    page = DOCS / "judge.md"
    written = page.read_text(encoding="utf-8")
    for name in PAGES:
        between = re.compile(rf"(<!-- judge_run.py {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        assert between.search(written)
        if (DOCS / "judge" / name / "judge.json").is_file():
            written = between.sub(lambda mark, name=name: f"{mark[1]}\n{table(name)}\n\n{mark[2]}", written, count=1)  # type: ignore[misc]
    page.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
