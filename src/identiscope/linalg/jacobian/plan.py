"""How many columns of a Jacobian to work on at a time."""

from dataclasses import dataclass

#: Tangents of one chunk take about so many bytes: small enough to stay near the processor, large enough for
#: matrix products at full speed.
COLUMN_BYTES = 20 * 2**20

#: Columns below which matrix products lose speed.
FEWEST_COLUMNS = 96


@dataclass(frozen=True)
class Chunks:
    """Input tokens and directions of each token to push at a time."""

    tokens: int
    directions: int


def split_columns(columns: int, tokens: int, directions: int, *, keep_apart: bool) -> Chunks:
    """Fit tokens × directions into `columns`.

    keep_apart: where no token depends on those behind it, few tokens at a time leave out the most work.

    >>> split_columns(400, 32, 384, keep_apart=False)
    Chunks(tokens=1, directions=384)
    >>> split_columns(400, 32, 8, keep_apart=False)
    Chunks(tokens=32, directions=8)
    """
    if columns < directions:
        # Equal parts, rather than full ones and a small rest.
        parts = -(-directions // columns)
        return Chunks(1, -(-directions // parts))
    most = columns // directions
    if keep_apart:
        most = min(most, max(1, -(-FEWEST_COLUMNS // directions)))
    parts = -(-tokens // min(most, tokens))
    return Chunks(-(-tokens // parts), directions)
