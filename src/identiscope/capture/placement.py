"""Where a model's weights are to be, and whether they are anywhere at all."""

import torch
from torch import nn

from identiscope.capture.half_precision import check_half_precision
from identiscope.errors import ModelError
from identiscope.linalg.devices import has_float64
from identiscope.linalg.free_memory import check_free

DTYPES = ("float64", "float32", "float16", "bfloat16")


def available_devices() -> list[str]:
    """The devices of this machine that a model can be loaded to, by name."""
    devices = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    return [*devices, "mps"] if torch.backends.mps.is_available() else devices


def find_device(given: str | torch.device) -> torch.device:
    """The device meant: `auto` is the first of CUDA, Apple's `mps` and the CPU that is there."""
    if isinstance(given, str) and given == "auto":
        there = available_devices()
        return torch.device(next((name for name in ("cuda:0", "mps") if name in there), "cpu"))
    expected = f"there are {', '.join(available_devices())}, or auto for the best of them"
    try:
        device = torch.device(given)
        # Asking for a number is what only a device that is there can answer; `meta` holds none.
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        raise ModelError(f"device={str(given)!r} was given, which is not here; {expected}.") from error
    if device.type == "cpu" and device.index:  # torch takes any number for it, and means the one that there is
        raise ModelError(f"device={str(given)!r} was given, which is not here; {expected}.")
    return torch.device("cpu") if device.type == "cpu" else device


def kind_of_device(given: str | torch.device) -> str:
    """The kind of device meant, which may be on other machines only; one of them cannot be chosen by its number."""
    if given == "auto":
        return find_device("auto").type
    try:
        device = torch.device(given)
    except RuntimeError as error:
        raise ModelError(f"device={str(given)!r} was given; expected cpu, cuda, mps or auto.") from error
    if device.index is not None:
        raise ModelError(f"device={str(given)!r} was given; on a Ray cluster give {device.type!r}: Ray chooses which.")
    return device.type


def find_dtype(given: str | torch.dtype) -> torch.dtype:
    """The dtype meant, by its name or itself."""
    dtype = getattr(torch, given, None) if isinstance(given, str) and given in DTYPES else given
    if str(dtype).removeprefix("torch.") not in DTYPES or not isinstance(dtype, torch.dtype):
        raise ModelError(f"dtype={str(given)!r} was given; expected one of {', '.join(DTYPES)}.")
    return dtype


def find_analysis_device(given: str | torch.device) -> torch.device:
    """The device meant, if what a model computed can be worked on there."""
    device = find_device(given)
    if not has_float64(device):
        raise ModelError(f"analysis_device={str(given)!r} was given, which has no float64; give cpu.")
    return device


def device_of_worker(given: str | torch.device, number: int) -> torch.device:
    """The device of one of several workers: those of a kind that is named without a number are shared out."""
    device = find_device(given)
    if device.type in ("cpu", "mps") or (device.index is not None and given != "auto"):
        return device
    return torch.device(device.type, number % torch.get_device_module(device).device_count())


def check_dtype(dtype: torch.dtype, device: torch.device) -> None:
    """Refuse a dtype that the device does not compute in."""
    if device.type == "cpu":
        check_half_precision([dtype], f"dtype={str(dtype).removeprefix('torch.')!r}")
    try:
        torch.ones(1, 1, dtype=dtype, device=device) @ torch.ones(1, 1, dtype=dtype, device=device)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        name = str(dtype).removeprefix("torch.")
        raise ModelError(
            f"the device {device} does not compute in {name}. Give dtype=torch.float32, or device='cpu'."
        ) from error


def move(module: nn.Module, device: torch.device, name: str) -> nn.Module:
    """The module's weights moved to a device."""
    for dtype in {weight.dtype for weight in module.parameters()}:
        check_dtype(dtype, device)
    if device.type != "cpu":
        needed = sum(part.numel() * part.element_size() for part in (*module.parameters(), *module.buffers()))
        lower = "Give dtype='float16' or 'bfloat16', a smaller model, or device='cpu'."
        check_free(needed, device, f"moving {name}", lower, ModelError)
    try:
        return module.to(device)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ModelError(
            f"{name} cannot be moved to {device}: {' '.join(lines[:2])} If it is too large for it, give"
            " dtype=torch.float16 or torch.bfloat16, or device='cpu'."
        ) from error


def check_in_memory(module: nn.Module, name: str) -> None:
    """Refuse weights that are not in memory: what they hold cannot be read, and so not verified."""
    absent = [key for key, weight in module.named_parameters() if weight.device.type == "meta"]
    if not absent:
        return
    # accelerate leaves a hook on every module whose weights it brings in only while that module runs.
    hooks = (getattr(inner, "_hf_hook", None) for inner in module.modules())
    offloaded = any(getattr(hook, "offload", False) for hook in hooks)
    why = "is offloaded, to disk or to the CPU" if offloaded else "is on the meta device: it has a shape and no numbers"
    others = f", and so are {len(absent) - 1} others" if len(absent) > 1 else ""
    raise ModelError(
        f"the weight {absent[0]} of {name} {why}{others}. Load the model with from_pretrained and all weights in"
        " memory: on the CPU, on one device, or spread over several with a device_map that leaves nothing out."
    )
