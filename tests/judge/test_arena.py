"""The arena: its Run, its tables and controls, and methods of others."""

import base64
import gzip
import html
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from click.testing import CliRunner

import identiscope
from identiscope.cli import main
from identiscope.errors import InputError
from identiscope.judge.arena.arena import arena
from identiscope.judge.arena.asking import Judged
from identiscope.judge.arena.columns import cells, columns, word_of
from identiscope.judge.arena.score_files import read_scores, score_line
from identiscope.judge.arena.summary import summarised
from identiscope.judge.case import CEILING, CHANCE, RANDOM
from identiscope.judge.registry import TESTS
from identiscope.runs.format.tables import NAME
from identiscope.runs.format.verification import verify_run
from identiscope.views.page.arena import write_arena_page
from tiny_text_model import save_tiny, words

FAST = {"methods": ["attention", "gradient_input"], "planted": 1, "trained": False, "budget": 200}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "pairs.tsv"
    rows = [f"{words(4 + number % 3, number)}\t{words(5, 50 + number)}" for number in range(5)]
    path.write_text("sentence1\tsentence2\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def judged(tiny: Path, pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    place = tmp_path_factory.mktemp("judged")
    return place, arena(tiny, pairs, place, **FAST)  # type: ignore[arg-type]


def test_every_test_has_its_table_with_controls(judged: tuple[Path, dict[str, Any]]) -> None:
    place, said = judged
    assert said == json.loads((place / "judge.json").read_text(encoding="utf-8"))
    assert said["methods"] == ["attention", "gradient_input"] and said["outcome"] == "similarity" and said["texts"] == 5
    assert [test["name"] for test in said["tests"] if test["measures"]]
    for test in said["tests"]:
        if test["undecided"]:
            continue
        for measure in test["measures"]:
            names = [row["method"] for row in measure["rows"]]
            assert names == ["attention", "gradient_input", RANDOM, CHANCE, CEILING]
            for row in measure["rows"]:
                assert row["mean"] is None or row["low"] - 1e-9 <= row["mean"] <= row["high"] + 1e-9
    assert said["passes"] == {"attention": 0.0, "gradient_input": 3.0, RANDOM: 0.0}
    by_name = {test["name"]: test for test in said["tests"]}
    assert {"planted", "erasure", "causal"} <= by_name.keys()
    assert all(control["lands"] for control in by_name["erasure"]["controls"])


def test_texts_are_judged_in_a_run_that_goes_on_and_can_be_verified(
    judged: tuple[Path, dict[str, Any]], tiny: Path, pairs: Path
) -> None:
    place, said = judged
    assert not verify_run(place / "run").problems
    shard = sorted((place / "run" / "shards").iterdir())[1]
    before = {path.name: path.read_bytes() for path in shard.iterdir()}
    for path in list(shard.iterdir()):
        path.unlink()
    shard.rmdir()
    (place / "run" / "summary.json").unlink(missing_ok=True)
    assert arena(tiny, pairs, place, **FAST) == said  # type: ignore[arg-type]
    assert {path.name: path.read_bytes() for path in shard.iterdir()} == before


def test_another_question_is_not_mixed_into_a_run(judged: tuple[Path, dict[str, Any]], tiny: Path, pairs: Path) -> None:
    with pytest.raises(identiscope.IdentiscopeError):
        arena(tiny, pairs, judged[0], **(FAST | {"budget": 150}))  # type: ignore[arg-type]


def test_another_function_of_the_same_name_is_another_question(tiny: Path, pairs: Path, tmp_path: Path) -> None:
    def ask(scorer: Any, tests: str) -> Any:
        said = arena(tiny, pairs, tmp_path / tests, methods=["gradient_input"], tests=tests, functions={"mine": scorer},
                     budget=200, planted=2, trained=False, limit=2)  # fmt: skip
        return [row["mean"] for row in said["tests"][0]["measures"][0]["rows"] if row["method"] == "mine"]

    def rising(model: Any, ids: Sequence[int], runs: Any) -> list[float]:
        return [float(place) for place in range(len(ids))]

    def falling(model: Any, ids: Sequence[int], runs: Any) -> list[float]:
        return [1.0 / (1 + place) for place in range(len(ids))]

    assert ask(rising, "planted") == ask(rising, "planted") != ask(falling, "planted")
    ask(rising, "causal")
    with pytest.raises(identiscope.IdentiscopeError, match="begun otherwise"):
        ask(falling, "causal")


def noisy(good: bool, texts: int = 40) -> tuple[dict[str, np.ndarray], list[str]]:
    """A table of one test: a good method, a bad one, random; the random scorer lands at chance, or is above it."""
    generator = np.random.default_rng(0)
    test = TESTS["erasure"]
    names = ["fine", "poor", RANDOM]
    means = {"fine": 0.9, "poor": 0.6, RANDOM: 0.5 if good else 0.7, CHANCE: 0.5, CEILING: 1.0}
    table = {
        cell.name: np.clip(means[cell.method] + 0.05 * generator.normal(size=texts) * (cell.method in names), 0, 1)
        for cell in cells([test], names)
        if not (cell.method == CEILING and cell.measure.better == "low")
    }
    table |= {cell.name: np.full(texts, np.nan) for cell in cells([test], names) if cell.name not in table}
    return table, names


def test_controls_that_land_are_trusted_and_others_are_not(tmp_path: Path) -> None:
    for good in (True, False):
        table, names = noisy(good)
        said = summarised(table, [TESTS["erasure"]], names, {})["tests"][0]
        assert said["trusted"] is good
    table, names = noisy(True)
    table["erasure_most_first__fine"][3] = 1.2
    said = summarised(table, [TESTS["erasure"]], names, {})
    assert not said["tests"][0]["trusted"]
    facts = {"model": "m", "corpus": "c", "texts": 40, "methods": names[:-1]}
    for trusted in (False, True):
        said["tests"][0]["trusted"] = trusted
        page = write_arena_page({**facts, **said}, tmp_path).read_text(encoding="utf-8")
        assert ("Not to be trusted: erasure." in page) is ("this table is not to be trusted" in page) is not trusted


def test_a_table_rarely_calls_itself_wrong_by_chance_and_few_texts_cannot() -> None:
    """Twelve controls of one test, where there is nothing: together they fail in 1 % of tables, and not in 12 %."""
    test, names = TESTS["planted"], ["one", "two", RANDOM]
    generator = np.random.default_rng(0)
    wrong = 0
    for _ in range(40):
        table = {cell.name: np.full(16, 0.5) for cell in cells([test], names)}
        table |= {name: generator.random(16) for name in table if name.endswith(f"__{RANDOM}")}
        table |= {name: np.full(16, np.nan) for name in table if name.endswith(f"__{CEILING}")}
        wrong += not summarised(table, [test], names, {})["tests"][0]["trusted"]
    assert wrong <= 3
    few = {name: values[:6] + 5 * name.endswith(f"__{RANDOM}") for name, values in table.items()}
    said = summarised(few, [test], names, {})["tests"][0]
    assert said["trusted"] and not any(control["told"] for control in said["controls"])
    assert "too few texts" in said["controls"][0]["says"]
    many = {name: values + 0.4 * name.endswith(f"__{RANDOM}") for name, values in table.items()}
    assert not summarised(many, [test], names, {})["tests"][0]["trusted"]


def test_a_clear_winner_is_first_and_a_tie_is_undecided() -> None:
    table, names = noisy(True)
    measure = summarised(table, [TESTS["erasure"]], names, {})["tests"][0]["measures"][0]
    assert measure["best"] == ["fine"] and measure["pairs"][0]["decided"]
    generator = np.random.default_rng(1)
    table["erasure_most_first__poor"] = table["erasure_most_first__fine"] + 0.02 * generator.normal(size=40)
    measure = summarised(table, [TESTS["erasure"]], names, {})["tests"][0]["measures"][0]
    assert measure["best"] == ["fine", "poor"] and not measure["pairs"][0]["decided"]


def test_what_differs_by_rounding_alone_is_undecided() -> None:
    table, names = noisy(True)
    table["erasure_most_first__poor"] = table["erasure_most_first__fine"] + 1e-6
    pair = summarised(table, [TESTS["erasure"]], names, {})["tests"][0]["measures"][0]["pairs"][0]
    assert not pair["decided"] and abs(pair["mean"]) <= 1e-4


def test_of_measures_that_are_low_where_good_the_lowest_leads() -> None:
    table, names = noisy(True)
    said = summarised(table, [TESTS["erasure"]], names, {})["tests"][0]
    same = {(one["first"], one["second"]): one for one in said["same"]}
    # Two methods have no ranking to compare.
    assert same == {}


def test_functions_and_files_of_others_are_judged_like_ours(tiny: Path, pairs: Path, tmp_path: Path) -> None:
    model = identiscope.load(tiny)

    def first(model: Any, ids: Sequence[int], runs: Any) -> list[float]:
        return [float(place == 1) for place in range(len(ids))]

    lines = []
    for text in identiscope.read_corpus(pairs):
        ids = list(identiscope.trace(model, text.parts[0]).main.ids or ())
        lines.append(score_line("mine", ids, [float(place == 1) for place in range(len(ids))]))
    path = tmp_path / "scores.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    said = arena(
        model, pairs, tmp_path / "judged", methods=["gradient_input"], tests="erasure", budget=200, scores=path,
        functions={"first_token": first},
    )  # fmt: skip
    measure = said["tests"][0]["measures"][2]
    means = {row["method"]: row["mean"] for row in measure["rows"]}
    assert measure["name"] == "comprehensiveness"
    assert means["mine"] == pytest.approx(means["first_token"], abs=1e-6) and means["mine"] is not None


