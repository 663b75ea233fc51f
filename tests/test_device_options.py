"""Devices and dtypes as a user asks for them: on the command line, in Runs, and on a cluster."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import safetensors.numpy
import torch
import xarray as xr
from click.testing import CliRunner
from torch.nn.attention import SDPBackend, sdpa_kernel

import identiscope
import second_device
from identiscope.capture import placement
from identiscope.cli import main
from identiscope.commands.options import DTYPES
from identiscope.errors import InputError, ModelError
from identiscope.reports.live import live
from identiscope.runs.engines import ray as ray_engine
from identiscope.runs.engines.work import Work
from identiscope.views.server.questions import Question
from second_device import ONE, ZERO
from tiny_text_model import contents, save_tiny, words

TEXT = words(14)


@pytest.fixture(autouse=True)
def in_use() -> Iterator[None]:
    with second_device.in_use(), sdpa_kernel(SDPBackend.MATH):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "texts.tsv"
    lines = [f"{words(count, count)}\t{count % 2}" for count in (20, 9, 20, 14, 6, 12, 9, 17, 8, 15)]
    path.write_text("\n".join(["text\tlabel", *lines]), encoding="utf-8")
    return path


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments))


def both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str, device: str = "second:1"
) -> tuple[list[str], list[dict[str, bytes]]]:
    """What a command prints and writes without a device and with one, each in a folder of its own."""
    printed, written = [], []
    for name, options in (("here", []), ("there", ["--device", device])):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        result = invoke(*arguments, *options)
        assert result.exit_code == 0, result.output
        printed.append(result.output)
        written.append(contents(tmp_path / name))
    return printed, written


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "--text", TEXT],
        ["trace", TEXT],
        ["attention", TEXT],
        ["attention", TEXT, "--layer", "1", "--head", "2", "--top", "3"],
        ["attribution", TEXT, "--probes", "4", "--compare"],
    ],
    ids=lambda arguments: " ".join(arguments[:1] + arguments[2:3]),
)
def test_commands_about_a_text(
    arguments: list[str], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, *rest = arguments
    here, there = (json.loads(one) for one in both(tmp_path, monkeypatch, command, str(folder), *rest, "--json")[0])
    if command == "attribution":
        assert {there.pop("device"), there.pop("analysis_device")} == {"second:1"}
        assert {here.pop("device"), here.pop("analysis_device")} == {"cpu"}
    assert_alike(there, here)


def assert_alike(found: Any, expected: Any) -> None:
    """The same JSON, but for the rounding of numbers."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_alike(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True)
    else:
        assert found == expected


