"""Heads over a corpus: what is written, against single texts; the page, the cards, and bad input."""

import csv
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import identiscope
from identiscope.cli import main
from identiscope.corpus.dependencies import read_dependencies
from identiscope.corpus.readers import Text
from identiscope.methods.structure.head_distances import head_distances, scaled_to_plane
from identiscope.methods.structure.syntactic_heads import strongest_words, word_attention
from identiscope.runs.heads.means import Means
from identiscope.runs.heads.options import HeadOptions
from identiscope.runs.heads.study import Study
from identiscope.runs.heads.syntax import DIRECTIONS, Syntax
from identiscope.views.page.head_cards import head_sentences
from tiny_text_model import save_tiny

TEXTS = ["the cat sat on the mat .", "a dog saw the cat , and the cat ran .", "birds sing", "the dog ran and ran ."]
SENTENCE = """# one
1\tthe\tthe\tDET\tDT\t_\t2\tdet\t_\t_
2\tcat\tcat\tNOUN\tNN\t_\t3\tnsubj\t_\t_
3\tsat\tsit\tVERB\tVBD\t_\t0\troot\t_\t_

"""


@pytest.fixture(scope="module")
def surveyed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("heads")
    save_tiny(folder / "model")
    (folder / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    (folder / "words.conllu").write_text(SENTENCE * 50)
    command = ["heads", str(folder / "model"), str(folder / "texts.txt"), "-o", str(folder / "out"), "--texts", "4",
               "--intervals", "1", "--rows", "2", "--prune", "2", "--pairs", "1", "--conllu",
               str(folder / "words.conllu")]  # fmt: skip
    done = CliRunner().invoke(main, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return folder, done.output


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_row_of_each_head_is_the_mean_over_texts(surveyed: tuple[Path, str]) -> None:
    folder, said = surveyed
    model = identiscope.load(folder / "model")
    each = [identiscope.head_attends(identiscope.trace(model, text)) for text in TEXTS]
    for row in rows_of(folder / "out" / "heads.csv"):
        place = {"layer": int(row["layer"]), "head": int(row["head"])}
        values = np.array([float(one["raw_to_self"].sel(place)) for one in each])
        assert np.isfinite([float(row[f"simplex_{name}"]) for name in ("confidence", "sink_weight", "diagonal")]).all()
        assert float(row["raw_to_self"]) == pytest.approx(values.mean(), abs=1e-5)
        assert float(row["raw_to_self_error"]) == pytest.approx(values.std(ddof=1) / len(values) ** 0.5, abs=1e-5)
        assert float(row["null_size"]) < 1e-5 < float(row["zero_size"])
        assert float(row["interval_sink_lower"]) <= float(row["interval_sink"]) <= float(row["interval_sink_upper"])
        assert row["in words"]
    assert "4 texts" in said and "dropping 2 heads" in said


def test_files_and_page(surveyed: tuple[Path, str]) -> None:
    out = surveyed[0] / "out"
    prune = json.loads((out / "prune.json").read_text())
    assert len(prune["drop"]) == 2 and prune["texts"] == 2 and np.isfinite(prune["change_error"])
    heads = len(rows_of(out / "heads.csv"))
    assert len(rows_of(out / "pairs.csv")) == heads * (heads - 1) // 2
    assert {row["relation"] for row in rows_of(out / "relations.csv")} == {"det", "nsubj"}
    page = (out / "index.html").read_text(encoding="utf-8")
    for part in ("Map of heads", "Syntactic heads", "Dropping 2 heads", "<circle", "card-0-0"):
        assert part in page
    assert "http://" not in page and "https://" not in page
    assert identiscope.open_run(out / "run").complete


def test_cards_say_what_the_numbers_are() -> None:
    numbers = {
        "peak_previous": 0.93, "raw_to_previous": 0.8, "simplex_to_previous": 0.7, "interval_previous": 0.8,
        "interval_previous_lower": 0.65, "interval_previous_upper": 0.9, "is_sink": 0.0, "diagonal": 1.0,
        "zero_change": 0.02, "zero_change_error": 0.01, "zero_size": 0.03,
    }  # fmt: skip
    assert head_sentences(numbers) == [
        "Looks at the previous token in 93 % of rows: positional.",
        "Gives 0.80 of its weight to the previous token (0.70 in the map that no rewriting changes); on the rows drawn"
        " 0.80, and 0.65 to 0.90 give the same output; 0.81 of that is determined.",
        "Its map is diagonal in 100 % of texts.",
        "Without it the outcome changes by +0.02 ± 0.01; its size is 0.03 in the mean over texts.",
    ]
    assert head_sentences({}) == []


def test_distances_are_jensen_shannon_and_the_map_keeps_them() -> None:
    rows = torch.rand(5, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = rows / rows.sum(-1, keepdim=True)
    found = head_distances(rows).numpy()
    for one in range(5):
        for other in range(5):
            bits = 0.0
            for p, q in zip(rows[one].tolist(), rows[other].tolist(), strict=True):
                for a, b in zip(p, q, strict=True):
                    middle = (a + b) / 2
                    bits += (a * np.log2(a / middle) + b * np.log2(b / middle)) / 2 / 3
            assert found[one, other] == pytest.approx(bits, abs=1e-12)
    points = np.random.default_rng(0).normal(size=(6, 2))
    apart = np.linalg.norm(points[:, None] - points, axis=-1)
    places, share = scaled_to_plane(apart)
    np.testing.assert_allclose(np.linalg.norm(places[:, None] - places, axis=-1), apart, atol=1e-9)
    assert share == pytest.approx(1)


def test_means_are_those_of_what_is_a_number() -> None:
    values = np.random.default_rng(1).normal(size=(7, 3))
    values[2:, 1], values[1:, 2] = np.nan, np.nan
    means = Means()
    for row in values:
        means.add(row)
    np.testing.assert_allclose(means.mean, np.nanmean(values, 0), atol=1e-12)
    np.testing.assert_allclose(means.error[0], values[:, 0].std(ddof=1) / 7**0.5, atol=1e-12)
    np.testing.assert_allclose(means.error[1], values[:2, 1].std(ddof=1) / 2**0.5, atol=1e-12)
    assert np.isnan(means.error[2])  # of one text there is no error


def test_words_are_put_together_from_their_pieces() -> None:
    attention = torch.rand(2, 5, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    pieces = [[1], [2, 3]]
    found = word_attention(attention, pieces)
    for head in range(2):
        for one, query in enumerate(pieces):
            for other, key in enumerate(pieces):
                expected = np.mean([sum(float(attention[head, i, j]) for j in key) for i in query])
                assert float(found[head, one, other]) == pytest.approx(expected)
    assert strongest_words(found).tolist() == [[1, 0], [1, 0]]


def test_a_head_is_judged_on_sentences_that_it_was_not_chosen_on(surveyed: tuple[Path, str]) -> None:
    """A null model: heads that look anywhere. The best of them on half of the sentences is no better on the others."""
    folder = surveyed[0]
    sentence = next(read_dependencies(folder / "words.conllu"))
    syntax = Syntax(heads=[(0, head) for head in range(400)])
    generator = np.random.default_rng(0)
    from identiscope.runs.heads.syntax import _none

    key = ("nsubj", DIRECTIONS[0])
    syntax.sums[key] = [(_none(400), _none(400), _none(16)) for _ in range(2)]
    for half in range(2):
        for _ in range(40):
            for which in range(2):
                syntax.sums[key][half][which].add((generator.random(400) < 0.5).astype(float), 1)
            syntax.sums[key][half][2].add(np.full(16, 0.5), 1)
    row = syntax.table()[0]
    assert syntax.sums[key][0][0].hits.max() / 40 > 0.7  # on its own half it looks good
    assert not row["is_better"] and abs(row["accuracy"] - 0.5) < 0.25 and abs(row["simplex_accuracy"] - 0.5) < 0.25
    assert [word.relation for word in sentence.words] == ["det", "nsubj", "root"]


def test_dependencies_that_cannot_be_are_refused(tmp_path: Path, surveyed: tuple[Path, str]) -> None:
    wrong = tmp_path / "wrong.conllu"
    wrong.write_text(SENTENCE.replace("\t2\tdet", "\t9\tdet"))
    with pytest.raises(identiscope.InputError, match=r"word 1 \('the'\) of sentence 1 .* has the head '9'"):
        list(read_dependencies(wrong))
    with pytest.raises(identiscope.InputError, match=r"expected a file that ends in \.conllu"):
        list(read_dependencies(tmp_path / "texts.txt"))
    model = identiscope.load(surveyed[0] / "model")
    good = tmp_path / "good.conllu"
    good.write_text(SENTENCE)
    sentence = next(read_dependencies(good))
    with pytest.raises(identiscope.InputError, match=r"no token covers 'sat' .* of sentence 1"):
        Syntax().add(identiscope.trace(model, "the cat"), sentence)


def test_one_text_has_numbers_and_no_errors(surveyed: tuple[Path, str], tmp_path: Path) -> None:
    corpus = tmp_path / "one.txt"
    corpus.write_text(TEXTS[0] + "\n")
    command = ["heads", str(surveyed[0] / "model"), str(corpus), "-o", str(tmp_path / "out"), "--intervals", "0",
               "--without", "none"]  # fmt: skip
    done = CliRunner().invoke(main, command, catch_exceptions=False)
    assert done.exit_code == 0
    row = rows_of(tmp_path / "out" / "heads.csv")[0]
    assert row["raw_to_self"] and not row["raw_to_self_error"] and "zero_size" not in row
    more = CliRunner().invoke(main, [*command[:-1], "zero", "--prune", "1"])
    assert more.exit_code != 0 and "give at least two" in str(more.exception)


def run(folder: Path, out: Path, *options: str) -> tuple[str, str]:
    """What a command said, and what it was refused with."""
    command = ["heads", str(folder / "model"), str(folder / "texts.txt"), "-o", str(out), "--intervals", "0",
               "--no-untrained", *options]  # fmt: skip
    done = CliRunner().invoke(main, command)
    return done.output, str(done.exception or "")


def test_what_can_be_refused_is_refused_before_texts_are_read(surveyed: tuple[Path, str], tmp_path: Path) -> None:
    folder, wrong = surveyed[0], tmp_path / "wrong.tsv"
    empty = tmp_path / "empty.conllu"
    empty.write_text("# nothing\n")
    rows = "condition\ttype\tsplit\tn\tsentence\tmarked_spans\n"
    wrong.write_text(rows + "".join(f"{one}\t1\tdev\t1\tThe cook met {who}.\tThe baker|{who}\n"
                                    for one, who in (("pro", "her"), ("anti", "him"))))  # fmt: skip
    alone = tmp_path / "alone.tsv"
    alone.write_text(rows + "pro\t1\tdev\t1\tThe cook met her.\tThe cook|her\n")
    for options, says in (
        (["--templates", str(wrong)], "'baker' is no word of 'The cook met her.'"),
        (["--templates", str(alone)], "alone.tsv has no two sentences that differ in a pronoun alone"),
        (["--conllu", str(empty)], "empty.conllu has no sentences"),
        (["--without", "none", "--prune", "1"], "ablation by zero is needed"),
        (["--label", "class"], "give --shorten, too"),
    ):
        said, why = run(folder, tmp_path / "out", *options)
        assert says in said + why and not (tmp_path / "out" / "run").exists()
    assert "one must stay" in "".join(run(folder, tmp_path / "out", "--prune", "1000"))


def test_relations_that_are_met_too_seldom_are_said_to_be(surveyed: tuple[Path, str], tmp_path: Path) -> None:
    few = tmp_path / "few.conllu"
    few.write_text(SENTENCE * 3)
    said, why = run(surveyed[0], tmp_path / "out", "--without", "none", "--conllu", str(few))
    assert "syntax: no relation was met 20 times in every other of 3 sentences" in said, why
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "<p>No relation was met 20 times in every other of 3 sentences.</p>" in page


def test_one_text_is_compared_with_itself_and_says_so(minilm: identiscope.Model) -> None:
    def said(count: int) -> str:
        texts = [Text(("the cat sat",))] * count
        return Study(minilm, texts, Counter(), HeadOptions(without=("zero",)), None).outcome_in_words

    assert said(2) == "cosine of the mean state with that of the next text"
    assert said(1).endswith("with that of the same text, the only one, as the model has it")
