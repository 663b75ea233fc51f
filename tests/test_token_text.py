"""Tokens are shown in one way: in tables, plots, sentences and notebooks (and in the viewer: tests/browser)."""

from typing import Any

import matplotlib.pyplot as plt
import pytest
import torch

import identiscope
from identiscope.capture.limits import token_names
from identiscope.errors import InputError
from identiscope.methods.selections import _of_words
from identiscope.reports.reporting import report_page
from identiscope.token_text import (
    _BYTE_SIGNS,
    byte_level_name,
    drawn_token,
    joined_words,
    named_in_text,
    shown_token,
    whole_characters,
)
from identiscope.views.page.attention_section import attentions_page
from identiscope.views.tables.attribution import print_attribution

TOKENS = ["Ġthe", "▁cat", "$5", "\u202e\n"]
SHOWN = ["␣the", "␣cat", "$5", "U+202E⏎"]


def test_shown() -> None:
    assert [shown_token(token) for token in TOKENS] == SHOWN
    assert (shown_token("\ud800"), shown_token(17), shown_token("ĊĠ")) == ("U+D800", "17", "⏎␣")
    assert drawn_token("$5") == r"\$5"


@pytest.fixture
def trace() -> identiscope.Trace:
    torch.manual_seed(0)
    return identiscope.from_arrays(torch.rand(4, 4).softmax(-1), torch.randn(4, 2), tokens=TOKENS)


def test_plots_sentences_and_notebooks(trace: identiscope.Trace) -> None:
    maps = identiscope.attention_maps(trace, 0, 0)
    drawn = [label.get_text().replace(r"\$", "$") for label in identiscope.plot(maps).get_xticklabels()]
    assert drawn == SHOWN
    bars = identiscope.plot(identiscope.attention_intervals(trace, 0, 0, row=1))
    assert [label.get_text().replace(r"\$", "$") for label in bars.get_xticklabels()] == SHOWN
    plt.close("all")
    assert all(f"<code>{token}</code>" in trace._repr_html_() for token in SHOWN)


def test_attribution(capsys: pytest.CaptureFixture[str]) -> None:
    from identiscope.methods.mixtures.hidden_token_attribution import hidden_token_attribution
    from identiscope.results import make_result

    found = hidden_token_attribution(lambda x: (x, 2 * x), torch.ones(4, 2))
    about = {"model": "m", "path": "replay", "why_replay": "", "stream": "tokens", "cut": 0}
    names = {"input_token": ("input", TOKENS), "output_token": ("output", TOKENS)}
    result = make_result(
        "hidden_token_attribution", found.arrays(), coordinates={**found.labels(), **names},
        provenance={**found.facts, **about},
    )  # fmt: skip
    labels = identiscope.plot(result, layer=0).get_xticklabels()
    assert [label.get_text().replace(r"\$", "$") for label in labels] == SHOWN
    plt.close("all")
    print_attribution(result)
    printed = capsys.readouterr().out
    assert all(token in printed for token in SHOWN) and not any(mark in printed for mark in "Ġ▁\u202e")


#: What a byte-level vocabulary writes, and the names that are shown.
BYTE_LEVEL = {
    "It": "It", "âĢĻ": "’", "ĠcafÃ©": "Ġcafé", "Ċ": "Ċ", "Ġæ": "Ġ<0xE6>", "Ĺ¥": "<0x97><0xA5>", "æľ¬": "本",
    "ĉ": "\t", "<|end▁of▁text|>": "<|end▁of▁text|>", "Äł": "<0xC4><0xA0>", "é": "<0xE9>",
}  # fmt: skip


def test_names_of_a_byte_level_vocabulary_have_the_true_characters() -> None:
    assert {name: byte_level_name(name) for name in BYTE_LEVEL} == BYTE_LEVEL
    # Of any byte there is one sign, and none is lost.
    every = "".join(map(byte_level_name, _BYTE_SIGNS))
    assert len(_BYTE_SIGNS) == 256 == len(set(map(byte_level_name, _BYTE_SIGNS))) and every.count("<0x") == 128


def test_parts_of_a_character_are_joined_in_words() -> None:
    names = [byte_level_name(name) for name in ("it", "âĢ", "Ļ", "s", "Ġæ", "Ĺ", "¥", "æľ¬", "Ġâĸ", "ģ", "ðŁ")]
    words = joined_words(names, [False] * len(names), ["text"] * len(names))[1]
    assert words == ["it’s", "日本", "<0xE2><0x96><0x81><0xF0><0x9F>"]
    assert _of_words("日本", names, [False] * len(names)) == [4, 5, 6, 7]
    with pytest.raises(InputError, match="no word"):
        _of_words("日", names, [False] * len(names))


@pytest.mark.parametrize("name", ["minilm", "smollm2"])
def test_a_model_s_tokens_are_the_text(name: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(name)
    text = "It’s naïve café “quoted” 日本語 🙂\n<0x41> Ġ ▁"
    ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    names = token_names(model, ids)
    if name == "minilm":
        assert names == tuple(model.tokenizer.convert_ids_to_tokens(ids))
        return
    joined = whole_characters(names).replace("Ġ", " ").replace("Ċ", "\n")
    # Signs that stand for spaces in names are shown as bytes, lest they be taken for one.
    assert joined == text.replace("Ġ", "<0xC4><0xA0>").replace("▁", "<0xE2><0x96><0x81>")
    assert "’" in names and not any("Ã" in one or "âĢ" in one for one in names)


def test_names_that_somebody_gives_are_told_by_what_they_are() -> None:
    given = ["<s>", "It", "âĢĻ", "s", "ĠcafÃ©", "<|end▁of▁text|>", "âĢ"]
    attention = torch.full((7, 7), 1 / 7)
    trace = identiscope.from_arrays(attention, torch.randn(7, 2), tokens=given)
    assert trace.tokens == ("<s>", "It", "’", "s", "Ġcafé", "<|end▁of▁text|>", "<0xE2><0x80>")
    page = attentions_page([attention[None]], given)
    data: Any = page.section("attention")["data"]
    assert data["tokens"]["queries"] == list(trace.tokens) and "<0xE2><0x80>" in page.header["notes"][-1]
    assert report_page(trace).header["notes"][-1] == page.header["notes"][-1]
    # Letters of other languages look like bytes, but make no text; and words of a vocabulary of pieces are no bytes.
    for others in (["ġ", "ı", "Ġż"], ["Ã©", "it"], ["Ġhot", "日本"], ["▁caf", "Ã©", "Ġ"], ["Ġ", 3]):
        assert named_in_text(others) == tuple(map(str, others))  # type: ignore[arg-type]


def test_signs_without_room_are_seen() -> None:
    assert shown_token("a\u3164\u034f\U000e0041") == "aU+3164U+034FU+E0041"
