"""One bar for all that is counted; nothing where there is no terminal. That of a Run is in test_run_plots.py."""

import pytest

from heard import Heard
from identiscope.progress import Listener, part_of, say, tell
from identiscope.views.progress import progress_bar


def work() -> None:
    with progress_bar("layers") as moved:
        moved(3, 12)
        moved(12, 12)
    with progress_bar("training", share=True) as moved:
        tell(moved, "epoch 1", 1, 4)
        tell(part_of(moved, 3, 4, "last: "), "epoch 2", 7, 7)


def test_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    work()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "layers" in captured.err and "12/12" in captured.err
    assert "last: epoch 2" in captured.err and "100%" in captured.err


def test_a_function_hears_done_and_total_and_a_listener_what_is_done() -> None:
    heard = Heard()
    counted: list[tuple[int, int]] = []
    for progress in (lambda done, total: counted.append((done, total)), heard, None):
        tell(progress, "one", 1, 2)
        part = part_of(progress, 2, 5, "third: ")
        tell(part, "two", 1, 3)
        tell(part_of(part, 0, 2, "half: "), "three", 1, 1)
        say(part, "four")
    assert counted == [(1, 2), (2333, 5000), (2500, 5000)]
    assert [step[1:] for step in heard.steps] == counted and heard.words == "third: four"
    assert [step[0] for step in heard.steps] == ["one", "third: two", "third: half: three"]


def test_what_a_listener_does_not_listen_for_is_let_go() -> None:
    class Counting(Listener):
        def __init__(self) -> None:
            self.counted: list[tuple[int, int]] = []

        def __call__(self, done: int, total: int) -> None:
            self.counted.append((done, total))

    counting = Counting()
    for listener in (Listener(), counting):
        tell(listener, "one", 1, 2)
        listener.running(None)
    assert counting.counted == [(1, 2)]


def test_quiet_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    work()
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
