"""The viewer shows tokens as tables and plots do."""

from importlib.resources import files
from typing import Any

from identiscope.token_text import shown_token, whole_characters

TOKENS = [
    "the", "Ġthe", "▁the", "ĠĠ▁", "ĊĊ", "a\nb\tc\x07", "\x7f\x9f", "soft\xadhyphen", "\u200b\u202e\u2066\ufeff",
    "[SEP]",
    "##ing", "$x$", "</script>", "é🙂", "17", "", " ", "\u00a0", "<0xE2><0x80>", "\u3164\u034f\U000e0041\U000e0fff",
]  # fmt: skip


def test_one_way_to_show_a_token(chromium: Any) -> None:
    tab = chromium.new_context().new_page()
    source = (files("identiscope.views") / "static" / "text.js").read_text(encoding="utf-8")
    shown = tab.evaluate(
        """async ([source, tokens]) => {
            const text = await import("data:text/javascript," + encodeURIComponent(source));
            return tokens.map((token) => text.shown(token, 1000));
        }""",
        [source, TOKENS],
    )
    assert shown == [shown_token(token) for token in TOKENS]


def joined(tab: Any, tokens: list[str]) -> Any:
    """Words as the viewer joins them: the places of their tokens, and how each reads."""
    folder = files("identiscope.views") / "static"
    return tab.evaluate(
        """async ([text, words, tokens]) => {
            const url = (source) => "data:text/javascript," + encodeURIComponent(source);
            const one = await import(url(words.replace("./text.js", url(text))));
            return [one.wordsOf(tokens), one.wordsOf(tokens).map((word) => one.asText(...word.map((at) => tokens[at]))),
                    tokens.map(one.isSpecial)];
        }""",
        [*((folder / name).read_text(encoding="utf-8") for name in ("text.js", "words.js")), tokens],
    )


def test_parts_of_a_character_are_one_word_with_it(chromium: Any) -> None:
    tab = chromium.new_context().new_page()
    names = [
        "<s>",
        "it",
        "’",
        "s",
        "Ġ<0xE6>",
        "<0x97>",
        "<0xA5>",
        "本",
        "Ġ<0xE2><0x80>",
        "<0x9C>",
        "q",
        "Ġ<0xF0>",
        "Ġ<",
        "0xC3><0xA9",
        ">",
    ]
    groups, words, special = joined(tab, names)
    assert words == ["<s>", "it", "’", "s", "日本", "“", "q", "<0xF0>", "<", "0xC3><0xA9", ">"]
    assert special == [True] + [False] * 14
    assert groups[4:6] == [[4, 5, 6, 7], [8, 9]]
    # The same signs as in Python, of all that bytes may be.
    rows = [
        "<0xE2><0x96><0x81>",
        "<0xC4><0xA0>",
        "<0xFF><0x41><0xC0><0x80>",
        "<0xEF><0xBB><0xBF>",
        "<0xED><0xA0><0x80>",
    ]
    for row in rows:
        assert joined(tab, [row])[1] == [shown_token(whole_characters([row]))]
