"""`identiscope method`: every registered method on the command line, made from its signature alone."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner
from torch import Tensor

import identiscope
from identiscope.cli import main
from identiscope.commands.annotations import default_of, type_of
from identiscope.commands.method import MOST_ROWS, Methods
from identiscope.methods.kinds import KINDS
from identiscope.methods.registry import METHODS, Method, registered
from identiscope.methods.signatures import Option, signature
from identiscope.views.tables.layers import layer_sentences
from identiscope.views.tables.rows import print_rows
from tiny_text_model import save_tiny

TEXT = "w1 w2 w3 , w4 w5 w6 w7 w8 ."
ON_SITES = [one for one in METHODS.values() if one.family.scope in ("layer", "head")]
How = Literal["half", "twice"]
SOME = 2**3


def toy(
    attention: Tensor,
    *,
    how: How = "half",
    times: float = SOME,
    only: int | Sequence[int] | None = None,
    deep: bool = False,
    weights: Tensor | None = None,
    truncate: int = 3,
) -> Tensor:
    """Attention, changed.

    how: in which way. times: as often as this. only: these queries. deep: or not.
    """
    changed = attention * {"half": 0.5, "twice": 2.0}[how] * times
    return changed if only is None else changed * 0


TOY = Method("toy", "map", "this test", "half of attention, or twice", aliases=("plaything",), function=toy)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("here") / "model"))


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments), terminal_width=100)


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("command", [("method", "--help"), ("methods",)])
def test_all_methods_are_listed_by_kind_with_their_sentence(command: tuple[str, ...]) -> None:
    shown = flat(invoke(*command).output)
    for one in METHODS.values():
        assert f"{one.name} {one.says}" in shown
        assert f"{one.kind} ({KINDS[one.kind].says})" in shown


def test_the_list_as_json() -> None:
    listed = json.loads(invoke("methods", "--json").output)
    assert [one["name"] for one in listed] == list(METHODS)
    assert listed[0]["paper"] == next(iter(METHODS.values())).paper


@pytest.mark.parametrize("method", ON_SITES, ids=lambda method: method.name)
def test_every_method_runs_and_prints_its_table(model: str, method: Method) -> None:
    place = ["--layer", "1", "--head", "2"] if method.family.scope == "head" else []
    if any(option.name == "outcome" for option in signature(method).options):
        place += ["--outcome", "similarity:w1 w2"]
    done = invoke("method", method.name, model, TEXT, *place)
    assert done.exit_code == 0, (done.output, done.exception)
    assert flat(f"{method.name.replace('_', ' ')}: {method.says}") in flat(done.output)
    assert len(done.output.splitlines()) <= MOST_ROWS + 12
    whole = json.loads(invoke("method", method.name, model, TEXT, *place, "--json").output)
    assert whole["kind"] == method.kind and whole["rows"]


def test_a_layer_without_alternatives_says_none_and_why(model: str) -> None:
    done = invoke("method", "layer_alternative", model, TEXT)
    condition = identiscope.layer_alternative(identiscope.trace(model, TEXT)).projection_condition.values
    ends = [f"{size:,.0f}" if size >= 100 else f"{size:.3g}" for size in (condition.min(), condition.max())]
    assert "none in layers 0 to 1: no attention can move between heads" in flat(done.output)
    assert f"(condition of W_O {ends[0]} to {ends[1]})." in flat(done.output)
    # No raw weight is called an alternative.
    assert "layer alternative" in done.output and "query" not in done.output
    assert json.loads(invoke("method", "layer_alternative", model, TEXT, "--json").output)["in_words"]


def test_a_layer_with_alternatives_says_how_many() -> None:
    said = layer_sentences(
        xr.Dataset(
            {"between_heads": ("layer", [0, 16, 0]), "projection_condition": ("layer", [12.345, np.inf, np.inf])},
            coords={"layer": [2, 3, 5]},
        )
    )
    assert said == [
        "layer 3: attention can move between its heads in 16 directions (condition of W_O infinite).",
        "none in layer 2: no attention can move between heads, as they are together no wider than the model and W_O is"
        " not singular (condition of W_O 12.3).",
        "none in layer 5: no attention can move between heads on this text (condition of W_O infinite).",
    ]


def test_long_names_of_columns_are_folded_and_none_is_lost(model: str) -> None:
    done = invoke("method", "layer_rank", model, TEXT).output
    assert "no room" not in done
    for word in ("between", "heads", "projection", "condition", "separate"):
        assert word in done


def test_what_has_no_room_is_said_once_if_it_is_the_same_in_all_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns that tell rows apart stay, and of the others the last go."""
    sizes = {f"constant_{number}": ("layer", [7] * 3) for number in range(8)}
    changing = {f"changing_{number}": ("layer", [10.0**number, 2.0, 3.0]) for number in range(6)}
    print_rows(xr.Dataset(sizes | changing, coords={"layer": [0, 1, 2]}), 20)
    shown = capsys.readouterr().out
    heading = shown.partition("\n")[2].partition("1.000")[0]
    assert heading.count("changing") == 6 and heading.count("constant") == 5
    said = [f"constant_{number} 7" for number in range(5, 8)]
    assert f"in all these rows: {', '.join(said)}" in shown and "no room" not in shown
    wide = {f"column_{number}": ("layer", [10.0**number, 2.0, 3.0]) for number in range(14)}
    print_rows(xr.Dataset(wide, coords={"layer": [0, 1, 2]}), 20)
    shown = capsys.readouterr().out
    assert "columns that have no room here: column_9, column_10, column_11, column_12, column_13" in shown


