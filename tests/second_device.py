"""A second device on a machine that has one: `torch.device("second:0")` and `"second:1"`, with the CPU's numbers.

Its tensors are plain tensors whose memory is the CPU's and whose label is not. So code that mixes devices, asks NumPy
to read a tensor of the device, or gives a CPU generator to it, fails here as it does on CUDA; and every time the CPU
waits for the device is counted:

>>> with second_device.in_use():
...     model.to("second:0")
...     with second_device.counted() as traffic:
...         identiscope.trace(model, "The cat sat.")
...     assert traffic.waits < 100, traffic.to_cpu

How it is made, and why:

- PyTorch leaves one device type, PrivateUse1, to whoever wants it. It can be named and given a guard and hooks from
  Python, once in a process and for good. Nothing changes for tensors of the CPU, so tests that do not use it do not
  notice; it is done when first asked for, in each process by itself (pytest-xdist).
- A tensor of that type over memory of the CPU: exported by DLPack, whose header names the device in two whole numbers,
  and imported again after these were changed. Both tensors then own the memory.
- Every operator that has a kernel for the CPU gets one here that passes the same memory to it. Operators without one
  are made of others, as on every device. PyTorch has composed versions of some that the CPU computes at once
  (layer_norm, add): they would be taken, with other roundings, were ours not registered operator by operator.
- Gradients run in a thread for each device, which Python can ask for only for one of them, and only before the first
  gradient of the process. In use, they run in the thread that asks for them.

What it does not show: rounding (CUDA sums in another order), speed, running out of memory, and the waits inside
`torch.linalg` on CUDA. Random numbers are those of the CPU's generator. `x.new_tensor` is always on `second:0`.
"""

import ctypes
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "second"
COUNT = 2
# The type by the name it has before it is given another, so that tests can speak of it before it is in use.
ZERO, ONE = torch.device("privateuseone", 0), torch.device("privateuseone", 1)

_aten = torch.ops.aten
_CPU_KERNEL = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
# Indices on the CPU into a tensor on the device are moved without a word, there as here.
_INDEXING = frozenset({"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"})
# A tensor without axes on the CPU may join a tensor on the device in these; and in whatever works number by number.
_WITH_CPU_SCALAR = _INDEXING | {"fill_", "masked_fill_", "masked_fill", "where"}

_CPUGenerator = torch.Generator
# A kernel is given another Python object for the same generator; the number of what lies below tells which it is.
_generators: WeakValueDictionary[int, Any] = WeakValueDictionary()


@dataclass
class Traffic:
    """How often numbers crossed between the devices, by operator."""

    to_cpu: Counter[str] = field(default_factory=Counter)
    to_device: Counter[str] = field(default_factory=Counter)
    between: Counter[str] = field(default_factory=Counter)

    @property
    def waits(self) -> int:
        """How often the CPU had to wait for the device: a number read, a copy, a shape that depends on numbers."""
        return self.to_cpu.total()


_watching: list[Traffic] = []
_without_float64 = False


@contextmanager
def counted() -> Iterator[Traffic]:
    """Count what crosses between the devices inside the block."""
    traffic = Traffic()
    _watching.append(traffic)
    try:
        yield traffic
    finally:
        _watching.remove(traffic)


@contextmanager
def in_use(*, float64: bool = True) -> Iterator[None]:
    """Inside the block the device can be used. float64=False: it has no float64, as Apple's has none."""
    global _without_float64
    _register()
    earlier, _without_float64 = _without_float64, not float64
    swap = torch.__future__.get_swap_module_params_on_conversion()
    # Else a module's weights become other parameters on the device, and weights that were one become two.
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        with (
            torch.autograd.set_multithreading_enabled(False),
            mock.patch.object(torch, "Generator", _Generator),
            mock.patch.object(torch.UntypedStorage, "clone", _clone_storage),
        ):
            yield
    finally:
        _without_float64 = earlier
        torch.__future__.set_swap_module_params_on_conversion(swap)


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _relabelled(tensor: Tensor, device: torch.device) -> Tensor:
    """The same memory under the name of another device."""
    capsule = torch._C._to_dlpack(tensor)
    # DLManagedTensor begins with the pointer to the numbers (8 bytes), then the kind and the number of the device.
    header = (ctypes.c_int32 * 2).from_address(_pointer(capsule, b"dltensor") + 8)
    header[:] = [1, 0] if device.type == "cpu" else [12, device.index]
    other = torch._C._from_dlpack(capsule)
    # DLPack does not keep the stride of an axis of one.
    same = other.stride() == tensor.stride()
    return other if same else _aten.as_strided.default.redispatch(_CPU_KERNEL, other, tensor.shape, tensor.stride())


