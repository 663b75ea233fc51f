"""The viewer in a notebook (Jupyter, VS Code, Colab), offline: needs `pip install "identiscope[notebook]"`."""

import secrets
from typing import Any

from identiscope.errors import InputError
from identiscope.views.page.bundle import static, widget_script, worker_script
from identiscope.views.page.data import Page
from identiscope.views.page.report import header_json
from identiscope.views.page.still import still_html


def widget(page: Page) -> Any:
    """A page as an anywidget: shown by the notebook where it is the last line of a cell."""
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise InputError(
            'the viewer in a notebook needs anywidget: pip install "identiscope[notebook]"; identiscope.report writes '
            "the same to an HTML file without it."
        ) from error
    traits = {name: traitlets.Unicode().tag(sync=True) for name in ("header", "worker", "still")}
    name = secrets.token_hex(8)
    still = still_html(page, name)

    def display_both(self: Any, **_: Any) -> None:
        """The viewer, and what is to be seen where it does not run: in a notebook that was exported, say."""
        from IPython import display as shown

        display: Any = shown.display
        display(*self._repr_mimebundle_()[:1], raw=True)
        display({"text/html": still, "text/plain": ""}, raw=True)

    kind = type(
        "ViewerWidget",
        (anywidget.AnyWidget,),
        {
            "_esm": widget_script(),
            "_css": static("viewer.css"),
            **traits,
            "_ipython_display_": display_both,
            # Bytes travel beside the message, not inside its JSON.
            "chunks": traitlets.Dict().tag(sync=True),
        },
    )
    return kind(header=header_json(page), worker=worker_script(), chunks=dict(page.chunks), still=name)
