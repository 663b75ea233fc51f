"""`result.identiscope`: what a result, which is a plain xarray dataset, can do here."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import xarray as xr

from identiscope.results import save_result
from identiscope.validation import checked

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@xr.register_dataset_accessor("identiscope")  # type: ignore[no-untyped-call]
class ResultAccessor:
    """Draw, save, tabulate or show a result.

    >>> result.identiscope.to_html("result.html")
    >>> result.identiscope.table()
    """

    def __init__(self, result: xr.Dataset) -> None:
        self._result = result

    def to_html(self, path: str | Path = "result.html") -> Path:
        """One offline HTML file with the viewer."""
        # Imported when asked for, here and below: a result can be read without torch, and without matplotlib.
        from identiscope.reports.reporting import report

        return report(self._result, path=path)

    def view(self) -> Any:
        """The viewer in a notebook."""
        from identiscope.reports.reporting import view

        return view(self._result)

    def plot(self, ax: "Axes | None" = None, **options: Any) -> "Axes":
        """As `identiscope.plot`."""
        from identiscope.views.plots.plotting import plot

        # What an ax may be is known with matplotlib only.
        return checked(plot)(self._result, ax, **options)

    def save(self, path: str | Path) -> Path:
        """As `identiscope.save_result`."""
        return save_result(self._result, path)

    def table(self, *, largest: int | None = None) -> "pd.DataFrame":
        """A row for each head, cell, token or layer, as the kind of the result demands; tokens are columns.

        largest: only so many rows, those of the greatest size. `table.attrs["left_out"]` names arrays of further axes.
        """
        from identiscope.views.tables.tidy import tidy

        return tidy(self._result, largest=largest)
