"""What is captured shows itself: one line of text, and HTML in a notebook."""

from html.parser import HTMLParser
from typing import Any

import pytest
import torch

import families
import identiscope


class Balanced(HTMLParser):
    """Every tag that is opened is closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data + " "


def shown(thing: Any) -> str:
    """The text of a thing, which is also in its HTML."""
    assert "\n" not in repr(thing) and len(repr(thing)) < 200
    assert repr(thing) in Balanced(thing._repr_html_()).words
    return repr(thing)


def test_a_site_says_where_it_is_and_whether_it_is_verified(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, "The cat sat on the mat.")
    text = shown(trace.site(2))
    for part in ("layer 2", "encoder-self", "12 heads", "9 × 9", "d_v 32", "mask none", "verified to", "in float32"):
        assert part in text
    html = Balanced(trace.site(2)._repr_html_()).words
    assert "encoder.layer.2.attention.output.dense" in html
    assert "heads 1, 4 of 12" in shown(identiscope.trace(minilm, "The cat sat.", heads=[1, 4]).site(0))


def test_a_verification_says_what_was_compared(minilm: identiscope.Model) -> None:
    verification = identiscope.trace(minilm, "The cat sat on the mat.").verify()
    text = shown(verification)
    assert text.startswith("Verification(verified: 6 of 6 sites, largest error ") and "6 of 6 attention calls" in text
    assert Balanced(verification._repr_html_()).words.count("attention.output.dense") == 6
    check = shown(verification.sites[5])
    for part in ("layer 5", "on 9 rows", "against encoder.layer.5.attention.output.dense", "verified to"):
        assert part in check


def test_what_is_not_verified_does_not_look_verified() -> None:
    given = identiscope.from_arrays(torch.eye(3), torch.ones(3, 2), output=torch.full((3, 2), 2.0))
    for thing in (given.site(0), given.verify(), given.verify().sites[0]):
        assert "NOT verified" in shown(thing)
    given = identiscope.from_arrays(torch.eye(3), torch.ones(3, 2))
    for thing in (given.site(0), given.verify(), given.verify().sites[0]):
        assert "not verified: there is nothing to compare with" in shown(thing)


@pytest.mark.parametrize(("dtype", "name"), [(torch.float16, "half precision (float16)"), (torch.float64, "float64")])
def test_precision_is_stated(dtype: torch.dtype, name: str) -> None:
    module = families.ALL["GPT-2"].model().to(dtype)
    trace = identiscope.trace(module, families.TEXT)
    changed = identiscope.substitute(module, families.TEXT, {(0, 1): lambda attention: attention})
    for thing in (identiscope.load(module), trace.site(1), trace.verify(), trace.main, changed):
        assert name in shown(thing)


def test_a_stream_a_model_and_an_outcome(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, "<b> & co")
    assert shown(trace.main) == "Stream('tokens', 7 tokens, 2 special, 7 hidden states of width 384, float32)"
    assert "<code>&lt;</code>" in trace.main._repr_html_()
    assert shown(minilm) == "Model('minilm', BertModel, 22.7 M parameters, float32)"
    tiny = identiscope.load(families.ALL["GPT-2"].model())
    assert "30688 parameters" in shown(tiny) and "no tokenizer" in repr(tiny)
    outcome = identiscope.substitute(tiny, families.TEXT, {(0, 1): lambda attention: attention})
    assert shown(outcome) == "Rerun(logits 12 × 99; 3 hidden states of tokens, 12 × 32; float64)"
    cut = identiscope.trace(minilm, "word " * 600, truncate=True, layers=[0])
    assert "90 cut" in shown(cut.main)
