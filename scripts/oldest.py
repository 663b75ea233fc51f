"""Try the lowest versions that pyproject.toml allows, in an environment of their own: `make oldest`.

Every direct dependency at its lower bound, but torch at the version that constraints.txt pins: older ones come as
gigabytes. Then the main jobs are run on the built-in model. Ends with 1 if one of them fails.
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

PROJECT = Path(__file__).parents[1]
TEXT = "The nurse said that she would help the doctor because the clinic was full."
#: What a user does first; each must end well, and write what it says.
JOBS = (
    ("--help",),
    ("check", "minilm"),
    ("trace", "minilm", TEXT),
    ("attention", "minilm", TEXT, "--out", "attention.safetensors"),
    ("attribution", "minilm", TEXT, "--probes", "4"),
    ("report", "minilm", TEXT, "-o", "report.html"),
    ("run", "minilm", "texts.txt", "-o", "run", "--methods", "attention,tokens"),
    ("run", "--verify", "run"),
)


def lowest(extras: tuple[str, ...] = ("demo",)) -> list[str]:
    """`name==version` for every lower bound."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(one for extra in extras for one in project["optional-dependencies"][extra])]
    bounds = (re.match(r"([A-Za-z0-9_.-]+)>=([0-9.]+)", one) for one in asked)
    return [f"{found[1]}=={found[2]}" for found in bounds if found is not None and found[1] != "torch"]


def main() -> int:
    """Install, run, and say what failed."""
    pinned = re.search(r"(?m)^torch==\S+$", (PROJECT / "constraints.txt").read_text())
    assert pinned is not None
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        venv.create(place / "venv", with_pip=True)
        pip = [str(place / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        print("trying", *lowest(), flush=True)
        subprocess.run([*pip, pinned[0], *lowest()], check=True)
        subprocess.run([*pip, "--no-deps", str(PROJECT)], check=True)
        (place / "texts.txt").write_text(f"{TEXT}\nThe cat sat on the mat.\n")
        failed = 0
        for job in JOBS:
            done = subprocess.run(
                [str(place / "venv" / "bin" / "identiscope"), *job],
                cwd=place, env=os.environ | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True,
            )  # fmt: skip
            print("failed" if done.returncode else "good", *job[:2], flush=True)
            if done.returncode:
                failed += 1
                print(done.stdout[-500:], done.stderr[-3000:], flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
