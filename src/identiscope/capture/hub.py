"""Whether the hub answers: asked once, and briefly, before libraries that would try for minutes."""

import threading
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

#: Seconds in which a hub that is there has said something.
PATIENCE = 8.0


def unreachable(patience: float = PATIENCE) -> str | None:
    """Why the hub cannot be asked; None if it can, or if nothing is to be asked of it.

    What it answers does not matter here, only that it does.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return None  # nobody will ask it
    answers: list[str | None] = []

    def ask() -> None:
        try:
            # Half of the time to connect, half for the answer.
            with urlopen(Request(constants.ENDPOINT, method="HEAD"), timeout=patience / 2):
                answers.append(None)
        except HTTPError:
            answers.append(None)
        except (URLError, HTTPException, OSError, ValueError) as error:
            answers.append(str(getattr(error, "reason", error)) or type(error).__name__)

    # In a thread: looking up a name has no time limit of its own.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(patience)
    answer = answers[0] if answers else f"no answer within {patience:g} seconds"
    return None if answer is None else f"{constants.ENDPOINT} cannot be reached: {answer}"