def test_a_report_by_command(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, (here, there) = both(tmp_path, monkeypatch, "report", str(folder), TEXT, "--attribution", "4")
    assert there == here and here


def test_commands_about_a_corpus(folder: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, arguments in {
        "structure": ["structure", str(folder), str(corpus), "--columns", "text", "--limit", "5",
                      "--perturb", "1.2", "--sets", "2"],
        "tokens": ["tokens", str(folder), str(corpus), "--columns", "text", "--folds", "1",
                   "--probe", "naive", "--experiment", "same-layer"],
        "fine-tune": ["fine-tune", str(folder), str(corpus), "--out", "tuned", "--columns", "text", "--epochs", "1"],
    }.items():  # fmt: skip
        (tmp_path / name).mkdir()
        (here, there), (files, others) = both(tmp_path / name, monkeypatch, *arguments)
        assert there == here
        assert files.keys() == others.keys()
        same = [file for file in files if file.endswith((".npy", "model.safetensors", "head.safetensors"))]
        assert bool(same) == (name != "structure")
        for file in same:
            if file.endswith(".npy"):
                assert files[file] == others[file]
            else:  # gradients are added up in another order
                for key, value in safetensors.numpy.load(files[file]).items():
                    np.testing.assert_allclose(value, safetensors.numpy.load(others[file])[key], atol=1e-5)


def test_a_run_by_command(folder: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, options in (("here", []), ("there", ["--device", "second:1"]), ("aside", ["--analysis-device", "cpu"])):
        device = ["--device", "second:0"] if name == "aside" else []
        result = invoke(
            "run", str(folder), str(corpus), "-o", str(tmp_path / name), "--columns", "text", *options, *device
        )
        assert result.exit_code == 0, result.output
    runs = [identiscope.open_run(tmp_path / name) for name in ("here", "there", "aside")]
    here, there, aside = (run.to_xarray("attention") for run in runs)
    assert aside.equals(here)
    # On the CPU rows are compiled; elsewhere they are added up in another order, in float32.
    xr.testing.assert_allclose(there, here, rtol=1e-6, atol=1e-7)
    assert [run.manifest["model"].get("device") for run in runs] == [None, "second", "second"]
    assert [run.manifest["model"].get("analysis_device") for run in runs] == [None, "second", "cpu"]
    assert runs[1].manifest["names"]["loading"] == {"device": "second:1"}
    again = invoke("run", str(folder), str(corpus), "-o", str(tmp_path / "there"), "--columns", "text")
    assert again.exit_code != 0 and "model device (there: second, now: all)" in str(again.exception)


def test_the_viewer_s_server(folder: Path) -> None:
    pages = [
        live([identiscope.load(folder, device=device)])(Question(0, TEXT), lambda *_: None)
        for device in ("cpu", "second:1")
    ]
    assert pages[0].header == pages[1].header and pages[0].chunks == pages[1].chunks


@cache
def commands() -> dict[str, click.Command]:
    """Every command that loads a model, by its words."""
    found = {}
    context = click.Context(main)
    for name, command in main.commands.items():
        if isinstance(command, click.Group):
            for part in command.list_commands(context):
                below = command.get_command(context, part)
                assert below is not None
                found[f"{name} {part}"] = below
        elif name not in _WITHOUT_A_MODEL:
            found[name] = command
    return found


# These train models of their own, or load none.
_WITHOUT_A_MODEL = ("methods", "reverse-demo", "train-identifiable")


@pytest.mark.parametrize("name", commands())
def test_every_command_that_loads_a_model_refuses_a_device_that_is_not_there(
    name: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"structure": [str(corpus)], "tokens": [str(corpus)], "fine-tune": [str(corpus), "--out", "out"]}
    given |= {each: [str(corpus), "-o", "out"] for each in ("run", "heads", "judge")}
    given["rewrite"] = ["value_bias", "-o", "out"]
    given["compare"] = ["--methods", "attention,effective"]
    model = [] if name.startswith("reproduce") else ["minilm"]
    free = ["--port", "0"] if name == "serve" else []
    # What a command cannot do without: the head of a method that is asked of one.
    free += [f"{one.opts[0]}=0" for one in commands()[name].params if one.required and one.name in ("layer", "head")]
    result = invoke(*name.split(), *model, *given.get(name, []), *free, "--device", "cuda:17")
    said = str(result.exception) if isinstance(result.exception, ModelError) else result.output
    assert result.exit_code != 0 and "device='cuda:17' was given, which is not here; there are cpu" in said
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    options = {option.name: option for option in commands()[name].params}
    assert tuple(options["dtype"].type.choices) == DTYPES == placement.DTYPES  # type: ignore[attr-defined]


def test_dtypes_by_name(folder: Path) -> None:
    for name in DTYPES:
        assert identiscope.load(folder, dtype=name).dtype == getattr(torch, name)
    report = json.loads(invoke("check", str(folder), "--text", TEXT, "--dtype", "float64", "--json").output)
    assert report["precision"] == "float64" and report["error"] < 1e-12
    for wrong in ("float12", "int8", torch.int64, "Tensor"):
        with pytest.raises(ModelError, match=r"dtype=.* was given; expected one of float64, float32"):
            identiscope.load(folder, dtype=wrong)


# One device for each worker.


def test_devices_are_shared_out_among_workers(folder: Path, corpus: Path, tmp_path: Path) -> None:
    assert [placement.device_of_worker("second", number).index for number in range(5)] == [0, 1, 0, 1, 0]
    assert [placement.device_of_worker("second:1", number).index for number in range(2)] == [1, 1]
    assert placement.device_of_worker("cpu", 3) == torch.device("cpu")
    assert placement.device_of_worker("auto", 3) == placement.find_device("auto")
    with pytest.raises(ModelError, match="which is not here"):
        placement.device_of_worker("second:2", 0)
    run = identiscope.run_corpus(folder, corpus, tmp_path / "run", loading={"device": "second"}, text_columns=["text"])
    work = Work(run.manifest, str(folder), {"device": "second"})
    assert [work.worker(number=number).model.device for number in range(3)] == [ZERO, ONE, ZERO]
    with pytest.raises(InputError, match=r"would compute on cpu, and the Run does on second.*--device second"):
        Work(run.manifest, str(folder), {}).worker()


def test_a_worker_of_a_cluster_asks_for_a_gpu_when_its_device_is_one() -> None:
    def work(**model: str) -> Work:
        return Work({"model": model}, "minilm", {})

    assert ray_engine.resources(work()) == {"num_cpus": 1}
    assert ray_engine.resources(work(device="mps")) == {"num_cpus": 1}
    assert ray_engine.resources(work(device="cuda")) == {"num_cpus": 1, "num_gpus": 1}

    class Cluster:
        def __init__(self, **there: float) -> None:
            self.there = there

        def cluster_resources(self) -> dict[str, float]:
            return self.there

    ray_engine.check_gpus(Cluster(CPU=4.0), work())
    ray_engine.check_gpus(Cluster(CPU=4.0, GPU=1.0), work(device="cuda"))
    with pytest.raises(InputError, match="no machine of the Ray cluster has a GPU"):
        ray_engine.check_gpus(Cluster(CPU=4.0), work(device="cuda"))


def test_what_workers_of_a_cluster_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ray_engine.for_cluster({"revision": "main"}) == {"revision": "main"}
    assert ray_engine.for_cluster({"device": "cuda", "dtype": "float16"}) == {"device": "cuda", "dtype": "float16"}
    assert ray_engine.for_cluster({"device": "auto"}) == {"device": placement.find_device("auto").type}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert ray_engine.for_cluster({"device": "auto"}) == {"device": "cuda"}
    with pytest.raises(ModelError, match=r"on a Ray cluster give 'cuda': Ray chooses which"):
        ray_engine.for_cluster({"device": "cuda:1"})
    with pytest.raises(ModelError, match="expected cpu, cuda, mps or auto"):
        ray_engine.for_cluster({"device": "banana"})


def test_a_run_on_a_cluster_of_another_kind_of_machine(
    folder: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine that begins a Run needs none of the devices that its workers have."""
    asked: list[Work] = []

    def run_ray(work: Work, tasks: Any, workers: int, moved: Callable[[int, int], None], address: Any) -> Iterator[Any]:
        asked.append(work)
        yield from ()

    monkeypatch.setattr("identiscope.runs.compute.run.run_ray", run_ray)
    monkeypatch.setattr("identiscope.runs.compute.run.check_ray", lambda address: None)
    with pytest.raises(InputError, match="did not arrive"):
        identiscope.run_corpus(
            folder, corpus, tmp_path / "run", loading={"device": "cuda"}, engine="ray", text_columns=["text"],
            progress=lambda done, total: None,
        )  # fmt: skip
    assert asked[0].manifest["model"]["device"] == asked[0].manifest["model"]["analysis_device"] == "cuda"
    assert ray_engine.resources(asked[0])["num_gpus"] == 1 and asked[0].loading == {"device": "cuda"}