def _on_cpu(tensor: Tensor) -> Tensor:
    """The tensor's numbers under the CPU's name; whether they are to be read as conjugate or negative is kept."""
    plain = _relabelled(tensor, torch.device("cpu"))
    plain = torch.conj(plain) if tensor.is_conj() else plain
    return torch._neg_view(plain) if tensor.is_neg() else plain


def _on_device(tensor: Tensor, device: torch.device) -> Tensor:
    if _without_float64 and tensor.dtype == torch.float64:
        raise TypeError(f"Cannot convert a tensor to float64: {NAME} does not support it. Use float32 instead.")
    return _relabelled(tensor.resolve_conj().resolve_neg(), device)


def _is_ours(value: Any) -> bool:
    return isinstance(value, Tensor) and value.device.type == NAME


def _count(kind: str, operator: str) -> None:
    for traffic in _watching:
        getattr(traffic, kind)[operator] += 1


def _device_of(operator: Any, values: list[Any]) -> torch.device:
    """The one device of all tensors and of `device=`; the errors are CUDA's."""
    asked = {value for value in values if isinstance(value, torch.device)}
    devices = asked | {value.device for value in values if _is_ours(value)}
    numbers = {device.index or 0 for device in devices if device.type == NAME}
    if len(numbers) > 1:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices,"
            f" {' and '.join(f'{NAME}:{number}' for number in sorted(numbers))}! ({operator})"
        )
    number = numbers.pop()
    if number >= COUNT:
        raise RuntimeError(f"invalid device ordinal: {NAME}:{number} ({COUNT} devices)")
    return torch.device(NAME, number)


