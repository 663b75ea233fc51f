"""Files of identiscope's formats with something wrong in them: each is read, or refused in words."""

import json
import os
import random
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import identiscope
from soak.outcome import Outcome

DEEP = "[" * 100_000 + "]" * 100_000
WRONG: list[Any] = [
    None, True, -1, 0, 2**70, 1.5, float("nan"), "", "x", "\ud800", "é" * 300, [], [[]], ["a", "a"], ["layer", "layer"],
    [1], [None], [-1], [2**40], [0], {}, {"a": {}}, {"axes": []}, {"coordinate": "yes"}, {"values": [1, 2]},
]  # fmt: skip
TYPES = ["F64", "F32", "F16", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "C64", "X9", 3, None]


def split(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header and the numbers of a safetensors file."""
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def joined(header: Any, numbers: bytes, size: int | None = None) -> bytes:
    """A safetensors file of a header, which may claim another size."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", (len(text) if size is None else size) % 2**64) + text + numbers


def broken(chance: random.Random, data: bytes) -> bytes:
    """A file that was good, with one or two things wrong."""
    header, numbers = split(data)
    kind = chance.randrange(12)
    if kind == 0:
        return bytes(chance.randrange(256) for _ in range(chance.randrange(400)))
    if kind == 1:
        return data[: chance.randrange(len(data))]
    if kind == 2:
        return joined(
            header, numbers, chance.choice([0, 1, 7, 2**31, 2**40, 2**63, 2**64 - 1, len(data), len(data) * 2])
        )
    if kind == 3:
        flipped = bytearray(data)
        for _ in range(chance.choice([1, 3, 30])):
            flipped[chance.randrange(len(flipped))] = chance.randrange(256)
        return bytes(flipped)
    if kind == 4:
        return joined(
            chance.choice(["", "{", "[]", "null", DEEP, '{"__metadata__": 5}', "\x00" * 9, "9" * 6000]), numbers
        )
    for _ in range(chance.choice([1, 1, 2])):
        change(chance, header)
    return joined(header, chance.choice([numbers, numbers, numbers + b"more", b""]))


def change(chance: random.Random, header: dict[str, Any]) -> None:
    """One thing in a header put wrong: of a tensor, of the file, or inside what the file says in JSON."""
    about = header.get("__metadata__", {})
    tensors = [name for name in header if name != "__metadata__"]
    kind = chance.randrange(6)
    if kind == 0 and tensors:
        one = header[chance.choice(tensors)]
        if isinstance(one, dict):
            field = chance.choice(["dtype", "shape", "data_offsets"])
            one[field] = chance.choice(TYPES if field == "dtype" else [*WRONG, [3, 3], [0, 10**12], [2**62, 4]])
        return
    if kind == 1 and tensors:
        header.pop(chance.choice(tensors))
        return
    if kind == 2 or not isinstance(about, dict) or not about:
        header["__metadata__"] = chance.choice([*WRONG, {"format": 5}, {"format": "identiscope-result-1"}])
        return
    name = chance.choice(list(about))
    if kind == 3:
        about[name] = chance.choice(
            ["", "{", DEEP, "NaN", "[NaN]", '{"a": Infinity}', "9" * 6000, "\ud800", 5, None, []]
        )
        return
    if kind == 4:
        about.pop(name)
        return
    try:
        inside = json.loads(about[name])
    except (ValueError, TypeError, RecursionError):
        return
    about[name] = json.dumps(altered(chance, inside))


