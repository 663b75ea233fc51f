"""What the table `attention` needs of one text and layer, summed over the rows of its maps."""

from dataclasses import dataclass
from math import log
from typing import ClassVar

import torch
from torch import Tensor

from identiscope.linalg.copies import MergedSums, no_merged_sums
from identiscope.linalg.moments import Moments, no_moments
from identiscope.linalg.rank.prefix.projection import RowSums
from identiscope.linalg.simplex.raw_rows import RawSums
from identiscope.runs.compute.batch_tokens import BatchTokens


@dataclass(frozen=True, eq=False)
class TextSums:
    """Of one text: the rows' moments with A⊥ on col(T), and (`simplex`) on col([T,1]); ranks of both, entropy in nats,
    [head, query]; how many keys each row sees, lengths [query]; sums over rows of the weight on the own token, own
    [map, head], and on each type of token, types [map, head, type], the maps being those of `MAPS`; `merged` is of the
    simplex map with equal tokens added up.
    """

    MAPS: ClassVar = ("raw", "simplex", "effective")

    lengths: Tensor
    moments: Moments
    simplex: Moments
    rank: Tensor
    simplex_rank: Tensor
    entropy: Tensor
    own: Tensor
    types: Tensor
    merged: MergedSums

    def add_cells(
        self, rows: slice, raw: Tensor, effective: Tensor, simplex: Tensor, types: Tensor, inside: Tensor
    ) -> None:
        """Some consecutive rows of all three maps, [head, row, key], and which of these keys they see, [row, key]."""
        keys = raw.shape[2]
        self.moments.add_block(rows, raw, effective, inside)
        self.simplex.add_block(rows, raw, simplex, inside)
        self.merged.add(rows, raw, lambda places: simplex[:, places.to(simplex.device)])
        for index, cells in enumerate((raw, simplex, effective)):
            self.own[index] += cells[:, :, rows].diagonal(dim1=1, dim2=2).sum(-1)
            self.types[index] += cells.sum(1) @ types[:, :keys].double().mT

    def add_sums(self, rows: slice, raw: RawSums, effective: RowSums, simplex: RowSums) -> None:
        """Some consecutive rows of which there are only sums: those of A⊥ over all keys, then over each type.

        Sums of the raw attention over types are still to be added.
        """
        both = (raw.total, raw.squares), (effective.columns[..., 0], effective.squares)
        self.moments.add_projected(rows, self.lengths[rows], *both)
        # Projected on what has the ones in it, rows keep their sums.
        self.simplex.add_projected(rows, self.lengths[rows], both[0], (raw.total, simplex.squares))
        self.rank[:, rows], self.simplex_rank[:, rows] = effective.rank, simplex.rank
        self.entropy[:, rows] = raw.entropy
        self.own[0] += raw.last.sum(1)
        for index, sums in enumerate((simplex, effective), 1):
            self.own[index] += sums.own.sum(1)
            self.types[index] += sums.columns[..., 1:].sum(1)

    def columns(self, types: Tensor) -> dict[str, Tensor]:
        """The columns of the table, each [head]; types [type, token]."""
        queries = len(self.lengths)
        columns = {
            # Of the last row: where rows see different keys, it is the one that sees most.
            "rank": self.rank[:, -1].double(),
            "null_dimension": (self.lengths - self.rank)[:, -1].double(),
            "simplex_null_dimension": (self.lengths - self.simplex_rank)[:, -1].double(),
            "free_rows": (self.lengths > self.simplex_rank).double().mean(-1),
            "simplex_null_share": self.simplex.unexplained("head"),
            "simplex_correlation": self.simplex.correlation("head"),
            "merged_null_share": self.merged.share,
            "null_share": self.moments.unexplained("head"),
            "correlation": self.moments.correlation("head"),
            "entropy": self.entropy.sum(-1) / log(2) / queries,
        }
        for index, kind in enumerate(self.MAPS):
            shares = tokens_columns(
                kind, self.types[index][None] / queries, self.own[index][None] / queries, types[None]
            )
            columns |= {name: values[0] for name, values in shares.items()}
        return columns


def no_sums(heads: int, lengths: Tensor, types: int, copies: Tensor) -> TextSums:
    """All zero; copies [key]: groups of equal tokens."""
    queries = len(lengths)
    zeros = torch.zeros(heads, queries, dtype=torch.float64, device=lengths.device)
    moments, simplex = (no_moments((heads, queries, int(lengths.max())), None, lengths.device) for _ in range(2))
    return TextSums(
        lengths,
        moments,
        simplex,
        zeros.long(),
        zeros.long(),
        zeros,
        zeros.new_zeros(3, heads),
        zeros.new_zeros(3, heads, types),
        no_merged_sums(heads, queries, copies, lengths.device),
    )


def tokens_columns(kind: str, by_type: Tensor, own: Tensor, types: Tensor) -> dict[str, Tensor]:
    """Mean weight of a query on the keys of each type, [text, head]; not a number where a text has no such token."""
    some = types.any(-1)[:, None]
    given = torch.where(some, by_type, torch.nan)
    return {f"{kind}_to_{name}": given[..., index] for index, name in enumerate(BatchTokens.TYPES)} | {
        f"{kind}_to_self": own
    }
