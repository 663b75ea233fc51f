"""`result.identiscope`: what a result, which is a plain xarray dataset, can do here."""

from pathlib import Path
from typing import Any

import xarray as xr

from identiscope.experiments.reporting import report, view
from identiscope.results import save_result
from identiscope.views.plotting import plot


@xr.register_dataset_accessor("identiscope")  # type: ignore[no-untyped-call]
class ResultAccessor:
    """Draw, save or show a result.

    >>> result.identiscope.to_html("result.html")
    """

    def __init__(self, result: xr.Dataset) -> None:
        self._result = result

    def to_html(self, path: str | Path = "result.html") -> Path:
        """One offline HTML file with the viewer."""
        return report(self._result, path=path)

    def view(self) -> Any:
        """The viewer in a notebook."""
        return view(self._result)

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """As `identiscope.plot`."""
        return plot(self._result, ax, **options)

    def save(self, path: str | Path) -> Path:
        """As `identiscope.save_result`."""
        return save_result(self._result, path)