def altered(chance: random.Random, value: Any) -> Any:
    """A JSON value with one part of it exchanged, left out, or put in twice."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        key = chance.choice(list(value))
        if chance.random() < 0.2:
            return {name: part for name, part in value.items() if name != key}
        return value | {key: altered(chance, value[key])}
    if isinstance(value, list) and value and chance.random() < 0.6:
        place = chance.randrange(len(value))
        if chance.random() < 0.3:
            return [*value, value[place]]
        return [*value[:place], altered(chance, value[place]), *value[place + 1 :]]
    return chance.choice(WRONG)


def files(count: int, folder: Path, seed: int = 0) -> Outcome:
    """So many files, each read by what reads its kind."""
    chance = random.Random(seed)
    readers = good(folder)
    nodes = unusual(folder)
    failures: list[str] = []
    read = 0
    for number in range(count):
        name, reader, data = chance.choice(readers)
        path = folder / f"case-{number}"
        what = name
        if number < len(nodes):
            what, path = nodes[number]
        else:
            path.write_bytes(broken(chance, data))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                reader(path)
            read += 1
        except identiscope.IdentiscopeError:
            pass
        except Exception as error:
            failures.append(f"case {number} ({what}, {name}): {type(error).__name__}: {str(error)[:200]}")
        if path.name.startswith("case-"):
            path.unlink()
    return Outcome(
        "a damaged or crafted file is read, or raises an IdentiscopeError", count, tuple(failures),
        f"{read} of {count} could be read all the same",
    )  # fmt: skip


def good(folder: Path) -> list[tuple[str, Callable[[Path], Any], bytes]]:
    """What is read, by what, from files that are as they should be."""
    import torch
    from safetensors.torch import save

    from identiscope.papers.bhardwaj2021 import classifier as classifiers
    from identiscope.papers.brunner2020.probe_files import FORMAT, load_probes
    from identiscope.papers.structure_draft import reversal_model as reversals

    traced = identiscope.from_arrays(torch.eye(5), torch.randn(5, 2), tokens=list("abcde"))
    result = identiscope.save_result(identiscope.attention_maps(traced, 0, 0), folder / "result")
    config = classifiers.ClassifierConfig(vocabulary=5, labels=2, width=8, heads=2, feed_forward=6)
    made = classifiers.IdentifiableClassifier(config)
    classifier = classifiers.Classifier(made, classifiers.WordTokenizer(("a", "b", "c")), ("yes", "no"))
    classifier_file = classifiers.save_classifier(classifier, folder / "classifier")
    reversal = reversals.ReversalModel(reversals.ReversalConfig(length=3, vocabulary=3, width=4))
    reversal_file = reversals.save_reversal(reversal, folder / "reversal")
    about = {"model": "m", "model_name": "m", "text": "t", "layers": [0], "setup": {"inputs": "embeddings"}}
    parts = {f"linear cosine/{part}": torch.zeros(2, 2) for part in ("weight", "epochs", "rates", "validation")}
    probes = save(parts, metadata={"format": FORMAT, "about": json.dumps(about)})

    return [
        ("a result", identiscope.load_result, result.read_bytes()),
        ("a result", identiscope.load_result, result.read_bytes()),
        ("a classifier", classifiers.load_classifier, classifier_file.read_bytes()),
        ("a reversal model", reversals.load_reversal, reversal_file.read_bytes()),
        ("probes", load_probes, probes),
    ]


def unusual(folder: Path) -> list[tuple[str, Path]]:
    """What is no regular file, all of it inside the folder."""
    pipe, directory, link, circle = (folder / name for name in ("pipe", "directory", "link", "circle"))
    os.mkfifo(pipe)
    directory.mkdir()
    link.symlink_to(folder / "nowhere")
    circle.symlink_to(circle)
    closed, empty = folder / "closed", folder / "empty"
    closed.write_bytes(b"")
    closed.chmod(0)
    empty.write_bytes(b"")
    return [
        ("a pipe", pipe), ("a directory", directory), ("a link to nothing", link), ("a link to itself", circle),
        ("a file that may not be read", closed), ("an empty file", empty), ("a long name", folder / ("n" * 300)),
        ("a null byte", folder / "a\0b"), ("no UTF-8", folder / os.fsdecode(b"\xff\xfe")),
        ("half a pair", folder / "\ud800"), ("below a file", empty / "x"),
    ]  # fmt: skip
