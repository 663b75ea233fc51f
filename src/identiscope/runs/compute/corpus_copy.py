"""A corpus as it was read, once: its texts, and what was found out about them, kept aside while a Run goes on.

So what is computed is what was hashed, whatever becomes of the corpus meanwhile, and a dataset of the hub is fetched
once.
"""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import astuple
from itertools import islice
from typing import Any

from identiscope.capture.inputs import TokenRow
from identiscope.corpus.readers import Corpus, Text
from identiscope.errors import InputError
from identiscope.files import printable, saying
from identiscope.runs.compute.identity import CorpusFacts
from identiscope.runs.compute.texts import Measured
from identiscope.runs.format.text_hash import text_hash

#: Bytes that are kept in memory; what is more goes into a temporary file, which has no name and ends with the process.
IN_MEMORY = 2**25


class Kept:
    """Values of JSON, written one after the other and read again from the first; to be closed in the end."""

    def __init__(self) -> None:
        self.file = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115  (it is closed with the copy)

    def add(self, value: Any) -> None:
        """One more."""
        with saying(tempfile.gettempdir(), "A Run keeps a copy of its corpus there; TMPDIR names another place."):
            # All but plain characters are escaped, a lone surrogate too.
            self.file.write(json.dumps(value).encode() + b"\n")

    def __iter__(self) -> Iterator[Any]:
        self.file.seek(0)
        return map(json.loads, self.file)


class CorpusCopy:
    """The texts of a corpus, and what measuring them gave, if that was done already.

    Reading it shows how many texts there are, their hash, that of each shard; bad files are found before any work.
    """

    def __init__(self, corpus: Corpus, shard_size: int) -> None:
        self.kept, self.kept_measures = Kept(), Kept()
        self.is_measured = False
        try:
            self.facts = self._read(corpus, shard_size)
        except BaseException:
            self.close()
            raise

    def _read(self, corpus: Corpus, shard_size: int) -> CorpusFacts:
        texts, read, count, shards = corpus.read(), text_hash(()), 0, []
        while part := tuple(islice(texts, shard_size)):
            text_hash(part, read)
            shards.append(text_hash(part).hexdigest())
            count += len(part)
            for text in part:
                self.kept.add([text.parts, text.label])
        if not count:
            raise InputError(f"{printable(corpus.source)} has no texts; a Run needs at least one.")
        return CorpusFacts(corpus.source, count, read.hexdigest(), tuple(shards))

    def close(self) -> None:
        """Forget it."""
        self.kept.file.close()
        self.kept_measures.file.close()

    def add_measured(self, one: Measured) -> None:
        """What measuring the next text gave."""
        self.is_measured = True
        self.kept_measures.add([one.tokens, one.cut, one.status, None if one.row is None else astuple(one.row)])

    def texts(self) -> Iterator[Text]:
        """The texts, in their order."""
        return (Text(tuple(parts), label) for parts, label in self.kept)

    def measured(self) -> Iterator[Measured] | None:
        """What measuring the texts gave, in their order; None if they were not."""
        if not self.is_measured:
            return None
        return (
            Measured(tokens, cut, status, None if row is None else _row(*row))
            for tokens, cut, status, row in self.kept_measures
        )


def _row(ids: list[int], types: list[int] | None, offsets: Any, special: list[bool], cut: int) -> TokenRow:
    return TokenRow(ids, types, None if offsets is None else [(first, last) for first, last in offsets], special, cut)
