"""The classifier: its words, its padding, its trace, its training, its file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import identiscope
from identiscope.errors import InputError
from identiscope.papers.bhardwaj2021.classifier import (
    Classifier,
    ClassifierConfig,
    IdentifiableClassifier,
    WordTokenizer,
    learn_words,
    load_classifier,
    save_classifier,
)
from identiscope.papers.bhardwaj2021.ranks import ranks_by_length
from identiscope.papers.bhardwaj2021.training import (
    TrainingRecipe,
    answers,
    texts_of,
    train_classifier,
)

NAMES = ("cat", "dog", "nurse", "parrot", "garden", "bread", "house", "river")
LABELS = ("first", "second")


def toy(count: int, seed: int) -> list[tuple[str, str]]:
    """Two animals are named; the label says which of them comes first, so that order matters, and not words alone."""
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        others = generator.choice(NAMES[2:], size=generator.integers(0, 3)).tolist()
        pair = ["cat", "dog"] if generator.random() < 0.5 else ["dog", "cat"]
        label = LABELS[pair[0] == "dog"]
        found.append((" ".join(["The", pair[0], *others, "saw", "the", pair[1], "."]), label))
    return found


def small(tokenizer: WordTokenizer, **options: object) -> ClassifierConfig:
    shape = {"width": 16, "heads": 4, "feed_forward": 16, "dropout": 0.0} | options
    return ClassifierConfig(tokenizer.size, 2, **shape)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tokenizer() -> WordTokenizer:
    return learn_words(text for text, _ in toy(100, 0))


@pytest.fixture(scope="module")
def trained(tokenizer: WordTokenizer) -> Classifier:
    train, validation = (texts_of(tokenizer, LABELS, toy(count, seed)) for count, seed in ((300, 0), (60, 1)))
    recipe = TrainingRecipe(epochs=12, learning_rate=1e-2)
    found = train_classifier(small(tokenizer, combine="add"), train, validation, recipe=recipe)
    return Classifier(found.module, tokenizer, LABELS)


def test_words_are_those_that_come_often_enough() -> None:
    words = learn_words(["A b a.", "B, a!", "once"], least=2)
    assert words.words == ("a", "b")
    found = words("a  B; x")
    assert found["input_ids"] == [2, 3, 1, 1] and found["offset_mapping"] == [(0, 1), (3, 4), (4, 5), (6, 7)]
    assert words.convert_ids_to_tokens([0, 1, 2]) == ["[PAD]", "[UNK]", "a"]
    assert words("a a a", truncation=True, max_length=2)["input_ids"] == [2, 2]
    with pytest.raises(InputError, match="not pairs"):
        words("a", "b")


def test_it_learns_an_order_and_is_traced_by_text(trained: Classifier) -> None:
    tested = texts_of(trained.tokenizer, LABELS, toy(200, 2))
    assert answers(trained.module, tested).mean() > 0.95
    assert trained.classify("The cat saw the dog.") == "first" and trained.classify("The dog saw the cat.") == "second"
    trace = identiscope.trace(trained.model, "The cat saw the dog.")
    assert trace.tokens == ("the", "cat", "saw", "the", "dog", ".")
    assert trace.verify().verified and len(trace.hidden_states) == 2
    assert trace.logits is not None and LABELS[int(trace.logits.argmax())] == "first"
    assert trace.main.offsets is not None and trace.main.offsets[1] == (4, 7)


def test_padding_changes_nothing(trained: Classifier) -> None:
    texts = ["The cat saw the dog.", "The dog nurse bread house river saw the cat ."]
    alone = [identiscope.trace(trained.model, text) for text in texts]
    together = identiscope.trace(trained.model, texts)
    for one, other in zip(alone, together, strict=True):
        assert one.logits is not None and other.logits is not None
        torch.testing.assert_close(other.logits, one.logits, rtol=0, atol=1e-5)
        assert other.verify().verified
    tested = texts_of(trained.tokenizer, LABELS, [(text, "first") for text in texts])
    np.testing.assert_array_equal(answers(trained.module, tested), answers(trained.module, tested, batch_size=1))


def test_substitution_proves_what_is_free(tokenizer: WordTokenizer) -> None:
    """Regular heads of width 4 leave a null space at ten words; an alternative does nothing, a random map does."""
    torch.manual_seed(0)
    module = IdentifiableClassifier(small(tokenizer)).eval()
    model = identiscope.load(module, tokenizer)
    text = "The cat nurse parrot bread house saw the dog ."
    trace = identiscope.trace(model, text)
    assert (identiscope.attention_identifiability(trace).simplex_null_dimension.values == 10 - 4 - 1).all()
    proof = identiscope.prove(model, text, 0, 1, identiscope.attention_alternative(trace, 0, 1))
    assert float(proof.ratio) > 100


def test_ranks_by_length_are_as_promised(tokenizer: WordTokenizer) -> None:
    texts = [" ".join(NAMES[:length]) for length in (2, 5, 6, 8)] + ["cat dog nurse cat bread cat"]
    expected: dict[str, tuple[dict[str, Any], list[int], list[int]]] = {
        "regular": ({}, [0, 0, 1, 3], [0, 0, 4, 12]),
        "small": ({"key_width": 1}, [0, 0, 1, 3], [0, 0, 0, 0]),
        "added": ({"combine": "add"}, [0, 0, 0, 0], [0, 0, 0, 0]),
    }
    said: list[tuple[int, int]] = []
    for options, simplex, realisable in expected.values():
        torch.manual_seed(1)
        module = IdentifiableClassifier(small(tokenizer, **options)).eval()
        found = ranks_by_length(
            identiscope.load(module, tokenizer), texts, progress=lambda done, total: said.append((done, total))
        )
        assert found.length.tolist() == [2, 5, 6, 8] and found.texts.tolist() == [1, 1, 2, 1]
        assert found.simplex_null_dimension.tolist() == simplex
        assert found.identifiable.tolist() == [float(one == 0) for one in simplex]
        assert found.realisable_dimension.tolist() == realisable
        # Of all heads together 4n − 16 − 4, whichever way they are joined: what a head loses, heads may trade.
        assert found.layer_simplex_null_dimension.tolist() == [0, 0, 4, 12]
        assert said[-1] == (5, 5)
    with pytest.raises(InputError, match="no texts"):
        ranks_by_length(identiscope.load(module, tokenizer), [])


def test_the_same_seed_gives_the_same_weights(tokenizer: WordTokenizer) -> None:
    train, validation = (texts_of(tokenizer, LABELS, toy(count, seed)) for count, seed in ((60, 0), (20, 1)))
    config, recipe = small(tokenizer, dropout=0.3), TrainingRecipe(epochs=2)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one = train_classifier(config, train, validation, recipe=recipe, seed=3)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(6)
    two = train_classifier(config, train, validation, recipe=recipe, seed=3)
    other = train_classifier(config, train, validation, recipe=recipe, seed=4)
    assert one.losses == two.losses and one.validation == two.validation and one.losses != other.losses
    for name, weight in one.module.state_dict().items():
        assert torch.equal(weight, two.module.state_dict()[name])
    assert one.validation[one.best_epoch - 1] == max(one.validation)
    assert float(answers(one.module, validation).mean()) == max(one.validation)


def test_saved_and_loaded(trained: Classifier, tmp_path: Path) -> None:
    path = save_classifier(trained, tmp_path / "added.safetensors")
    again = load_classifier(path)
    assert again.labels == LABELS and again.tokenizer == trained.tokenizer
    assert again.module.config == trained.module.config
    ids = torch.tensor([[2, 3, 4]])
    assert torch.equal(again.module(ids), trained.module(ids))
    with pytest.raises(InputError, match="there is no file"):
        load_classifier(tmp_path / "nothing")
    (tmp_path / "broken").write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match="damaged"):
        load_classifier(tmp_path / "broken")
    save_file({"weight": torch.zeros(1)}, str(tmp_path / "other"))
    with pytest.raises(InputError, match="not a classifier"):
        load_classifier(tmp_path / "other")


def test_long_texts_are_cut_where_asked_and_refused_elsewhere(tokenizer: WordTokenizer) -> None:
    module = IdentifiableClassifier(small(tokenizer, longest=4)).eval()
    cut = texts_of(tokenizer, LABELS, [("the cat saw the dog .", "first")], longest=4)
    assert cut.cut == 2 and len(cut.ids[0]) == 4
    model = identiscope.load(module, tokenizer)
    with pytest.raises(InputError, match="takes at most 4"):
        identiscope.trace(model, "the cat saw the dog .")
    assert identiscope.trace(model, "the cat saw the dog .", truncate=True).main.cut == 2


def test_refusals(tokenizer: WordTokenizer, trained: Classifier) -> None:
    with pytest.raises(InputError, match="heads that divide"):
        ClassifierConfig(10, 2, width=10, heads=4)
    with pytest.raises(InputError, match="expected an epoch"):
        TrainingRecipe(epochs=0)
    with pytest.raises(InputError, match="'third'"):
        texts_of(tokenizer, LABELS, [("cat", "third")])
    with pytest.raises(InputError, match="has no word"):
        texts_of(tokenizer, LABELS, [("  ", "first")])
    with pytest.raises(InputError, match="has no word"):
        trained.classify(" ")
    nothing = texts_of(tokenizer, LABELS, [])
    with pytest.raises(InputError, match="0 texts to train on"):
        train_classifier(small(tokenizer), nothing, nothing)


def test_ranks_by_length_of_any_model(minilm: identiscope.Model) -> None:
    """Heads of width 32: no null space at six tokens, and n − 33 free directions of a row at 72."""
    short, long = "A cat sat.", "One, two, three, four, five. " * 7
    found = ranks_by_length(minilm, [short, long])
    assert found.length.tolist() == [6, 72] and found.texts.tolist() == [1, 1]
    np.testing.assert_allclose(found.simplex_null_dimension, [0, 72 - 33])
    np.testing.assert_allclose(found.realisable_dimension, [0, 72 * 39 + 32 * (2 * 72 - 33) - 72 * 71])
