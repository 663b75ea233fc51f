"""The viewer shows tokens as tables and plots do."""

from importlib.resources import files
from typing import Any

from identiscope.token_text import shown_token

TOKENS = [
    "the", "Ġthe", "▁the", "ĠĠ▁", "ĊĊ", "a\nb\tc\x07", "\x7f\x9f", "soft\xadhyphen", "\u200b\u202e\u2066\ufeff",
    "[SEP]",
    "##ing", "$x$", "</script>", "é🙂", "17", "", " ", "\u00a0",
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
