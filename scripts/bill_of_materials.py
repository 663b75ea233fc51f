"""Write what identiscope is made of: an SBOM (CycloneDX) and a list of licences, of what .venv holds: `make sbom`.

sbom.json is for machines and is not kept in the repository; docs/licences.md is for people, and is.
"""

import re
import subprocess
import sys
import tempfile
import venv
from importlib.metadata import Distribution, distributions
from pathlib import Path

PROJECT = Path(__file__).parents[1]
CLASSIFIER = "License :: "


def main() -> None:
    """Both files, from the environment that runs this script."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        tool = Path(folder) / "bin" / "python"
        subprocess.run([str(tool), "-m", "pip", "install", "--quiet", "cyclonedx-bom"], check=True)
        command = [str(tool), "-m", "cyclonedx_py", "environment", sys.executable, "--output-reproducible"]
        options = ["--pyproject", str(PROJECT / "pyproject.toml"), "--of", "JSON", "-o", str(PROJECT / "sbom.json")]
        subprocess.run([*command, *options], check=True)
    (PROJECT / "docs" / "licences.md").write_text(licence_page(), encoding="utf-8")


def licence_page() -> str:
    """docs/licences.md: every package that the two commands install, its version and its licence."""
    rows = {}
    for one in distributions():
        name = str(one.metadata["Name"])
        if name.lower() not in ("identiscope", "pip", "setuptools"):
            rows[name.lower()] = f"| {name} | {one.version} | {licence(one)} |"
    lines = [
        "# Licences",
        "",
        "Written by `make sbom`: what `make demo` and `make test` install. identiscope itself is under Apache-2.0.",
        "Only what [pyproject.toml](../pyproject.toml) lists as dependencies comes with `pip install identiscope`.",
        "",
        "| package | version | licence, as it says itself |",
        "|---|---|---|",
        *(rows[name] for name in sorted(rows)),
    ]
    return "\n".join(lines) + "\n"


def licence(one: Distribution) -> str:
    """The licence expression, else the classifiers, else the first line of the field that may hold a whole text."""
    metadata = one.metadata
    if metadata.get("License-Expression"):
        return str(metadata["License-Expression"])
    named = [line.rpartition("::")[2].strip() for line in metadata.get_all("Classifier") or () if CLASSIFIER in line]
    if named:
        return ", ".join(sorted(set(named)))
    text = str(metadata.get("License") or "").strip()
    first = re.sub(r"\s+", " ", text.splitlines()[0]) if text else "not stated"
    return first[:60].replace("|", "/")


if __name__ == "__main__":
    main()
