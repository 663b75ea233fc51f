"""Rows of Parquet files and of Hugging Face datasets, some at a time."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from identiscope.capture.hub import unreachable
from identiscope.errors import InputError
from identiscope.files import check_readable

#: Rows held at once, and bytes of them that become Python's.
ROWS = 1024
BYTES = 2**26


def parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_readable(path)
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise InputError(f"{path} is not a Parquet file, or is damaged: {error}.") from error
    try:
        with file:
            for batch in file.iter_batches(batch_size=ROWS):
                few = max(1, batch.num_rows * BYTES // max(batch.nbytes, 1))
                for start in range(0, batch.num_rows, few):
                    yield from batch.slice(start, few).to_pylist()
    # What is damaged may be found late; strings that are no UTF-8 are found when they are read.
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise InputError(f"{path} is damaged: {str(error)[:200]}.") from error


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
    here = Path(source).is_dir()
    no_hub = None if here else unreachable()
    if no_hub is not None:
        raise InputError(f"{source} is no file and no built-in corpus; if it is a dataset of the hub, {no_hub}.")
    try:
        if here:
            dataset: Any = datasets.load_from_disk(source)
        else:
            dataset = datasets.load_dataset(name, configuration or None, streaming=True)
    except Exception as error:  # datasets and the hub raise many kinds
        raise InputError(
            f"{source} is no file, no built-in corpus, and no dataset that could be read; datasets said:"
            f" {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        ) from error
    if isinstance(dataset, dict):
        if split not in dataset:
            raise InputError(
                f"split {split!r} of {source} was asked for; it has {', '.join(dataset)}. Name one (--split)."
            )
        dataset = dataset[split]
    elif split is not None and str(getattr(dataset, "split", split)) != split:
        raise InputError(f"split {split!r} of {source} was asked for; it holds {dataset.split}.")
    return _rows(dataset, source)


def _rows(dataset: Any, source: str) -> Iterator[Mapping[str, Any]]:
    try:
        yield from dataset
    except Exception as error:  # as above, on the way
        raise InputError(
            f"{source} could not be read to its end; datasets said:"
            f" {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        ) from error
