"""Rows of Parquet files and of Hugging Face datasets, some at a time."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from identiscope.errors import InputError

#: Rows held at once.
ROWS = 1024


def parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path} is not a Parquet file, or is damaged: {error}.") from error
    with file:
        for batch in file.iter_batches(batch_size=ROWS):
            yield from batch.to_pylist()


def dataset_rows(source: str, split: str | None) -> Iterator[Mapping[str, Any]]:
    """The rows of a dataset: a directory that `Dataset.save_to_disk` wrote, or an id on the hub, name or name:config.

    A dataset of the hub is streamed, not downloaded as a whole.
    """
    try:
        import datasets
    except ImportError as error:
        raise InputError(
            f"{source} is no file and no built-in corpus. If it is a Hugging Face dataset, install what reads it:"
            ' pip install "identiscope[datasets]".'
        ) from error
    name, _, configuration = source.partition(":")
    try:
        if Path(source).is_dir():
            found: Any = datasets.load_from_disk(source)
        else:
            found = datasets.load_dataset(name, configuration or None, streaming=True)
    except Exception as error:  # datasets and the hub raise many kinds
        raise InputError(
            f"{source} is no file, no built-in corpus, and no dataset that could be read; datasets said:"
            f" {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        ) from error
    if isinstance(found, dict):
        if split not in found:
            raise InputError(
                f"split {split!r} of {source} was asked for; it has {', '.join(found)}. Name one (--split)."
            )
        found = found[split]
    elif split is not None and str(getattr(found, "split", split)) != split:
        raise InputError(f"split {split!r} of {source} was asked for; it holds {found.split}.")
    return iter(found)
