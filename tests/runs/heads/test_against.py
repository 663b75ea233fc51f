"""Two models: a copy with its heads in another order is matched and unchanged; a random one differs everywhere."""

import csv
import html
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from click.testing import CliRunner
from scipy.stats import t as student

import identiscope
from identiscope.cli import main
from identiscope.corpus.readers import Corpus
from identiscope.methods.structure.head_matching import centred_grams, matched, output_changes
from identiscope.results import load_result
from identiscope.runs.heads.options import HeadOptions
from identiscope.runs.heads.survey import survey_heads
from identiscope.views.page.heads_against_maps import distances_section, maps_section
from tiny_text_model import save_tiny, words

ASKED = HeadOptions(without=("zero",), texts=4, intervals=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("against")
    save_tiny(made / "model")
    (made / "texts.txt").write_text("\n".join(words(9 + number % 5, seed=number) for number in range(16)) + "\n")
    return made


def against(folder: Path, model: Any, other: Any) -> xr.Dataset:
    where = folder / f"out-{len(list(folder.iterdir()))}"
    where.mkdir()
    corpus = Corpus(str(folder / "texts.txt"))
    found = survey_heads(model, corpus, where, options=ASKED, against=other).against
    assert found is not None
    return found


def test_a_copy_with_its_heads_in_another_order_is_the_same_model(folder: Path) -> None:
    model = identiscope.load(folder / "model")
    for seed in (0, 1):
        copy = identiscope.rewrite(model, "head_order", seed=seed)
        found = against(folder, model, copy)
        for layer, order in enumerate(copy.heads.tolist()):
            assert found["matched_head"].values[layer].tolist() == [order.index(head) for head in range(4)]
        assert bool((found["matched_layer"] == found["layer"]).all())
        assert not bool(found["changed_statistics"].any())
        np.testing.assert_allclose(found["map_cosine"], 1, atol=1e-6)
        np.testing.assert_allclose(found["output_similarity"], 1, atol=1e-6)
        np.testing.assert_allclose(found["output_change"], 0, atol=1e-4)
        np.testing.assert_allclose(found["map_change"], 0, atol=1e-6)
        np.testing.assert_allclose(found["zero_size_difference"], 0, atol=1e-5)


def test_itself_differs_nowhere_and_a_random_model_everywhere(folder: Path) -> None:
    model = identiscope.load(folder / "model")
    found = against(folder, model, model)
    assert not bool(found["changed_statistics"].any())
    for name in found.data_vars:
        if str(name).endswith("_difference"):
            assert not bool(found[name].fillna(0).any())
    module: Any = model.module
    torch.manual_seed(5)
    other = type(module)(module.config).eval()
    found = against(folder, model, identiscope.load(other, tokenizer=model.tokenizer))
    assert bool((found["changed_statistics"] > 0).all())
    assert float(found["map_cosine"].max()) < 0.99


def test_differences_are_those_of_the_partner_less_its_own(folder: Path) -> None:
    """In plain loops, of models with other numbers of layers and heads, where all heads are matched with all."""
    save_tiny(folder / "other", num_attention_heads=2, num_hidden_layers=3)
    one, other = identiscope.load(folder / "model"), identiscope.load(folder / "other")
    found = against(folder, one, other)
    texts = (folder / "texts.txt").read_text().splitlines()
    each = [[identiscope.head_attends(identiscope.trace(model, text))["raw_to_self"] for text in texts]
            for model in (one, other)]  # fmt: skip
    partners = set()
    for layer, head in np.ndindex(2, 4):
        partner = float(found["matched_layer"][layer, head]), float(found["matched_head"][layer, head])
        number = float(found["raw_to_self_difference"][layer, head])
        if np.isnan(partner[0]):
            assert np.isnan(number)  # eight heads, and six there
            continue
        partners.add(partner)
        place = int(partner[0]), int(partner[1])
        differences = [
            float(b.values[place]) - float(a.values[layer, head]) for a, b in zip(each[0], each[1], strict=True)
        ]
        assert number == pytest.approx(np.mean(differences), abs=1e-5)
        error = float(found["raw_to_self_difference_error"][layer, head])
        assert error == pytest.approx(np.std(differences, ddof=1) / len(texts) ** 0.5, abs=1e-5)
        low, high = (float(found[f"raw_to_self_difference_{end}"][layer, head]) for end in ("lower", "upper"))
        assert low < number < high
    assert len(partners) == 6


def test_importance_and_maps_are_compared_on_the_texts_that_are_traced(folder: Path) -> None:
    """In plain loops: without each head of the one, and without its partner, on every fourth text."""
    save_tiny(folder / "changed", initializer_range=0.03)
    models = [identiscope.load(folder / name) for name in ("model", "changed")]
    found = against(folder, *models)
    chosen = (folder / "texts.txt").read_text().splitlines()[::4]
    sizes: list[list[np.ndarray]] = [[], []]
    maps: list[list[list[np.ndarray]]] = [[], []]
    for number, text in enumerate(chosen):
        outcome = f"similarity:{chosen[(number + 1) % 4]}"
        for side, model in enumerate(models):
            traced = identiscope.trace(model, text)
            importance = identiscope.head_importance(traced, outcome=outcome, by="zero")
            sizes[side].append(np.abs(importance["zero_change"].values))
            maps[side].append([site.attentions().numpy() for site in traced.sites])
    for layer, head in np.ndindex(2, 4):
        at = int(found["matched_layer"][layer, head]), int(found["matched_head"][layer, head])
        differences = [b[at] - a[layer, head] for a, b in zip(*sizes, strict=True)]
        assert float(found["zero_size_difference"][layer, head]) == pytest.approx(np.mean(differences), abs=1e-6)
        elsewhere = [
            np.mean([np.abs(row - other).sum() / 2 for row, other in zip(a[layer][head], b[at[0]][at[1]], strict=True)])
            for a, b in zip(*maps, strict=True)
        ]
        assert float(found["map_change"][layer, head]) == pytest.approx(np.mean(elsewhere), abs=1e-6)
    assert not [name for name in found.data_vars if str(name).startswith("null_")]


def test_maps_and_distances_are_those_of_the_partners_less_their_own(folder: Path) -> None:
    """Maps cell by cell of one text, and Jensen–Shannon distances of all pairs of heads, in plain loops."""
    save_tiny(folder / "moved", initializer_range=0.5)
    models = [identiscope.load(folder / name) for name in ("model", "moved")]
    where = folder / "out-maps"
    where.mkdir()
    found = survey_heads(
        models[0], Corpus(str(folder / "texts.txt")), where, options=ASKED, against=identiscope.load(folder / "moved")
    )
    assert found.map_differences is not None and found.distance_differences is not None and found.against is not None
    chosen = (folder / "texts.txt").read_text().splitlines()[::4]
    partner = {(layer, head): (int(found.against["matched_layer"][layer, head]),
                               int(found.against["matched_head"][layer, head]))
               for layer, head in np.ndindex(2, 4)}  # fmt: skip
    traced = [[identiscope.trace(model, text) for text in chosen] for model in models]
    # The first of those that are nearest to a picture's 24 tokens.
    number = min(range(4), key=lambda text: abs(len(traced[0][text].tokens) - 24))
    maps = found.map_differences
    assert maps["query_token"].values.tolist() == list(traced[0][number].tokens)
    a, b = (side[number] for side in traced)
    real = [identiscope.effective_simplex_span(one)["effective_simplex_span"].values for one in (a, b)]
    for (layer, head), (at, other) in partner.items():
        raw = b.sites[at].attentions()[other].numpy() - a.sites[layer].attentions()[head].numpy()
        np.testing.assert_allclose(maps["map"][layer, head], raw, atol=1e-6)
        np.testing.assert_allclose(
            maps["simplex_map"][layer, head], real[1][at, other] - real[0][layer, head], atol=1e-5
        )
    # Distances: the same 8 rows of both, drawn with the seed.
    places, apart = list(partner), found.distance_differences
    for i, j in ((0, 1), (2, 7), (6, 3)):
        differences = []
        for one, other in zip(*traced, strict=True):
            rows = torch.randperm(len(one.tokens), generator=torch.Generator().manual_seed(0))[:8].tolist()
            pairs = [(places[i], places[j]), (partner[places[i]], partner[places[j]])]
            own, theirs = (
                np.mean([_divergence(*(text.sites[layer].attentions()[head, row].double().numpy()
                                       for layer, head in pair)) for row in rows])
                for text, pair in zip((one, other), pairs, strict=True)
            )  # fmt: skip
            differences.append(theirs - own)
        assert float(apart["difference"][i, j]) == pytest.approx(np.mean(differences), abs=1e-6)
        error = np.std(differences, ddof=1) / 2
        assert float(apart["difference_error"][i, j]) == pytest.approx(error, abs=1e-6)
        wide = student.ppf(1 - 0.025 / 28, 3) * error
        assert float(apart["difference_upper"][j, i]) == pytest.approx(np.mean(differences) + wide, abs=1e-4)
    # The page shows those whose weight moved most, raw and real, with their tokens in words.
    page = maps_section(found.against, maps)
    moved = np.abs(maps["map"].values).sum(-1).mean(-1) / 2
    layer, head = np.unravel_index(int(moved.argmax()), moved.shape)
    at, other = partner[int(layer), int(head)]
    assert f"Head {layer}.{head}, there {at}.{other}: {moved.max():.2f} of the weight stands elsewhere" in page
    query, key = np.unravel_index(int(np.abs(maps["map"].values[layer, head]).argmax()), maps["map"].shape[2:])
    names, most = maps["query_token"].values, float(maps["map"][layer, head, query, key])
    assert f"{names[query]} (token {query}) gives {names[key]} (token {key}) {most:+.2f}" in html.unescape(page)
    assert page.count("<figure>") == 8
    assert f"{int(np.nansum(apart['changed'].values) / 2)} of 28 pairs of heads" in distances_section(apart)


def _divergence(one: np.ndarray, other: np.ndarray) -> float:
    bits = 0.0
    for row in (one, other):
        some = row > 0
        bits += float(np.sum(row[some] * np.log2(row[some] / ((one + other) / 2)[some]))) / 2
    return bits


def test_grams_are_of_what_heads_write() -> None:
    generator = np.random.default_rng(0)
    context, projection = generator.normal(size=(2, 3, 4)), generator.normal(size=(2, 4, 5))
    found = centred_grams(torch.from_numpy(context), torch.from_numpy(projection)).numpy()
    for head in range(2):
        written = [context[head, token] @ projection[head] for token in range(3)]
        mean = sum(written) / 3
        for i in range(3):
            for j in range(3):
                expected = float((written[i] - mean) @ (written[j] - mean))
                assert found[head, 3 * i + j] == pytest.approx(expected)
    changes = output_changes(torch.from_numpy(context[:, 0]), torch.from_numpy(context[:, 1])).numpy()
    for a, b in np.ndindex(2, 2):
        expected = float(np.linalg.norm(context[b, 1] - context[a, 0]) / np.linalg.norm(context[a, 0]))
        assert changes[a, b] == pytest.approx(expected)
    assert matched(np.array([[np.nan, 0.1], [0.2, 0.9], [0.5, 0.3]])).tolist() == [-1, 1, 0]


def test_the_command_writes_a_table_and_a_section(folder: Path) -> None:
    given = ["heads", str(folder / "model"), str(folder / "texts.txt"), "-o", str(folder / "out"), "--without", "none"]
    given += ["--intervals", "0", "--texts", "2", "--against", str(folder / "model")]
    done = CliRunner().invoke(main, given, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "0 of 8 heads changed" in done.output and "every head stands in its own place" in done.output
    with (folder / "out" / "against.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8 and all(row["head"] == row["matched_head"] for row in rows)
    page = (folder / "out" / "index.html").read_text(encoding="utf-8")
    assert "Against the other model" in page and "In the other model it is head 0.0" in page
    assert "No map differs on this text" in page and "0 of 28 pairs of heads are at another distance" in page
    assert load_result(folder / "out" / "against-maps.safetensors")["map"].sizes["layer"] == 2
    with (folder / "out" / "against-distances.csv").open(encoding="utf-8") as file:
        assert [float(row["difference"]) for row in csv.DictReader(file)] == [0.0] * 28


def test_other_tokens_are_refused(folder: Path, minilm: identiscope.Model) -> None:
    model = identiscope.load(folder / "model")
    with pytest.raises(identiscope.InputError, match="two models are compared on the same tokens; these read text 0"):
        against(folder, model, minilm)
