"""`identiscope serve`: the viewer, live, in a browser on this machine."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from identiscope.commands.options import AT_LEAST_TWO, Finite, analysis_options, loading
from identiscope.commands.sections import listed
from identiscope.errors import InputError


@listed("look", 70)
@click.command("serve")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("--run", "run_directory", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Show this corpus run as a whole, too.")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0: any that is free.")
@click.option("--host", default="127.0.0.1", show_default=True,
              help="Address to be reached at. All but the loopback need a token, which is printed.")  # fmt: skip
@click.option("--token", help="Token to ask for: 16 or more of A-Z, a-z, 0-9, - and _.")
@click.option("--allow-name", "names", multiple=True, metavar="NAME",
              help="Another name that browsers reach this machine by; may be repeated.")  # fmt: skip
@click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Computations at a time.")
@click.option("--seconds", type=Finite(1, 10**6), default=600, show_default=True, help="Most time of one.")
@click.option("--max-tokens", type=AT_LEAST_TWO, default=1024, show_default=True, help="Of a text.")
@click.option("--max-characters", type=click.IntRange(1, 200_000), default=20_000, show_default=True, help="Of a text.")
@click.option("--truncate", is_flag=True,
              help="Cut a text that its model or --max-tokens does not take whole, and say how much.")  # fmt: skip
@analysis_options
def serve(models: tuple[str, ...], run_directory: Path | None, port: int, host: str, **options: Any) -> None:
    """Serve the viewer for MODEL, or several: type a text, choose what to compute, compare two side by side.

    Only this machine reaches it, unless --host says otherwise. Ctrl-C stops it.
    """
    try:
        from identiscope.views.server.application import Served, make_app
        from identiscope.views.server.jobs import Jobs
        from identiscope.views.server.running import bind, run_server
    except ModuleNotFoundError as error:
        raise InputError(f'serve needs {error.name}: pip install "identiscope[serve]"') from error
    from identiscope.views.server.security import is_loopback, names_of

    token = _token(options["token"], needed=not is_loopback(host))
    # Before the models are read: a port that is taken should not cost a minute.
    listening = bind(host, port)
    from identiscope.capture import load
    from identiscope.capture.samples import PASSAGE
    from identiscope.reports.live import live, served_model

    try:
        loaded = [load(model, **loading(options)) for model in models]
    except BaseException:
        listening.close()
        raise
    served = Served(
        models=[served_model(model) for model in loaded],
        compute=live(loaded, options["max_tokens"], options["truncate"]),
        run=_run_page(run_directory),
        sample=PASSAGE,
        longest_text=options["max_characters"],
        jobs=Jobs(running=options["workers"], seconds=options["seconds"]),
    )
    used = listening.getsockname()[1]
    rules = _rules(token, names_of(host, options["names"]), not is_loopback(host), used)
    # From here on whoever comes is answered, if a little later.
    listening.listen(128)
    _say(host, used, token)
    ended = run_server(make_app(served, rules), listening, served.jobs)
    click.echo("stopped")
    if not ended:
        # A thread deep in a library would end the process with a complaint of its own.
        sys.stdout.flush()
        os._exit(0)


def _token(given: str | None, needed: bool) -> str | None:
    import re
    import secrets

    if given is not None and not re.fullmatch(r"[A-Za-z0-9_-]{16,200}", given):
        raise click.BadParameter("give 16 or more of A-Z, a-z, 0-9, - and _", param_hint="--token")
    return given if given is not None or not needed else secrets.token_urlsafe(24)


def _rules(token: str | None, names: frozenset[str], any_address: bool, port: int) -> Any:
    from identiscope.views.server.security import Rules

    # Cookies know no ports: two servers on one machine would take each other's.
    return Rules(names=names, any_address=any_address, token=token, cookie=f"identiscope-{port}")


def _say(host: str, port: int, token: str | None) -> None:
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    click.echo(f"serving on http://{shown}:{port}/{f'?token={token}' if token else ''}  (Ctrl-C stops)")
    if token is not None:
        click.echo("without TLS: token and texts can be read on the way. On a network you do not trust, use a tunnel.")


def _run_page(directory: Path | None) -> Any:
    if directory is None:
        return None
    from identiscope.reports.reporting_run import run_page
    from identiscope.runs.format.opened_run import open_run

    return run_page(open_run(directory))
