"""Something to give a model when the user gives nothing: enough to see every attention site at work."""

from typing import Any

import torch

from identiscope.capture.limits import position_limit, vocabulary
from identiscope.capture.models import Model

TEXT = "The nurse told the doctor that she had found the keys, but nobody knew whose they were."

# Longer than the head width of every built-in model, so that there is something not to be identified.
PASSAGE = (
    "The lighthouse keeper wrote a letter to his sister every Sunday, although no ship had come to the island since the"
    " storm. He told her about the birds that nested under the lamp, about the bread he had burnt, and about the light"
    " itself, which he said was the only thing on the island that never slept. When the supply boat came at last, the"
    " captain took the letters, thirty of them, and asked why he had not simply waited and written one. The keeper"
    " thought about this for a while. Then he said that a letter is not the news it carries; it is the hour in which it"
    " was written, and he had wanted her to have the hours."
)


def sample_input(model: Model) -> tuple[Any, str]:
    """An input the model can take, and in words what it is."""
    if model.tokenizer is not None:
        return TEXT, f"the text {TEXT!r}"
    generator = torch.Generator().manual_seed(0)
    config, name = model.config, str(getattr(model.inner, "main_input_name", "input"))
    if name == "pixel_values":
        size = getattr(config, "image_size", 224)
        height, width = (size, size) if isinstance(size, int) else tuple(size)
        channels = int(getattr(config, "num_channels", 3))
        return torch.rand(channels, height, width, generator=generator), f"random pixels, {height}×{width}"
    if name == "input_features":
        frames = 2 * int(getattr(config, "max_source_positions", 100))
        return torch.randn(int(getattr(config, "num_mel_bins", 80)), frames, generator=generator), "random features"
    if name == "input_values":
        return torch.randn(8000, generator=generator), "half a second of noise"
    if name == "input_ids":
        length = min(24, position_limit(model) or 24)
        ids = torch.randint(0, vocabulary(model) or 100, (length,), generator=generator)
        return ids.tolist(), f"{length} random token ids"
    width = next((p.shape[-1] for p in model.module.parameters() if p.dim() > 1), 1)
    return torch.randn(24, width, generator=generator), f"24 random vectors of width {width}"