def _leaves(value: Any) -> Iterator[Any]:
    """What an operator is given, out of the tuples, lists and mappings that it may be in."""
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from _leaves(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _leaves(part)
    else:
        yield value


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """The same tuples, lists and mappings of what the function makes of each.

    torch's own way knows more kinds, and takes longer than the kernels.
    """
    if isinstance(value, (tuple, list)):
        return type(value)([_mapped(function, part) for part in value])
    if isinstance(value, dict):
        return {key: _mapped(function, part) for key, part in value.items()}
    return function(value)


def _kernel(operator: Any) -> Callable[..., Any]:
    """The CPU's kernel of an operator, for tensors of the device."""
    schema, name = operator._schema, operator._schema.name.removeprefix("aten::")
    outputs = {argument.name for argument in schema.arguments if argument.is_out}
    # Python's numbers arrive as themselves where the operator has a tensor; then its other form is meant.
    tensors = [place for place, argument in enumerate(schema.arguments) if str(argument.type) == "Tensor"]
    scalars = name in _WITH_CPU_SCALAR or torch.Tag.pointwise in operator.tags
    # What depends on numbers rather than on shapes, the CPU must wait for; an index only if it is a mask.
    waits = bool({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(operator.tags))

    def check(value: Any, device: torch.device, indexed: bool) -> None:
        if isinstance(value, _CPUGenerator) and _address(value) not in _generators:
            raise RuntimeError(f"Expected a '{NAME}' device type for generator but found 'cpu'")
        if not isinstance(value, Tensor) or _is_ours(value):
            return
        if indexed and value.dtype in (torch.bool, torch.uint8, torch.int32, torch.int64):
            _count("to_device", name)
        elif not (scalars and value.dim() == 0):
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, {device} and"
                f" {value.device}! ({operator})"
            )

    def run(*args: Any, **kwargs: Any) -> Any:
        values = list(_leaves((args, kwargs)))
        device = _device_of(operator, values)
        for value in values:
            check(value, device, name in _INDEXING and _is_ours(args[0]))
        if waits and (name not in _INDEXING or any(getattr(v, "dtype", None) == torch.bool for v in values[1:])):
            _count("to_cpu", name)
        # A kernel returns what it was given where it writes in place: by this the tensor of the device is found again.
        given: dict[int, tuple[Tensor, Tensor]] = {}

        def lower(value: Any) -> Any:
            if not _is_ours(value):
                return torch.device("cpu") if isinstance(value, torch.device) else value
            lowered = _on_cpu(value)
            given[id(lowered)] = (value, lowered)
            return lowered

        def lift(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            return given[id(value)][0] if id(value) in given else _on_device(value, device)

        lowered = {key: value for key, value in kwargs.items() if key not in outputs}
        args, lowered = _mapped(lower, (args, lowered))
        # An `out=` may have to grow, which memory with two owners cannot: it is written afterwards.
        for key in outputs & kwargs.keys():
            lowered[key] = torch.empty(0, dtype=kwargs[key].dtype)
            given[id(lowered[key])] = (kwargs[key], lowered[key])
        as_number = any(isinstance(args[place], (int, float, complex)) for place in tensors if place < len(args))
        call = operator.overloadpacket if as_number else operator
        result = call(*args, **lowered)
        for key in outputs & kwargs.keys():
            _write(kwargs[key], lowered[key])
        return _mapped(lift, result)

    return run


def _write(out: Tensor, numbers: Tensor) -> None:
    if out.shape != numbers.shape:
        _put_storage(out, _on_device(numbers, out.device))
    else:
        _on_cpu(out).copy_(numbers)


def _put_storage(tensor: Tensor, source: Tensor) -> None:
    """Let `tensor` be `source`: its memory, shape and strides."""
    set_ = _aten.set_.source_Storage_storage_offset
    set_.redispatch(
        _CPU_KERNEL, tensor, source.untyped_storage(), source.storage_offset(), source.shape, source.stride()
    )


def _view_kernel(operator: Any) -> Callable[..., Any]:
    """A view asks for no number, and keeps the storage: the CPU's kernel makes one of any tensor."""
    return lambda *args, **kwargs: operator.redispatch(_CPU_KERNEL, *args, **kwargs)


def _makes_view(operator: Any) -> bool:
    aliases = [value.alias_info for value in operator._schema.returns if value.alias_info is not None]
    return operator._schema.name == "aten::set_" or any(not alias.is_write for alias in aliases)


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """Every copy that has the device at one end: `.to`, `.cpu()`, `.tolist()`, `copy_`, `torch.tensor(device=)`."""
    if not _is_ours(target):
        _count("to_cpu", "copy")
    elif not _is_ours(source):
        _count("to_device", "copy")
    elif source.device != target.device:
        _count("between", "copy")
    lowered = [_on_cpu(tensor) if _is_ours(tensor) else tensor for tensor in (source, target)]
    lowered[1].copy_(lowered[0])
    return target


def _resize_(tensor: Tensor, size: Any, memory_format: Any = None) -> Tensor:
    """Memory with two owners cannot grow: more of it is made, and the old numbers are copied."""
    if math.prod(size) * tensor.element_size() <= tensor.untyped_storage().nbytes():
        return _aten.resize_.default.redispatch(_CPU_KERNEL, tensor, size)
    larger = torch.empty(size, dtype=tensor.dtype, device=tensor.device)
    larger.view(-1)[: tensor.numel()] = tensor.reshape(-1)
    _put_storage(tensor, larger)
    return tensor


def _zeros(size: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
    """Forward-mode derivatives ask for zeros that have no memory at all; there is none to relabel."""
    return torch.zeros(size, dtype=dtype, device=device)


def _convolution_backward(gradient: Tensor, given: Tensor, weight: Tensor, *rest: Any) -> Any:
    """A convolution is the one operator that asks other devices by another name, without the size of the bias."""
    backward = _kernel(_aten.convolution_backward.default)
    return backward(gradient, given, weight, [gradient.shape[1]], *rest)


def _address(generator: Any) -> int:
    """Where it is in memory, by which the same generator is known from Python and from inside."""
    return generator._cdata


class _Generator(_CPUGenerator):
    """A generator that says where it is. (One of another device cannot be made from Python.)"""

    place: torch.device

    def __new__(cls, device: Any = "cpu") -> "_Generator":
        made: _Generator = super().__new__(cls, "cpu")  # type: ignore[call-arg]
        made.place = torch.device(device)
        if made.place.type == NAME:
            _generators[_address(made)] = made
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.place


_clone_cpu_storage = torch.UntypedStorage.clone


def _clone_storage(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """copy.deepcopy of a tensor asks for a storage without a tensor, which has to be allocated in C++."""
    if storage.device.type != NAME:
        return _clone_cpu_storage(storage)
    whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    return whole.clone().untyped_storage()


class _Module:
    """What `torch.second` has to answer."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return COUNT

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        """The numbers are drawn from the CPU's generator, which is seeded already."""


# Kept for the life of the process: what is registered goes with it.
_library: torch.library.Library | None = None


def _register() -> None:
    global _library
    if _library is not None:
        return
    _setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
    _library = torch.library.Library("aten", "IMPL")
    own = {
        "_copy_from": _copy_from,
        "resize_": _resize_,
        "_efficientzerotensor": _zeros,
        "convolution_overrideable": _kernel(_aten.convolution.default),
        "convolution_backward_overrideable": _convolution_backward,
    }
    for full in torch._C._dispatch_get_registrations_for_dispatch_key("CPU"):
        space, _, name = full.partition("::")
        if space != "aten" or name in own:
            continue
        packet, _, overload = name.partition(".")
        operator = getattr(getattr(_aten, packet), overload or "default")
        _library.impl(name, (_view_kernel if _makes_view(operator) else _kernel)(operator), "PrivateUse1")
    for name, function in own.items():
        _library.impl(name, function, "PrivateUse1")
    for bit in ("Conjugate", "Negative"):
        # A copy is what gives such a tensor numbers of its own: it must not ask for them first.
        _library.impl("_copy_from", torch.library.fallthrough_kernel, bit)
