"""Runs killed at every call to the file system, at random times and on Ray: do they end with the same bytes?"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from soak.outcome import Outcome

_GOALS = {
    "call": "Runs killed at a call to the file system, with a file half written, that end with the same bytes",
    "time": "Runs killed at random times, up to three times, that end with the same bytes",
    "ray": "Runs on Ray killed at calls and at random, that leave no process and end with the same bytes",
}


def kills(calls: int = 0, times: int = 40, ray: int = 10, seconds: float | None = None) -> list[Outcome]:
    """Kill Runs at so many calls (0: at every one), at so many random times, and so often on Ray; fewer if the time is
    over, but a hundred."""
    project = Path(__file__).parents[1]
    paths = [str(project), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    cases, unharmed = dict.fromkeys(_GOALS, 0), dict.fromkeys(_GOALS, 0)
    failures: dict[str, list[str]] = {goal: [] for goal in _GOALS}
    made = 0
    with tempfile.TemporaryDirectory() as folder:
        asked = [folder, "--calls", str(calls), "--times", str(times), "--ray", str(ray)]
        asked += [] if seconds is None else ["--seconds", str(seconds)]
        with subprocess.Popen(
            [sys.executable, "-m", "soak.kill_trials", *asked], stdout=subprocess.PIPE, text=True, env=environment
        ) as trials:
            assert trials.stdout is not None
            for line in trials.stdout:
                said = json.loads(line)
                if "calls" in said:
                    made = said["calls"]
                    continue
                (cases if said["killed"] else unharmed)[said["goal"]] += 1
                failures[said["goal"]] += [f"{said['said']}: {failure}" for failure in said["failures"]]
        if trials.returncode:
            failures["call"].append(f"the trials themselves ended with {trials.returncode}")
    notes = {
        goal: f"{count} more ended before they could be killed" if count else "" for goal, count in unharmed.items()
    }
    notes["call"] = f"Such a Run makes {made} calls; manifest, shards, summary and seal are among them."
    return [
        Outcome(_GOALS[goal], cases[goal], tuple(failures[goal]), notes[goal])
        for goal in _GOALS
        if cases[goal] or unharmed[goal] or failures[goal]
    ]


def run(seconds: float | None = None) -> list[Outcome]:
    """Every call, and many times."""
    return kills(seconds=seconds)
