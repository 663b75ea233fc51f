"""The verdict: what a weight may be comes first, of a stated sample, and nothing in it contradicts the rest."""

import re

import numpy as np
import pandas as pd
import pytest
import torch

import identiscope
from identiscope.capture.samples import PASSAGE
from identiscope.judge.verdict import FIXED, NOTICEABLE, _reach, _sample_sentences, _spread_rows, verdict


def test_what_a_weight_may_be_leads(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, PASSAGE, layers=[0, 3])
    told: list[tuple[int, int]] = []
    result = identiscope.attention_identifiability(trace)
    said = verdict(trace, result, candidates=6, progress=lambda done, total: told.append((done, total)))
    # Six weights, and a row for three of them.
    assert told == [(step, 8) for step in range(1, 9)]
    sample = said.sample
    assert len(sample) == 6 and 0 < said.median_reach < 1
    assert (sample.lower <= sample.weight).all() and (sample.weight <= sample.upper).all()
    width = sample.merged_upper - sample.merged_lower
    one = sample.loc[width.idxmax()]
    to = f"“{one.key_token}”" if one.copies == 1 else f"all {one.copies} “{one.key_token}”"
    fixed = int((width < FIXED).sum())
    lead = _sample_sentences(sampled(*[0.01] * fixed, *[0.3] * (6 - fixed)), 9)[0]
    assert said.sentences[0] == lead and "of 6 larger attention weights looked into" in lead
    assert said.sentences[1] == (
        f"The loosest, {one.merged_weight:.2f} from “{one.query_token}” to {to} (layer {one.layer}, head"
        f" {one['head']}), may be anything from {one.merged_lower:.2f} to {one.merged_upper:.2f}, and the model would"
        " answer the same."
    )
    assert "Certain means fixed to within 0.05" in said.sentences[2]
    whole = " ".join(said.sentences)
    assert "only 32 numbers of what it reads, too few to tell so many weights. In 24 of 24 heads" in whole
    assert f"{said.median_merged_null_share:.2f} of the squared" in whole
    assert f"equal tokens added up ({said.median_null_share:.2f} place by place)" in whole
    assert said.median_merged_null_share == float(result.merged_null_share.median())
    assert said.median_null_share == float(result.simplex_null_share.median())


def test_weight_that_only_moves_between_copies_is_fixed() -> None:
    """A word twice, with the same values: each weight alone may be anything up to their sum, and the sum is fixed."""
    generator = np.random.default_rng(0)
    value = generator.standard_normal((8, 12))
    value[5] = value[2]
    attention = np.full((8, 8), 0.05)
    attention[:, 2] = 0.65
    tokens = ["a", "b", "to", "c", "d", "to", "e", "f"]
    trace = identiscope.from_arrays(attention[None, None], value[None, None], tokens=tokens)
    said = verdict(trace, identiscope.attention_identifiability(trace))
    assert said.sentences[0].startswith("You can take it as it is: of ")
    assert "from one copy of a word to another" in " ".join(said.sentences)
    # Twelve numbers are enough for eight weights; only copies are not told apart.
    assert "too few" not in " ".join(said.sentences)
    assert "12 numbers of what it reads: as a rule enough" in said.sentences[-2]
    assert (said.sample.merged_upper - said.sample.merged_lower).max() < 1e-9
    np.testing.assert_allclose(said.sample.upper - said.sample.lower, 0.7, atol=1e-9)
    assert said.median_reach < 1e-9


def test_the_sample_is_drawn_from_all_noticeable_weights_between_words(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, PASSAGE, layers=[2])
    result = identiscope.attention_identifiability(trace)
    said, again, other = (verdict(trace, result, candidates=8, seed=seed) for seed in (0, 0, 1))
    places = [set(map(tuple, one.sample[["head", "query", "key"]].to_numpy().tolist())) for one in (said, again, other)]
    assert places[0] == places[1] != places[2]
    special = trace.main.special
    count = 0
    for head in range(12):
        weights = trace.site(2).attention(head).numpy()
        for query, key in np.argwhere(weights >= NOTICEABLE):
            count += query != key and not special[query] and not special[key]
    assert said.drawn_from == count
    assert f"drawn at random from {count:,}" in said.sentences[2]
    assert (said.sample.weight >= NOTICEABLE).all() and (said.sample["query"] != said.sample["key"]).all()
    assert not any(special[place] for place in [*said.sample["query"], *said.sample["key"]])


