"""From the directory of a corpus run to a page: what the corpus as a whole says of each layer and head."""

from pathlib import Path

from identiscope.corpus.opened_run import Run, open_run
from identiscope.corpus.run_methods import RUN_METHODS
from identiscope.views.report import write_report
from identiscope.views.report_data import Page, empty_page, with_means, with_table

_TITLES = {
    "attention": "Attention by head (raw and effective: eq. 8 and 9), over the corpus",
    "structure": "Patterns of heads, over the corpus",
    "attribution": "Hidden Token Attribution by layer (eq. 11), over the corpus",
    "tokens": "Token identifiability by layer (§4), over the corpus",
}


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
        meanings = {column.name: column.meaning for column in RUN_METHODS[method].columns}
        page = with_means(page, run.means(method), _TITLES.get(method, method), meanings)
    means = [[method, name, value] for method, one in summary["means"].items() for name, value in one.items()]
    statuses = list(summary["statuses"].items())
    page = with_table(page, "What became of the texts", ["status", "texts"], statuses)
    return with_table(page, "Means over all texts, layers and heads", ["method", "column", "mean"], means)


def _sentences(run: Run) -> list[str]:
    summary = run.summary
    done, count = summary["statuses"].get("ok", 0), summary["texts"]
    said = [f"{done} of {count} texts were analysed, {summary['tokens']} tokens in all."]
    if "attention" in summary["means"]:
        means = run.means("attention")["mean"]
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
