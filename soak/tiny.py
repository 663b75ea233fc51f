"""The tiny models that the tests use, for trials outside of pytest too."""

import os
import sys
from pathlib import Path

# Nothing is fetched, whatever a random name looks like.
os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from tiny_text_model import save_tiny, words

__all__ = ["save_tiny", "words"]
