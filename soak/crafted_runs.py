"""Run directories of any bytes: is everything that reads them an answer, or an error of ours?

Half of the damage is done by chance. The other half is crafted: values of wrong types and sizes, with every hash in
step, as somebody who knows the format could write them.
"""

import json
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from identiscope.careful_reading import canonical, facts_of, json_bytes
from identiscope.errors import IdentiscopeError
from identiscope.runs.format.manifest import DECIDES, NAME
from identiscope.runs.format.opened_run import Run, open_run
from identiscope.runs.format.seal import FACTS, SEAL
from identiscope.runs.format.shard_shape import STATISTICS, SUBSPACES
from identiscope.runs.format.shards import RECORD
from soak.damage_kinds import edited, resealed
from soak.outcome import Outcome
from soak.prepared import EVERYTHING, tiny_run

#: Seconds of the processor, and of the clock (on a busy machine), that no small directory takes.
_WORK, _PATIENCE = 10, 300
#: One that is damaged beside one that is not; every question reads all of them, many times.
_SHARDS = 2
_ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63, 10**400, 0.5, 1e308, "", "x", "a" * 10_000, "../..", "/dev/zero", "\ud800",
    "\0", [], [[]], [0] * 50, ["x"], {}, {"": None}, {"x": {"y": []}}, "000000", "texts.parquet",
)  # fmt: skip


def read_all(directory: Path, *, plot: bool) -> None:
    """Everything that can be asked of a Run; errors of ours are answers."""
    run: Run | None = None

    def opening() -> None:
        nonlocal run
        run = open_run(directory)

    _asked(opening)
    if run is None:
        return
    found: Run = run
    questions: list[Callable[[], object]] = [
        lambda: repr(found), lambda: found.methods, lambda: found.complete, lambda: found.summary,
        lambda: found.statistics, found.subspaces, lambda: list(found.iterate("texts")), found.to_pandas,
        lambda: found.to_pandas("tokens"), lambda: found.to_pandas("texts", ["text", "tokens"]),
        lambda: found.query("tokens > 3"), lambda: found.query("text >= 0", "texts"), found.to_xarray,
        lambda: found.to_xarray("tokens"), found.means, lambda: found.means("tokens"), found.verify,
    ]  # fmt: skip
    if plot:
        questions += [lambda kind=kind: _drawn(found, kind) for kind in ("mean", "length", "histogram")]  # type: ignore[misc]
    for question in questions:
        _asked(question)


def _asked(question: Callable[[], object]) -> None:
    try:
        question()
    except IdentiscopeError as error:
        str(error).encode("utf-8")


def _drawn(run: Run, kind: str) -> None:
    import matplotlib.pyplot as plt

    try:
        run.plot("entropy", kind=kind)
    finally:
        plt.close("all")


def _chance(chance: random.Random, run: Path) -> str:
    """Damage by chance to one or two files."""
    files = sorted(path for path in run.rglob("*") if path.is_file())
    said = []
    for _ in range(chance.choice((1, 1, 2))):
        path = chance.choice([path for path in files if path.exists()])
        kind = chance.choice(("flip", "flip", "cut", "gone", "swap", "noise", "insert"))
        # Where the first damage left nothing, there is a byte for the second.
        data = bytearray(path.read_bytes() or b"\0")
        if kind == "flip":
            for _ in range(chance.choice((1, 3, 30))):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        elif kind == "cut":
            del data[chance.randrange(len(data)) :]
        elif kind == "noise":
            data = bytearray(chance.randbytes(chance.choice((0, 1, 8, 100, len(data)))))
        elif kind == "insert":
            data[(place := chance.randrange(len(data))) : place] = chance.randbytes(5)
        elif kind == "swap":
            other = chance.choice(files)
            data = bytearray(other.read_bytes()) if other.exists() else data
        path.unlink() if kind == "gone" else path.write_bytes(data)
        said.append(f"{kind} {path.relative_to(run)}")
    return ", ".join(said)


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(found for name, part in inside for found in _places(part, (*place, name)))]


def _odd_value(chance: random.Random, value: Any) -> str:
    """Put something odd somewhere into a JSON value: another value, a name less, or one more."""
    *way, last = chance.choice(_places(value)[1:])
    place = value
    for name in way:
        place = place[name]
    kind = chance.choice(("other", "other", "other", "less", "more"))
    odd = chance.choice(_ODD)
    if kind == "less":
        del place[last]
    elif kind == "more" and isinstance(place, dict):
        place[chance.choice(("", "x", "\ud800", "a" * 300))] = odd
    else:
        place[last] = odd
    return f"{kind} at {[*way, last]}: {ascii(odd)[:40]}"


