"""Run the arenas that docs/judge.md shows, and write its tables.

    OMP_NUM_THREADS=1 python docs/judge_run.py            # some 20 minutes on one core; goes on where it was stopped
    python docs/judge_run.py --write                      # the tables alone, from docs/judge/NAME/judge.json

Of each the page, the numbers as CSV and all as JSON are kept in docs/judge/NAME.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from identiscope.views.page.arena import CONTROLS, first_places

DOCS = Path(__file__).parent
ARENAS = {
    "minilm": "minilm docs/judge/pairs.jsonl --columns sentence1,sentence2 --budget 1000"
    " --tests planted,gauge,redrawn,erasure,causal",
    "smollm2": "smollm2 docs/judge/prompts.txt --budget 700 --tests gauge,redrawn,erasure,causal"
    " --methods attention,effective_simplex_span,weighted_norm,rollout,gradient_input,saliency,attention_lrp",
}
KEPT = ("index.html", "judge.csv", "judge.json")


def judge(name: str) -> None:
    """Run one arena and keep what it said."""
    place = Path(tempfile.gettempdir()) / f"identiscope-judge-{name}"
    words = ["judge", *ARENAS[name].split(), "-o", str(place)]
    subprocess.run([sys.executable, "-m", "identiscope", *words], check=True, cwd=DOCS.parent)
    (DOCS / "judge" / name).mkdir(exist_ok=True)
    for file in KEPT:
        shutil.copy(place / file, DOCS / "judge" / name / file)


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
    for name in ARENAS:
        between = re.compile(rf"(<!-- judge_run.py {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        assert between.search(written)
        if (DOCS / "judge" / name / "judge.json").is_file():
            written = between.sub(lambda mark, name=name: f"{mark[1]}\n{table(name)}\n\n{mark[2]}", written, count=1)  # type: ignore[misc]
    page.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