def test_all_rows_are_in_json_and_csv_and_the_result_in_safetensors(model: str, tmp_path: Path) -> None:
    table, result = tmp_path / "table.csv", tmp_path / "result.safetensors"
    given = ("method", "effective", model, TEXT, "--layers", "1", "--heads", "0,2")
    printed = invoke(*given, "-o", str(table)).output
    saved = invoke(*given, "--out", str(result), "--json")
    rows, kept = json.loads(saved.output)["rows"], identiscope.load_result(result)
    expected = 2 * kept.sizes["query"] * kept.sizes["key"]
    assert f"the {MOST_ROWS} largest of {expected} rows, by effective" in printed and str(table) in printed
    with table.open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == len(rows) == expected
    one = rows[7]
    found = kept["effective"].sel(layer=one["layer"], head=one["head"]).isel(query=one["query"], key=one["key"])
    assert one["effective"] == float(found) and one["layer"] == 1
    assert kept.attrs["options"]["heads"] == [0, 2]


def test_dashes_aliases_and_names_that_are_none(model: str) -> None:
    assert invoke("method", "head-summary", model, TEXT).exit_code == 0
    assert "raw attention" in invoke("method", "raw", model, TEXT).output
    done = invoke("method", "nothing", model, TEXT)
    assert done.exit_code == 2 and "there is no method 'nothing'; there are" in done.output


def test_what_a_method_refuses_is_refused(model: str, tmp_path: Path) -> None:
    done = invoke("method", "attention_intervals", model, TEXT)
    assert done.exit_code == 2 and "Missing option '--layer'" in done.output
    done = invoke("method", "attention_intervals", model, TEXT, "--layer", "0", "--head", "1", "--cells", "1;2")
    assert done.exit_code == 2 and "is not a pair such as 3:7" in done.output
    done = invoke("method", "effective", model, TEXT, "--layers", "7")
    assert isinstance(done.exception, identiscope.InputError)
    done = invoke("method", "effective", model, TEXT, "--out", str(tmp_path))
    assert isinstance(done.exception, identiscope.InputError) and "is a directory" in str(done.exception)


def test_a_method_of_one_s_own_is_there_as_long_as_it_is_registered(model: str) -> None:
    assert invoke("method", "toy", model, TEXT).exit_code == 2
    with registered(TOY):
        assert "toy" in invoke("method", "--help").output
        shown = flat(invoke("method", "plaything", "--help").output)
        assert "--how [half|twice] In which way. [default: half]" in shown
        assert "As often as this. [default: 8]" in shown and "--deep / --no-deep" in shown
        # A tensor cannot be typed, and `truncate` is an option of every command.
        assert "Python only: weights, truncate (identiscope.toy)." in shown
        done = invoke("method", "toy", model, TEXT, "--how", "twice", "--times", "1.5", "--json")
        assert done.exit_code == 0, (done.output, done.exception)
        report = json.loads(done.output)
        sums: dict[tuple[int, ...], float] = {}
        for row in report["rows"]:
            place = (row["layer"], row["head"], row["query"])
            sums[place] = sums.get(place, 0.0) + row["toy"]
        assert np.allclose(list(sums.values()), 3.0)
        assert report["options"]["times"] == 1.5 and report["options"]["deep"] is False
        done = invoke("method", "toy", model, TEXT, "--only", "0-2", "--json")
        assert json.loads(done.output)["options"]["only"] == [0, 1, 2]
    assert "toy" not in invoke("methods").output


@pytest.mark.parametrize(
    ("annotation", "given", "expected"),
    [
        ("int", "-3", -3),
        ("float | None", "1e-3", 1e-3),
        ("str", "a b", "a b"),
        ("Optional[int]", "4", 4),
        ("'int | None'", "4", 4),
        ("Sequence[int]", "0,2-3", [0, 2, 3]),
        ("Sequence[float]", "1, 2.5", [1.0, 2.5]),
        ("list[str] | None", "a,b", ["a", "b"]),
        ("Sequence[tuple[int, int]]", "1:2,3:4", [(1, 2), (3, 4)]),
        ("Literal['a'] | Literal['b']", "b", "b"),
        ("int | float", "2.5", 2.5),
        ("Tensor | Sequence[float]", "1,2", [1.0, 2.0]),
    ],
)
def test_what_can_be_typed(annotation: str, given: str, expected: Any) -> None:
    known = type_of(TOY, Option("x", annotation, None, ""))
    assert known is not None and known.convert(given, None, None) == expected


@pytest.mark.parametrize("annotation", ["Tensor", "Mapping[str, int]", "Callable[[int], int] | None", "Any", "None"])
def test_what_cannot_be_typed(annotation: str) -> None:
    assert type_of(TOY, Option("x", annotation, None, "")) is None


def test_numbers_that_are_none() -> None:
    known = type_of(TOY, Option("x", "float", None, ""))
    assert known is not None
    for given in ("nan", "inf", "much"):
        with pytest.raises(click.BadParameter):
            known.convert(given, None, None)


@pytest.mark.parametrize(("written", "shown"), [("None", None), ("2**30", "1073741824"), ("SOME", "8"), ("f()", None)])
def test_defaults_in_words(written: str, shown: str | None) -> None:
    assert default_of(TOY, Option("x", "int", written, "")) == shown


def test_the_group_is_lazy() -> None:
    command = main.commands["method"]
    assert isinstance(command, Methods) and not command.commands