def test_an_identifiable_text_is_good_news(minilm: identiscope.Model) -> None:
    short = identiscope.trace(minilm, "The cat sat on the mat.")
    said = verdict(short, identiscope.attention_identifiability(short))
    assert said.sentences[0].startswith("Good news: every attention weight here is real.")
    assert "Up to 33 tokens" in said.sentences[1] and said.sample.empty


def arrays(sharp: float, width: int = 6) -> identiscope.Trace:
    torch.manual_seed(0)
    logits = torch.randn(1, 2, 30, 30, dtype=torch.float64)
    return identiscope.from_arrays(torch.softmax(sharp * logits, -1), torch.randn(1, 2, 30, width, dtype=torch.float64))


def test_a_text_without_noticeable_weights_says_so() -> None:
    trace = arrays(0.1)
    said = verdict(trace, identiscope.attention_identifiability(trace))
    assert said.drawn_from == 0 and len(said.sample) == 2
    assert "the 2 strongest weights between two words, one a head (none reaches 0.1)" in " ".join(said.sentences)


def test_weights_that_are_all_fixed_are_said_to_be_so_first() -> None:
    """Nearly one-hot rows have a null space and no room in it: the verdict must not begin with the null space."""
    trace = arrays(60.0, width=14)
    result = identiscope.attention_identifiability(trace)
    assert (result.free_rows == 1).all()
    said = verdict(trace, result)
    width = said.sample.merged_upper - said.sample.merged_lower
    assert (width < FIXED).all()
    assert said.sentences[0].startswith("You can take it as it is: of ")


@pytest.mark.parametrize("sharp", [1.0, 5.0])
def test_no_sentence_says_of_weights_what_is_only_true_of_heads(sharp: float) -> None:
    trace = arrays(sharp)
    said = verdict(trace, identiscope.attention_identifiability(trace))
    assert not re.search("not identifiable|weight has no effect", " ".join(said.sentences))
    assert "may be anything from" in said.sentences[1]


def sampled(*widths: float) -> pd.DataFrame:
    rows = [
        {"layer": 1, "head": 2, "query_token": "a", "key_token": "b", "copies": 1, "merged_weight": 0.4,
         "merged_lower": 0.1, "merged_upper": 0.1 + width, "lower": 0.1, "upper": 0.1 + width}
        for width in widths
    ]  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("fixed", "loose", "begins", "says"),
    [
        (8, 0, "You can take it as it is", "all are certain"),
        (6, 2, "Most of it is certain", "6 are; the other 2 could be otherwise, and the model would answer the same"),
        (7, 1, "Most of it is certain", "7 are; the other one could be otherwise"),
        (5, 3, "Part of it is certain", "5 are; the other 3 could be"),
        (3, 5, "Part of it is certain", "3 are; the other 5 could be"),
        (1, 7, "Little of it is certain", "1 is; the other 7 could be"),
        (0, 8, "Do not take it as it is", "none is certain. They could be otherwise"),
    ],
)
def test_the_first_sentence_says_how_much_is_certain_by_a_stated_rule(
    fixed: int, loose: int, begins: str, says: str
) -> None:
    lead = _sample_sentences(sampled(*[0.01] * fixed, *[0.3] * loose), 100)[0]
    assert lead.startswith(begins) and says in lead and "of 8 larger attention weights" in lead


def test_few_rows_say_how_far_a_row_can_move(minilm: identiscope.Model) -> None:
    """The distances of the verdict are those of the method, row by row."""
    trace = identiscope.trace(minilm, PASSAGE[:300], layers=[3])
    result = identiscope.attention_identifiability(trace)
    rows = _spread_rows(result, 4)
    expected = [
        float(
            identiscope.attention_alternative(
                trace, layer, head, rows=[query], starts=1, merged=True
            ).merged_total_variation.max()
        )
        for layer, head, query in rows
    ]
    assert _reach(trace, result, rows, lambda: None) == pytest.approx(float(np.median(expected)), abs=1e-9)
    assert len({head for _, head, _ in rows}) == 4


def test_where_all_is_certain_the_loosest_weight_is_not_called_free() -> None:
    table = sampled(0.0, 0.02).replace("a", "Ġwith")
    said = _sample_sentences(table, 9)
    assert said[1] == "Even the loosest, 0.40 from “with” to “b” (layer 1, head 2), could vary by 0.02 at most."
    assert _sample_sentences(sampled(0.001), 9)[1].endswith("could vary by less than 0.01.")
