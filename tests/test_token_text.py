"""Tokens are shown in one way: in tables, plots, sentences and notebooks (and in the viewer: tests/browser)."""

import matplotlib.pyplot as plt
import pytest
import torch

import identiscope
from identiscope.token_text import drawn_token, shown_token
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
