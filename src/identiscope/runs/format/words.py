"""What a Run of explanations says of words, and how far its methods agree: read shard by shard, text by text."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from identiscope.errors import InputError
from identiscope.stats.agreement import agreement
from identiscope.token_text import joined_words

if TYPE_CHECKING:
    import pandas as pd

    from identiscope.runs.format.opened_run import Run

_GROUPS = ("outcome", "label")


def words_table(run: "Run", table: str, by: str | None, methods: Sequence[str] | None, least: int) -> "pd.DataFrame":
    """Mean share of a text's scores for each group, method and word, largest first."""
    import pandas as pd

    known = run.tables[table].names
    names = list(known if methods is None else methods)
    if strange := [name for name in names if name not in known]:
        raise InputError(f"methods {', '.join(map(str, strange))} were asked for; there are {', '.join(known)}.")
    if by is not None and by not in _GROUPS:
        raise InputError(f"by={by!r} was given; expected outcome, label, or None for all texts together.")
    if least < 1:
        raise InputError(f"least={least} was given; expected at least 1.")
    sums: dict[tuple[Any, ...], np.ndarray] = {}
    for rows, label, marked in _by_text(run, table):
        group = {"outcome": rows["outcome"].iloc[0], "label": label, None: ""}[by]
        side = ["text"] * len(rows)
        pieces, words, special, _ = joined_words(rows["token"].tolist(), rows["special"].tolist(), side, marked)
        for name in names:
            for word, share in _shares(rows[name].to_numpy(np.float64), pieces, words, special).items():
                moments = sums.setdefault((group, name, word), np.zeros(3))
                moments += (1.0, share, share * share)
    return _ordered(pd.DataFrame(_rows(sums, by, least), columns=[*_named(by), *_NUMBERS]), by)


_NUMBERS = ("count", "mean_share", "standard_error")


def _named(by: str | None) -> tuple[str, ...]:
    return (*(() if by is None else (by,)), "method", "word")


def _shares(
    scores: np.ndarray, pieces: Sequence[int], words: Sequence[str], special: Sequence[bool]
) -> dict[str, float]:
    """The share that each word has of a text's scores, in whatever places it stands; {} where a method says nothing."""
    whole = np.bincount(pieces, scores, len(words))
    size = np.abs(whole).sum()
    if not np.isfinite(size) or size == 0:
        return {}
    shares: dict[str, float] = {}
    for word, share, is_special in zip(words, whole / size, special, strict=True):
        if not is_special:
            shares[word.casefold()] = shares.get(word.casefold(), 0.0) + float(share)
    return shares


def _rows(sums: dict[tuple[Any, ...], np.ndarray], by: str | None, least: int) -> Iterator[tuple[Any, ...]]:
    for (group, name, word), (count, total, squares) in sums.items():
        if count >= least:
            mean = total / count
            spread = max(squares - total * mean, 0.0) / (count - 1) if count > 1 else np.nan
            where = () if by is None else (group,)
            yield (*where, name, word, int(count), mean, np.sqrt(spread / count))


def _ordered(rows: "pd.DataFrame", by: str | None) -> "pd.DataFrame":
    keys = [*(() if by is None else (by,)), "method", "mean_share", "word"]
    ascending = [key != "mean_share" for key in keys]
    return rows.sort_values(keys, ascending=ascending, ignore_index=True)


def agreement_over(run: "Run", table: str) -> tuple[dict[str, Any], list[str]]:
    """Mean agreement, its standard error, and of how many texts, [method, other]; and the names of the methods."""
    names = run.tables[table].names
    count, total, squares = np.zeros((3, len(names), len(names)))
    for rows, _, _ in _by_text(run, table):
        scores = rows[names].to_numpy(np.float64).T
        one = agreement(scores, rows["special"].to_numpy(bool))
        known = np.isfinite(one)
        one = np.where(known, one, 0.0)
        count, total, squares = count + known, total + one, squares + one**2
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = total / count
        variance = np.maximum(squares - total * mean, 0.0) / (count - 1)
        error = np.sqrt(variance / count)
    axes = ("method", "other")
    return {"mean": (axes, mean), "standard_error": (axes, error), "texts": (axes, count.astype(int))}, names


def _by_text(run: "Run", table: str) -> "Iterator[tuple[pd.DataFrame, str | None, bool]]":
    """The rows of each text, its label, and whether its vocabulary marks the beginnings of words."""
    for scores, texts in zip(run.iterate(table), run.iterate("texts", ["text", "label"]), strict=False):
        labels = dict(zip(texts["text"], texts["label"], strict=True))
        # A text of one word does not say it by itself.
        marked = any(token.startswith(("Ġ", "▁")) for token in scores["token"])
        for number, rows in scores.groupby("text", sort=False):
            yield rows, labels[number], marked
