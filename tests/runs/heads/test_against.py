"""Two models: a copy with its heads in another order is matched and unchanged; a random one differs everywhere."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from click.testing import CliRunner

import identiscope
from identiscope.cli import main
from identiscope.corpus.readers import Corpus
from identiscope.methods.structure.head_matching import centred_grams, matched, output_changes
from identiscope.runs.heads.options import HeadOptions
from identiscope.runs.heads.survey import survey_heads
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


def test_other_tokens_are_refused(folder: Path, minilm: identiscope.Model) -> None:
    model = identiscope.load(folder / "model")
    with pytest.raises(identiscope.InputError, match="two models are compared on the same tokens; these read text 0"):
        against(folder, model, minilm)