def _crafted(chance: random.Random, run: Path) -> str:
    """Something wrong inside, with every hash in step."""
    kind = chance.choice(("manifest", "manifest", "record", "seal", "summary", "table", "arrays", "text"))
    record = run / "shards" / f"00000{chance.randrange(_SHARDS)}" / RECORD
    said = ""
    if kind == "manifest":

        def change(manifest: dict[str, Any]) -> None:
            nonlocal said
            said = _odd_value(chance, manifest)
            decides = {name: manifest.get(name) for name in DECIDES}
            manifest["run"] = facts_of(canonical(decides))["sha256"]

        edited(run / NAME, change)
        if chance.random() < 0.8:
            _rebound(run, json.loads((run / NAME).read_bytes())["run"])
    elif kind == "record":

        def change_record(value: dict[str, Any]) -> None:
            nonlocal said
            said = _odd_value(chance, value)

        edited(record, change_record)
        resealed(run)
    elif kind == "seal":

        def change_seal(value: dict[str, Any]) -> None:
            nonlocal said
            said = _odd_value(chance, value)

        edited(run / SEAL, change_seal)
    elif kind == "summary":
        value = json.loads((run / FACTS).read_bytes())
        said = _odd_value(chance, value)
        (run / FACTS).write_text(json.dumps(value))
        resealed(run)
    elif kind == "text":
        path = chance.choice((run / NAME, run / SEAL, run / FACTS, record))
        text = chance.choice(("[" * 100_000, "{" * 5, "9" * 5000, "NaN", '{"a":' * 3000, "\ufeff{}", "null", "1e999"))
        said = f"{path.name} is {text[:10]}"
        path.write_text(text)
    else:
        said = _crafted_file(chance, run, record, arrays=kind == "arrays")
    return f"crafted {kind}: {said}"


def _rebound(run: Path, identity: str) -> None:
    """Let everything be of the Run that a changed manifest describes."""
    for record in sorted((run / "shards").glob(f"*/{RECORD}")):
        edited(record, lambda value: value.update(run=identity))
    facts = json.loads((run / FACTS).read_bytes())
    (run / FACTS).write_bytes(json_bytes(facts | {"run": identity}))
    edited(run / SEAL, lambda value: value.update(run=identity))
    resealed(run)


def _crafted_file(chance: random.Random, run: Path, record: Path, *, arrays: bool) -> str:
    """Bytes changed inside a table or a file of arrays, and everything that has their hash in step."""
    suffix = ".safetensors" if arrays else ".parquet"
    inside = sorted(path for path in record.parent.iterdir() if path.suffix == suffix)
    path = chance.choice([*inside, *((run / STATISTICS, run / SUBSPACES) if arrays else ())])
    data = bytearray(path.read_bytes())
    # Headers and footers are where the sense is.
    near = (0, min(len(data), 600)) if arrays else (max(0, len(data) - 900), len(data))
    for _ in range(chance.choice((1, 1, 4))):
        begin, end = near if chance.random() < 0.8 else (0, len(data))
        data[chance.randrange(begin, end)] = chance.randrange(256)
    path.write_bytes(data)
    if path.parent == record.parent:
        edited(record, lambda value: value["files"].update({path.name: facts_of(bytes(data))}))
    resealed(run)
    return str(path.relative_to(run))


class _TooLong(BaseException):
    pass


def _alarm(*_: object) -> None:
    raise _TooLong


def fuzz(cases: int, seed: int = 0, seconds: float | None = None) -> Outcome:
    """So many damaged and crafted directories, by a seed; fewer if the time is over."""
    end = None if seconds is None else time.monotonic() + seconds
    failures, done = [], 0
    with tempfile.TemporaryDirectory() as folder:
        whole = whole_run(Path(folder))
        while done < cases and (end is None or time.monotonic() < end):
            failures += case(whole, seed, done)
            done += 1
    return Outcome("damaged and crafted Run directories that are read, or refused in words", done, tuple(failures))


def whole_run(base: Path) -> Path:
    """A Run whose bytes are the same wherever it was made, so that a seed always gives the same cases."""
    run = tiny_run(base, options=replace(EVERYTHING, shard_size=4)).directory
    assert len(list((run / "shards").iterdir())) == _SHARDS
    edited(run / NAME, lambda manifest: manifest["names"].update(model="model", corpus="texts.tsv"))
    return run


def case(whole: Path, seed: int, number: int) -> list[str]:
    """One case; what went wrong is returned."""
    run, chance, said = whole.parent / "case", random.Random(f"{seed} {number}"), "?"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(whole, run)
    try:
        with _in_time():
            said = _chance(chance, run) if number % 2 else _crafted(chance, run)
            read_all(run, plot=number % 25 == 0)
    except Exception as error:
        return [f"case {number} of seed {seed}: {said}: {type(error).__name__}: {str(error)[:200]}"]
    except _TooLong:
        return [f"case {number} of seed {seed}: {said}: it takes too long"]
    return []


@contextmanager
def _in_time() -> Iterator[None]:
    names = (signal.SIGALRM, signal.SIGPROF)
    before = [signal.signal(name, _alarm) for name in names]
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE)
    signal.setitimer(signal.ITIMER_PROF, _WORK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for name, handler in zip(names, before, strict=True):
            signal.signal(name, handler)
