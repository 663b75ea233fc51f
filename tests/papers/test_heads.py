"""Findings about heads: each rule against null models of which it must not hold; differences by gender."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner
from scipy.stats import t as student

import identiscope
from identiscope.cli import main
from identiscope.papers.heads.claims import head_claims
from identiscope.papers.heads.gender import gender_study, read_templates
from identiscope.runs.heads.means import ClusteredMeans, Means
from identiscope.runs.heads.survey import HeadSurvey
from identiscope.runs.heads.traced import own_sites
from identiscope.stats.simultaneous_interval import simultaneous_interval
from identiscope.views.tables.gender_heads import DIRECTIONS, biased_heads
from tiny_text_model import save_tiny

TEXTS, LAYERS, HEADS = 20, 3, 4
TABLES = {
    "head_attends": ("raw_to_previous", "raw_to_next", "raw_to_sep"),
    "head_role": ("entropy", "entropy_first", "peak_two_before", "peak_previous", "peak_next", "peak_two_after"),
    "head_sink": ("first_weight",),
    "head_class": ("vertical", "diagonal", "vertical_diagonal", "block", "heterogeneous"),
}


class MadeRun:
    """Numbers of texts in place of a Run."""

    methods = tuple(TABLES)

    def __init__(self, numbers: dict[str, np.ndarray]) -> None:
        self.numbers = numbers

    def to_xarray(self, name: str) -> xr.Dataset:
        axes = ("text", "layer", "head")
        arrays = {column: (axes, self.numbers[column]) for column in TABLES[name]}
        return xr.Dataset(arrays, coords={"tokens": ("text", np.full(TEXTS, 9))})


def survey_of(generator: np.random.Generator, planted: bool) -> tuple[HeadSurvey, Any]:
    """Heads that are all alike but for noise; planted: with what the papers found put into them."""
    shape = (TEXTS, LAYERS, HEADS)
    numbers = {name: generator.uniform(0, 0.1, shape) for names in TABLES.values() for name in names}
    numbers["entropy"], numbers["entropy_first"] = generator.normal(4, 1, shape), generator.normal(4, 1, shape)
    numbers["heterogeneous"] = np.ones(shape)
    heads = LAYERS * HEADS
    noise = generator.uniform(0.4, 0.6, (heads, heads))
    distances = (noise + noise.T) / 2
    columns = {name: generator.uniform(0, 1, (LAYERS, HEADS)) for name in ("confidence", "zero_size", "gate_gradient")}
    columns["to_rarest"], columns["to_rarest_error"] = np.full((LAYERS, HEADS), 0.2), np.full((LAYERS, HEADS), 0.02)
    relation = {"relation": "det", "accuracy": 0.4, "offset_accuracy": 0.4, "is_better": False}
    prune = {"heads": 2, "texts": 9, "size": 0.1, "size_error": 0.02, "random_size": 0.1, "saved": 0.0}
    prune |= {"saved_error": 0.02}
    if planted:
        for name in ("raw_to_previous", "raw_to_next", "raw_to_sep", "peak_previous"):
            numbers[name][:, 1] += 0.89 + 0.1 * (name == "peak_previous")
        numbers["entropy"][:, 0] += 3
        numbers["entropy_first"][:, -1] += 3
        numbers["first_weight"][:, :, :2] += 0.6
        numbers["vertical"], numbers["heterogeneous"] = np.ones(shape), np.zeros(shape)
        layer = np.repeat(np.arange(LAYERS), HEADS)
        distances = np.where(layer[:, None] == layer, 0.1, distances)
        columns["confidence"] = columns["gate_gradient"] = columns["zero_size"]
        columns["to_rarest"][0, 0] = 0.9
        relation |= {"is_better": True, "accuracy": 0.8}
        prune |= {"size": 0.01, "saved": 0.09, "saved_error": 0.005}
    np.fill_diagonal(distances, 0)
    dataset = xr.Dataset({name: (("layer", "head"), values) for name, values in columns.items()})
    facts = {"rarest token by chance": 0.2}
    survey = HeadSurvey(dataset, {}, distances, [relation] * 4, None, prune, facts, True)
    return survey, MadeRun(numbers)


def test_planted_findings_hold_and_null_models_have_none() -> None:
    """What is shuffled may look like something once in forty times: three of a hundred are too many for none."""
    survey, run = survey_of(np.random.default_rng(0), planted=True)
    claims = head_claims(survey, run, causal=True)
    assert [claim.statement for claim in claims if claim.holds is not True] == []
    wrong = 0
    for seed in range(6):
        survey, run = survey_of(np.random.default_rng(seed + 1), planted=False)
        wrong += sum(claim.holds is True for claim in head_claims(survey, run, causal=True))
    assert wrong <= 3  # of 6 × 16
    assert all(claim.rule and claim.source and claim.published and claim.here for claim in claims)


def drifting(generator: np.random.Generator) -> tuple[HeadSurvey, Any]:
    """Random queries and keys, as measured of minilm with such: layers differ a little, since what they read does, the
    rarest tokens stand apart, and a layer whose heads are confident matters more."""
    survey, run = survey_of(generator, planted=False)
    shape, layer = (TEXTS, LAYERS, HEADS), np.repeat(np.arange(LAYERS), HEADS)
    numbers: dict[str, np.ndarray] = run.numbers
    numbers["entropy"], numbers["entropy_first"] = (4 + generator.normal(0, 0.02, shape) for _ in range(2))
    numbers["entropy"][:, 0] += 0.18
    numbers["entropy_first"][:, -1] += 0.03
    distances = np.where(layer[:, None] == layer, 0.1687, 0.17)
    np.fill_diagonal(distances, 0)
    rising = np.arange(LAYERS)[:, None]
    columns = {"to_rarest": np.full((LAYERS, HEADS), 0.82), "to_rarest_error": np.full((LAYERS, HEADS), 0.05)}
    for name in ("confidence", "zero_size", "gate_gradient"):
        columns[name] = rising + generator.uniform(0, 0.5, (LAYERS, HEADS))
    heads = survey.heads.assign({name: (("layer", "head"), values) for name, values in columns.items()})
    facts = {"rarest token by chance": 0.47}
    return replace(survey, heads=heads, distances=distances, facts=facts), run


def test_what_layers_differ_in_by_themselves_is_no_finding() -> None:
    wrong = 0
    for seed in range(2):
        survey, run = drifting(np.random.default_rng(seed))
        wrong += sum(claim.holds is True for claim in head_claims(survey, run, causal=True))
    assert wrong <= 1  # of 2 × 16


def test_sinks_are_judged_of_language_models_alone() -> None:
    survey, run = survey_of(np.random.default_rng(0), planted=True)
    assert head_claims(survey, run, causal=False)[-1].holds is None


WINOBIAS = """condition\ttype\tsplit\tn\tsentence\tmarked_spans\tsentence_marked
pro\t1\tdev\t1\tThe nurse called because she was ill.\tThe nurse|she\tx
anti\t1\tdev\t1\tThe nurse called because he was ill.\tThe nurse|he\tx
pro\t1\tdev\t2\tThe clerk spoke and he left.\tThe clerk|he\tx
anti\t1\tdev\t2\tThe clerk spoke and she left.\tThe clerk|she\tx
pro\t1\tdev\t3\tA cook slept.\tA cook|x\tx
anti\t1\tdev\t3\tA dog slept well.\tA cook|x\tx
"""


def test_differences_by_gender_are_those_of_the_weights(tmp_path: Path, minilm: identiscope.Model) -> None:
    path = tmp_path / "winobias.tsv"
    path.write_text(WINOBIAS)
    templates = read_templates(path)
    assert [one.occupation for one in templates] == ["nurse", "clerk"]  # the third differs in more than the pronoun
    study = gender_study(minilm, templates, intervals=2)
    sides = [[identiscope.trace(minilm, text) for text in (one.first, one.second)] for one in templates]
    for way in DIRECTIONS:
        differences: dict[str, list[np.ndarray]] = {"": [], "simplex_": []}
        for one, pair in zip(templates, sides, strict=True):
            weights: dict[str, list[np.ndarray]] = {"": [], "simplex_": []}
            for traced in pair:
                tokens = list(traced.tokens)
                pronoun = next(tokens.index(word) for word in ("he", "she") if word in tokens)
                cell = pronoun, tokens.index(one.occupation)
                query, key = cell if way == "to_occupation" else cell[::-1]
                weights[""].append(np.array([site.attentions()[:, query, key].numpy() for site in own_sites(traced)]))
                real = identiscope.effective_simplex_span(traced)["effective_simplex_span"]
                weights["simplex_"].append(real.values[:, :, query, key])
            for kind, both in weights.items():
                differences[kind].append(both[0] - both[1])
        for kind, values in differences.items():
            error = np.std(values, 0, ddof=1) / 2**0.5
            np.testing.assert_allclose(study[f"{kind}{way}"], np.mean(values, 0), atol=1e-9)
            np.testing.assert_allclose(study[f"{kind}{way}_error"], error, atol=1e-9)
            # Of two templates Student's has one degree of freedom; 72 heads, both ways.
            wide = student.ppf(1 - 0.025 / 144, 1) * error
            np.testing.assert_allclose(study[f"{kind}{way}_high"] - study[f"{kind}{way}"], wide, rtol=1e-6, atol=1e-5)
        # Of fewer tokens than channels every row is determined: nothing else gives the same output.
        for end in ("lower", "upper"):
            np.testing.assert_allclose(study[f"interval_{way}_{end}"], study[way], atol=1e-6)
        assert bool((study[f"{way}_templates"] == 2).all()) and bool((study[f"{way}_occupations"] == 2).all())
    assert study["states"].sizes == {"layer": 6}


def test_templates_are_told_by_their_columns(tmp_path: Path) -> None:
    path = tmp_path / "all_sentences.tsv"
    rows = [
        ("cook.x.1.male.txt", "The cook said that he slept."),
        ("cook.x.1.female.txt", "The cook said that she slept."),
    ]
    path.write_text("sentid\tsentence\n" + "".join(f"{name}\t{text}\n" for name, text in rows))
    assert [(one.name, one.contrast) for one in read_templates(path)] == [("cook.x.1", "male less female")]
    path.write_text("a\tb\n1\t2\n")
    with pytest.raises(identiscope.InputError, match="expected those of WinoBias"):
        read_templates(path)


def test_the_command_reads_both_kinds_of_templates(tmp_path: Path) -> None:
    """Words that split into pieces, an occupation behind its pronoun, and two files at once."""
    save_tiny(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("w1 w2 w3\nw4 w5 w6 w7\n")
    rows = [("pro", "w1 w2 left because she ran .", "w1 w2|she"), ("anti", "w1 w2 left because he ran .", "w1 w2|he")]
    winobias = "condition\ttype\tsplit\tn\tsentence\tmarked_spans\n"
    for number in (1, 2, 3):
        winobias += "".join(f"{kind}\t1\tdev\t{number}\t{text}\t{spans}\n" for kind, text, spans in rows)
    (tmp_path / "winobias.tsv").write_text(winobias)
    winogender = "sentid\tsentence\n"
    for number in (1, 2):
        for kind, word in (("male", "his"), ("female", "her"), ("neutral", "their")):
            winogender += f"w3.w4.{number}.{kind}.txt\tAt {word} desk the w3 slept with w{number} .\n"
    (tmp_path / "all_sentences.tsv").write_text(winogender)
    given = ["heads", str(tmp_path / "model"), str(tmp_path / "texts.txt"), "-o", str(tmp_path / "out")]
    given += ["--without", "none", "--intervals", "1", "--rows", "2", "--texts", "2"]
    for name in ("winobias", "all_sentences"):
        given += ["--templates", str(tmp_path / f"{name}.tsv")]
    done = CliRunner().invoke(main, given, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    free = 0
    for name in ("winobias", "all_sentences"):
        with (tmp_path / "out" / f"gender-{name}.csv").open(encoding="utf-8") as file:
            table = list(csv.DictReader(file))
        assert len(table) == 8
        for row in table:
            for way in DIRECTIONS:
                low, now, high = (float(row[name]) for name in (f"interval_{way}_lower", way, f"interval_{way}_upper"))
                assert low - 1e-6 <= now <= high + 1e-6
                free += high - low > 1e-3
    # Eight channels and more tokens: some differences could be other.
    assert free
    with (tmp_path / "out" / "findings.csv").open(encoding="utf-8") as file:
        findings = {row["finding"]: row for row in csv.DictReader(file)}
    said = findings["some heads attend between pronoun and occupation by gender, in winobias"]
    # Three times the same template differ by nothing but rounding from each other, and the words are unknown ones.
    assert (
        "pro less anti: from pronoun to occupation" in said["came out"]
        and "(3 templates of 1 occupations" in said["came out"]
    )
    assert "male less female: from pronoun to occupation" in str(findings) and "(2 templates of 1 occupations" in str(
        findings
    )
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "By gender: winobias" in page and "winobias_to_occupation" in page and "From occupation to pronoun" in page


def test_errors_of_clusters_are_those_of_clusters_drawn_anew() -> None:
    """Against the formula in plain loops, and against drawing them: of other sizes, some texts without number."""
    generator = np.random.default_rng(0)
    clusters = [str(cluster) for cluster in range(30) for _ in range(1 + cluster % 4)]
    shifts = generator.normal(size=30)
    values = np.array([shifts[int(cluster)] for cluster in clusters]) + 0.3 * generator.normal(size=len(clusters))
    values[[3, 42]] = np.nan
    means = ClusteredMeans()
    for value, cluster in zip(values, clusters, strict=True):
        means.add(np.array([value]), cluster)
    sums = {cluster: [v for v, c in zip(values, clusters, strict=True) if c == cluster and np.isfinite(v)]
            for cluster in dict.fromkeys(clusters)}  # fmt: skip
    count = sum(map(len, sums.values()))
    mean = sum(map(sum, sums.values())) / count
    squares = sum(sum(value - mean for value in each) ** 2 for each in sums.values())
    assert means.mean[0] == pytest.approx(mean)
    assert means.error[0] == pytest.approx((30 / 29 * squares) ** 0.5 / count)
    assert (means.count[0], means.clusters[0]) == (count, 30)
    totals, counts = np.array([sum(each) for each in sums.values()]), np.array([len(each) for each in sums.values()])
    drawn = generator.integers(30, size=(4000, 30))
    assert means.error[0] == pytest.approx(np.std(totals[drawn].sum(1) / counts[drawn].sum(1)), rel=0.1)
    # With one text in each cluster it is the usual error.
    alone, usual = ClusteredMeans(), Means()
    for number, value in enumerate(values):
        alone.add(np.array([value]), str(number))
        usual.add(np.array([value]))
    assert alone.error[0] == pytest.approx(usual.error[0])
    assert np.isnan(_clustered(np.ones((3, 1)), ["a"] * 3).error).all()


def _clustered(values: np.ndarray, clusters: list[str]) -> ClusteredMeans:
    means = ClusteredMeans()
    for value, cluster in zip(values, clusters, strict=True):
        means.add(value, cluster)
    return means


def test_templates_of_one_occupation_are_not_independent() -> None:
    """A null model: occupations differ by chance, their templates hardly. Of templates taken as independent most
    intervals of 95 % are wrong; with occupations drawn anew about one in twenty is."""
    generator = np.random.default_rng(0)
    occupations = [str(number) for number in range(12) for _ in range(1 + 2 * (number % 4))]
    rows = np.array([int(one) for one in occupations])
    values = generator.normal(size=(12, 2000))[rows] + 0.3 * generator.normal(size=(len(rows), 2000))
    clustered = _clustered(values, occupations)
    low, high = simultaneous_interval(clustered.mean, clustered.error, clustered.clusters, 1)
    wrong = float(((low > 0) | (high < 0)).mean())
    alone = _clustered(values, [str(number) for number in range(len(rows))])
    low, high = simultaneous_interval(alone.mean, alone.error, alone.clusters, 1)
    assert wrong < 0.1 < 0.2 < float(((low > 0) | (high < 0)).mean())


def test_few_templates_promise_little() -> None:
    """A null model: differences that are noise are hardly ever sure, however few the templates are."""
    generator, wrong = np.random.default_rng(0), 0
    for _ in range(100):
        means = Means()
        for numbers in generator.normal(size=(4, LAYERS, HEADS)):
            means.add(numbers)
        low, high = simultaneous_interval(means.mean, means.error, means.count, means.mean.size)
        arrays = {
            f"{kind}to_pronoun_{end}": one for kind in ("", "simplex_") for end, one in (("low", low), ("high", high))
        }
        study = xr.Dataset({name: (("layer", "head"), values) for name, values in arrays.items()})
        wrong += bool(biased_heads(study, "to_pronoun")["sure"].any())
    assert wrong <= 10
