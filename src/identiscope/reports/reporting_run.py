"""From the directory of a corpus run to a page: what the corpus as a whole says of each layer and head."""

from pathlib import Path

from identiscope.methods.registry import METHODS
from identiscope.runs.format.legacy import table_name
from identiscope.runs.format.opened_run import Run, open_run
from identiscope.views.page.data import Page, empty_page
from identiscope.views.page.numbers import means_section
from identiscope.views.page.plain import table_section
from identiscope.views.page.report import write_report
from identiscope.views.tables.run import explanation_tables


def report_run(directory: str | Path, path: str | Path = "report.html") -> Path:
    """Write one HTML file on a complete Run.

    >>> identiscope.report_run("my-run", "corpus.html")
    """
    return write_report(run_page(open_run(directory)), path)


def run_page(run: Run) -> Page:
    """The data of a page on a Run."""
    summary, names = run.summary, run.manifest["names"]
    page = empty_page(
        f"{names['model']} on {names['corpus']}",
        f"{summary['texts']} texts · {summary['tokens']} tokens · {', '.join(run.methods)}",
        verdict=_sentences(run),
        notes=["Equation numbers are those of Brunner et al., On Identifiability in Transformers (ICLR 2020)."],
    )
    for method in run.methods:
        if run.tables[method].of_inputs:
            for title, headings, rows in explanation_tables(run):
                page = page.with_section(table_section(title, list(headings), rows))
            continue
        meanings = {column.name: column.meaning for column in run.tables[method].columns}
        section = means_section(run.means(method), _title(method), meanings, method)
        page = page if section is None else page.with_section(section)
    means = [[method, name, value] for method, one in summary["means"].items() for name, value in one.items()]
    statuses = list(summary["statuses"].items())
    page = page.with_section(table_section("What became of the texts", ["status", "texts"], statuses))
    columns = ["method", "column", "mean"]
    return page.with_section(table_section("Means over all texts, layers and heads", columns, means))


def _title(name: str) -> str:
    """What a method says, for the heading of its means; of a method that nobody knows any more, its name."""
    one = METHODS.get(table_name(name, METHODS) if name not in METHODS else name)
    return f"{name.replace('_', ' ')} over the corpus" + (f": {one.says} ({one.paper})" if one else "")


def _sentences(run: Run) -> list[str]:
    summary = run.summary
    done, count = summary["statuses"].get("ok", 0), summary["texts"]
    said = [f"{done} of {count} texts were analysed, {summary['tokens']} tokens in all."]
    columns = {table: {column.name for column in run.tables[table].columns} for table in run.methods}
    table = next((name for name, have in columns.items() if {"null_share", "free_rows"} <= have), None)
    if table is not None and table in summary["means"]:
        means = run.means(table)["mean"]
        share, free = means.sel(column="null_share"), means.sel(column="free_rows")
        loose = int((share > 0.5).sum())
        said[:0] = [
            f"In {loose} of {share.size} heads more than half of the squared attention weight has no effect, on average"
            f" over {done} texts.",
        ]
        said.append(
            f"Mean null share {float(share.mean()):.2f}; in the mean {float(free.mean()):.0%} of the rows of attention"
            " could be exchanged for others with the same output."
        )
    if summary["cut_texts"]:
        said.append(f"{summary['cut_texts']} texts were cut, by {summary['cut_tokens']} tokens.")
    return said
