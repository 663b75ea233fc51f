"""Any result as a section: its plot as a picture, if it has one, and its numbers as tables."""

import base64
import io
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import xarray as xr

from identiscope.views.page.data import Section
from identiscope.views.page.shapes import PlainData, Table
from identiscope.views.tables.result import plain_cell, result_tables


def plain_data(result: xr.Dataset) -> tuple[PlainData, str]:
    """The picture and the tables, and what is to be said where there should be a picture and is none."""
    told, picture = "", None
    try:
        picture = _picture(result)
    except Exception as error:  # a part of a result, or one without numbers, makes plots fail in many ways
        told = f"The plot could not be drawn of this part of a result ({error}); the tables have its numbers."
    return {"image": picture, "tables": [_table(*table) for table in result_tables(result)]}, told


def table_section(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Section:
    """A table of plain values."""
    return Section("plain", title, "", {"image": None, "tables": [_table("", columns, rows)]}, name="table")


def _table(name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    return {"name": name, "columns": list(columns), "rows": [[plain_cell(value) for value in row] for row in rows]}


def _picture(result: xr.Dataset) -> str | None:
    """The plot as a data URL; None where there is none."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from identiscope.views.plots.plotting import drawing, plot

    method = str(result.attrs.get("method"))
    if drawing(result) is None:
        return None
    options: dict[str, Any] = {}
    if method.startswith("run_"):
        columns = result["column"].values if method.endswith("_means") else list(result.data_vars)
        usual = [name for name in ("simplex_null_share", "median") if name in columns]
        options["column"] = usual[0] if usual else str(columns[0])
    figure = Figure(figsize=(8, 5), dpi=130, layout="constrained")
    with warnings.catch_warnings():
        # Of axes that have no length, or colours of what is not a number.
        warnings.simplefilter("ignore")
        plot(result, figure.add_subplot(), **options)
        made = io.BytesIO()
        # `savefig` would draw it twice, once for the layout alone; the picture is the same.
        FigureCanvasAgg(figure).print_png(made)
    return f"data:image/png;base64,{base64.b64encode(made.getvalue()).decode('ascii')}"
