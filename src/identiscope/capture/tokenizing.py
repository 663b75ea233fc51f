"""Call a tokenizer from any thread."""

import threading
from typing import Any

_TURN = threading.Lock()


def tokenize(tokenizer: Any, *parts: str, **options: Any) -> Any:
    """What the tokenizer makes of a text, one call at a time.

    Truncation is a setting of the tokenizer, and not of the call: a thread that cuts its text would cut those that
    others read meanwhile.
    """
    with _TURN:
        return tokenizer(*parts, **options)