def test_scores_that_do_not_fit_are_said_and_the_others_are_judged(tiny: Path, pairs: Path, tmp_path: Path) -> None:
    model = identiscope.load(tiny)
    path = tmp_path / "scores.jsonl"
    path.write_text(score_line("mine", [1, 2, 3], [0.1, 0.2, 0.3]), encoding="utf-8")

    def broken(model: Any, ids: Sequence[int], runs: Any) -> list[float]:
        return [float("nan")] * len(ids)

    def raising(model: Any, ids: Sequence[int], runs: Any) -> list[float]:
        return [1 / 0] * len(ids)

    said = arena(
        model, pairs, tmp_path / "judged", methods=["gradient_input"], tests="causal", budget=200, scores=path,
        functions={"broken": broken, "raising": raising},
    )  # fmt: skip
    assert "has no scores of mine" in said["reasons"]["mine"] and "not finite" in said["reasons"]["broken"]
    assert said["reasons"]["raising"] == "raising failed: ZeroDivisionError: division by zero"
    rows = {row["method"]: row["mean"] for row in said["tests"][0]["measures"][0]["rows"]}
    assert rows["mine"] is None and rows["broken"] is None and rows["gradient_input"] is not None


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ('{"method": "m", "ids": [1, 2], "scores": [1.0]}', "as many scores as ids"),
        ('{"method": "m", "ids": [1], "scores": [NaN]}', "no finite number"),
        ('{"method": "m", "ids": [1], "scores": [1' + "0" * 400 + "]}", "no finite number"),
        ('{"method": "m", "ids": [1], "scores": [true]}', "no finite number"),
        ('{"method": "m", "ids": [], "scores": []}', "as many scores as ids"),
        ('{"method": "m", "ids": [true], "scores": [1]}', "whole numbers"),
        ('{"method": "m", "ids": ["a"], "scores": [1]}', "whole numbers"),
        ('{"a":' * 9999, "no JSON"),
        ("nonsense", "no JSON"),
        ("", "holds no scores"),
        ('{"ids": [1], "scores": [1]}', "expected"),
        ('{"method": "m", "ids": [1], "scores": [1]}\n{"method": "m", "ids": [1], "scores": [2]}', "already"),
    ],
)
def test_a_file_of_scores_that_is_none_says_so(line: str, word: str, tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    path.write_text(line, encoding="utf-8")
    with pytest.raises(InputError, match=word):
        read_scores(path)


def test_a_file_of_scores_may_hold_more_and_come_from_windows(tmp_path: Path) -> None:
    """Ends of lines that only some programs know may stand in a text that is kept beside its scores."""
    path = tmp_path / "scores.jsonl"
    lines = [f'{{"method": "m", "ids": [{token}], "scores": [1], "text": "a\u2028b\x85c"}}' for token in (1, 2)]
    path.write_bytes(("\ufeff" + "\r\n".join(lines) + "\r\n").encode())
    scorer: Any = read_scores(path)["m"]
    assert scorer(None, [1], None) == scorer(None, [2], None) == [1.0]


def test_what_captum_gives_is_added_up() -> None:
    line = json.loads(score_line("ig", [5, 6], np.array([[[1.0, 2.0], [0.5, 0.5]]])))
    assert line["scores"] == [3.0, 1.0]
    half = torch.tensor([[[1.0, 2.0], [0.5, 0.5]]], dtype=torch.bfloat16, requires_grad=True)
    assert json.loads(score_line("ig", [5, 6], half)) == line
    with pytest.raises(InputError, match="1 scores of ig are no finite numbers"):
        score_line("ig", [5, 6], np.array([np.nan, 1.0]))


def inseq_saved(scores: np.ndarray, *, wrapped: bool) -> dict[str, Any]:
    """As inseq 0.7.1 saves a prompt of two tokens and two that were generated; wrapped: with the names of classes."""
    packed = base64.b64encode(safetensors.numpy.save({"attribution": scores})).decode()

    def object_of(name: str, **values: Any) -> dict[str, Any]:
        return {"__instance_type__": ["inseq", name], "attributes": values} if wrapped else values

    tokens = [object_of("TokenWithId", id=token, token=f"w{token}") for token in (5, 6, 7, 8)]
    sequence = object_of(
        "GranularFeatureAttributionSequenceOutput", attr_pos_start=2, attr_pos_end=4, source=tokens[:2], target=tokens,
        source_attributions=None, target_attributions=packed, sequence_scores={}, step_scores={},
    )  # fmt: skip
    info = {"attribution_method": "sequential_integrated_gradients"}
    return object_of("FeatureAttributionOutput", info=info, sequence_attributions=[sequence], step_attributions=None)


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_what_inseq_saves_is_read(tmp_path: Path, wrapped: bool, packed: bool) -> None:
    """Every generated token is a text of its own, of its prefix; channels become their length, as inseq shows them."""
    nan = np.nan
    scores = np.array([[[3, 4], [0, 1]], [[0, 2], [6, 8]], [[nan, nan], [1, 0]], [[nan, nan], [nan, nan]]], np.float32)
    written = json.dumps(inseq_saved(scores, wrapped=wrapped), indent=4).encode()
    path = tmp_path / "inseq.json"
    path.write_bytes(gzip.compress(written) if packed else written)
    scorer: Any = read_scores(path)["inseq_sequential_integrated_gradients"]
    assert scorer(None, [5, 6], None) == [5.0, 2.0]
    assert scorer(None, [5, 6, 7], None) == [1.0, 10.0, 1.0]


def test_what_inseq_did_not_save_so_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "inseq.json"
    saved = inseq_saved(np.ones((4, 2), np.float32), wrapped=False)
    sequence = saved["sequence_attributions"][0]
    for change, word in (
        ({"target_attributions": [[1.0, 2.0]] * 3}, "shape"),
        ({"target_attributions": "AAAA"}, "none that inseq wrote"),
        ({"source_attributions": [[1.0]]}, "encoder"),
    ):
        saved["sequence_attributions"] = [sequence | change]
        path.write_text(json.dumps(saved), encoding="utf-8")
        with pytest.raises(InputError, match=word):
            read_scores(path)
    path.write_bytes(gzip.compress(b"{}")[:-4])
    with pytest.raises(InputError, match="gzip"):
        read_scores(path)


def test_names_that_are_none_or_are_taken_are_refused() -> None:
    def ask(*names: str) -> Judged:
        return Judged(("rollout",), {name: lambda model, ids, runs: ids for name in names})

    for name in (
        "",
        "a b",
        "x" * 49,
        ".",
        "..",
        "../up",
        "a/b",
        "-x",
        ".x",
        "<b>",
        "a\n",
        "a,b",
        'a"',
        "a\x1b",
        "größe",
    ):
        with pytest.raises(InputError, match=r"was called .*; expected letters of a to z"):
            ask(name)
    for name in ("random", "attention", "rollout", "Attention", "gradient-input", "Gradient.Input", "raw", "CEILING"):
        with pytest.raises(InputError, match=r"another one is called .*; give another name"):
            ask(name)
    for one, other in (("Mine", "mine"), ("a.b", "a_b"), ("a-b", "a.b")):
        with pytest.raises(InputError, match=f"{other!r}, and another one is called {one} "):
            ask(one, other)
    names = ["IntegratedGradients", "my_Saliency", "captum.attr.DeepLift", "layer-deep-lift.x", "2nd",
             "X" * 48, "sequential_integrated_gradients_1", "sequential_integrated_gradients_2"]  # fmt: skip
    assert ask(*names).names == ("rollout", *names, RANDOM)
    # Every column has a name that a Run takes, and one of its own.
    named = [column.name for column in columns([test for test in TESTS.values() if test.of == "corpus"], names)]
    assert all(NAME.fullmatch(name) for name in named) and len(set(named)) == len(named)


def test_a_function_does_not_take_the_place_of_a_file_of_scores(tiny: Path, pairs: Path, tmp_path: Path) -> None:
    (tmp_path / "scores.jsonl").write_text(score_line("mine", [1, 2], [0.0, 1.0]), encoding="utf-8")
    with pytest.raises(InputError, match="a function and a file of scores are both called 'mine'"):
        arena(tiny, pairs, tmp_path / "judged", methods=["attention"], tests="causal",
              scores=tmp_path / "scores.jsonl", functions={"mine": lambda model, ids, runs: ids})  # fmt: skip


def test_methods_are_judged_under_the_names_that_captum_and_inseq_give(tiny: Path, tmp_path: Path) -> None:
    """Names are shown as they are, on page, table and JSON; columns of the Run have names that any reader takes."""
    model = identiscope.load(tiny)
    (tmp_path / "pairs.tsv").write_text(f"sentence1\tsentence2\n{words(5, 1)}\t{words(5, 2)}\n", encoding="utf-8")
    ids = list(identiscope.trace(model, words(5, 1)).main.ids or ())
    path = tmp_path / "scores.jsonl"
    path.write_text(score_line("captum.attr.IntegratedGradients", ids, np.arange(len(ids))), encoding="utf-8")

    def rising(model: Any, ids: Sequence[int], runs: Any) -> list[float]:
        return [float(place) for place in range(len(ids))]

    said = arena(
        model, tmp_path / "pairs.tsv", tmp_path / "judged", methods=["gradient_input"], tests="causal", budget=200,
        scores=path, functions={"DeepLift-rescaled": rising},
    )  # fmt: skip
    means = {row["method"]: row["mean"] for row in said["tests"][0]["measures"][1]["rows"]}
    assert means["DeepLift-rescaled"] == means["captum.attr.IntegratedGradients"] is not None
    assert said["methods"] == ["gradient_input", "captum.attr.IntegratedGradients", "DeepLift-rescaled"]
    page = write_arena_page(said, tmp_path).read_text(encoding="utf-8")
    assert "<td>captum.attr.IntegratedGradients</td>" in page and "<td>DeepLift-rescaled</td>" in page
    assert not verify_run(tmp_path / "judged" / "run").problems
    table = identiscope.open_run(tmp_path / "judged" / "run").to_pandas("judge")
    word = word_of("captum.attr.IntegratedGradients")
    assert {"causal_shapley__deeplift_rescaled", f"passes__{word}"} <= set(table.columns)


def test_the_command_shows_its_plan_and_writes_page_table_and_json(tiny: Path, pairs: Path, tmp_path: Path) -> None:
    out = tmp_path / "judged"
    given = ["judge", str(tiny), str(pairs), "--methods", "attention,gradient-input", "--tests", "causal,planted"]
    given += ["--budget", "200", "--limit", "2", "--planted", "1", "--no-trained", "-o", str(out)]
    planned = CliRunner().invoke(main, [*given, "--plan"], catch_exceptions=False)
    assert "causal: at most" in planned.output and not out.exists()
    assert "planted: 10 inputs, asked of every method" in planned.output and "trained" not in planned.output
    alone = CliRunner().invoke(main, ["judge", str(tiny), str(pairs), "--tests", "planted", "-o", str(out), "--plan"])
    assert "planted: 128 inputs" in alone.output and "3 models trained once" in alone.output
    ran = CliRunner().invoke(main, given, catch_exceptions=False)
    assert ran.exit_code == 0 and "causal" in ran.output
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "Which explanation survives?" in page and "gradient_input" in page and "Controls" in page
    table = (out / "judge.csv").read_text(encoding="utf-8").splitlines()
    assert table[0].startswith("test,measure,method,mean") and any(row.startswith("causal,") for row in table)


def test_texts_too_long_for_an_exact_test_are_said_and_the_rest_is_judged(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "long.tsv"
    path.write_text(f"sentence1\tsentence2\n{words(14, 1)}\t{words(5, 2)}\n", encoding="utf-8")
    said = arena(tiny, path, tmp_path / "judged", methods=["gradient_input"], tests="causal", budget=200)
    assert "shapley" not in [one["name"] for one in said["tests"][0]["measures"]] and said["tests"][0]["measures"]
    assert "too many for exact Shapley" in said["reasons"]["causal"]


def test_a_table_of_few_texts_says_so(tiny: Path, tmp_path: Path) -> None:
    """A budget does for the short text alone: what stands in the table is of one text, and not of both."""
    path = tmp_path / "pairs.tsv"
    rows = [f"{words(count, count)}\t{words(5, 2)}" for count in (4, 11)]
    path.write_text("\n".join(["sentence1\tsentence2", *rows]) + "\n", encoding="utf-8")
    given = ["judge", str(tiny), str(path), "--methods", "gradient_input", "--tests", "erasure,redrawn"]
    ran = CliRunner().invoke(main, [*given, "--budget", "150", "-o", str(tmp_path / "out")], catch_exceptions=False)
    assert "of 2 texts these decide: most_first 1, least_first 1" in ran.output
    assert "left" not in ran.output.partition("these decide")[2].partition("\n")[0]


def test_the_command_on_the_page_can_be_typed_again(tiny: Path, pairs: Path, tmp_path: Path) -> None:
    given = ["judge", str(tiny), str(pairs), "--methods", "gradient_input", "--tests", "causal", "--limit", "1"]
    given += ["--budget", "40", "--outcome", "similarity:w1 isn't w2"]
    CliRunner().invoke(main, [*given, "-o", str(tmp_path / "judged")], catch_exceptions=False)
    page = (tmp_path / "judged" / "index.html").read_text(encoding="utf-8")
    shown = html.unescape(page.partition("<pre>")[2].partition("</pre>")[0])
    assert sorted(shlex.split(shown)) == sorted(["identiscope", *given, "-o", "DIR"])


def test_a_method_that_is_silent_on_some_tokens_says_so(tmp_path: Path) -> None:
    """Attention of a decoder says nothing of what the encoder reads, so that nothing of it can be judged."""
    sizes = {"d_model": 32, "d_kv": 8, "num_layers": 2, "num_heads": 4, "d_ff": 48, "decoder_start_token_id": 0}
    folder = save_tiny(tmp_path / "model", "T5ForConditionalGeneration", **sizes, pad_token_id=0)
    path = tmp_path / "texts.txt"
    path.write_text("w1 w2 w3 w4\n", encoding="utf-8")
    said = arena(folder, path, tmp_path / "judged", methods=["attention", "gradient_input"], tests="causal", budget=40)
    assert said["reasons"]["attention"] == "it says nothing of 4 of the 4 tokens that are judged"
    assert "gradient_input" not in said["reasons"]


def test_planted_models_need_an_input(tiny: Path, pairs: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="planted=0 was given; expected a whole number, at least 1"):
        arena(tiny, pairs, tmp_path / "judged", methods=["attention"], tests="planted", planted=0)
    assert not (tmp_path / "judged").exists()


def test_pairs_are_needed_for_their_similarity(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("w1 w2 w3\nw4 w5 w6\n", encoding="utf-8")
    said = arena(tiny, path, tmp_path / "judged", methods=["gradient_input"], tests="causal", budget=200)
    assert said["tests"][0]["measures"] == [] and "two parts" in said["reasons"]["causal"]
