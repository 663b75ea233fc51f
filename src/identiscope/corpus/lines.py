"""The lines of a text file, in bounded memory: what is too long, or no UTF-8, is refused with its number."""

from collections.abc import Iterator
from pathlib import Path

from identiscope.errors import InputError
from identiscope.files import check_readable, printable, reading

#: The most bytes of one line, and the most characters of one text: far more than any model reads, and a file without
#: line ends (or of another kind) would else be taken into memory as a whole.
MOST = 2**20


def lines(path: str | Path) -> Iterator[str]:
    """The lines of a file, with their ends."""
    place = check_readable(path)
    with reading(path), place.open("rb") as file:
        number = 0
        while line := file.readline(MOST + 1):
            number += 1
            if len(line) > MOST:
                raise InputError(
                    f"line {number} of {printable(path)} has more than {MOST:,} bytes, the most that a line may have."
                    " Divide it: a line is one text, or one row."
                )
            yield decoded(line, path, number)


def decoded(line: bytes, path: str | Path, number: int) -> str:
    """One line as text."""
    try:
        # A mark of the byte order is no part of the text.
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"line {number} of {printable(path)} is not UTF-8 text: {error}. Convert the file, for example with iconv."
        ) from error


def whole_text(path: str | Path) -> str:
    """A file that is one text."""
    place = check_readable(path)
    with reading(path), place.open("rb") as file:
        data = file.read(MOST + 1)
    if len(data) > MOST:
        raise InputError(
            f"{printable(path)} has more than {MOST:,} bytes, the most that one text may have. Divide it, or run over"
            " it as a corpus with a text a line."
        )
    number = 1
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        decoded(line, path, number)
    return data.decode("utf-8-sig")
