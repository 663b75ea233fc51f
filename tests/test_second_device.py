"""The second device that other tests stand on: it computes what the CPU computes, and refuses what CUDA refuses."""

import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import second_device
from families import FAMILIES, TEXT
from second_device import ONE, ZERO

F = nn.functional


@pytest.fixture(autouse=True)
def in_use() -> Iterator[None]:
    # Torch has a fused attention for the CPU, and none for a device it does not know.
    with second_device.in_use(), sdpa_kernel(SDPBackend.MATH):
        yield


def given(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def moved(value: Any, device: torch.device) -> Any:
    return torch.utils._pytree.tree_map_only(Tensor, lambda tensor: tensor.to(device), value)


def assert_same(one: Any, other: Any, tolerance: float = 0.0) -> None:
    """Equal bit for bit, or to a tolerance, wherever they are."""
    left, right = torch.utils._pytree.tree_leaves(one), torch.utils._pytree.tree_leaves(other)
    assert len(left) == len(right) > 0
    for a, b in zip(left, right, strict=True):
        if isinstance(a, Tensor):
            assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
            torch.testing.assert_close(
                a.detach().cpu(), b.detach().cpu(), rtol=tolerance, atol=tolerance, equal_nan=True
            )
        else:
            assert a == b


def spd(x: Tensor) -> Tensor:
    return x @ x.mT + 4 * torch.eye(x.shape[-2], dtype=x.dtype, device=x.device)


def written(x: Tensor) -> Tensor:
    y = x.clone()
    y[1:, ::2] += 3
    y[0] = y[1]
    y[:, [0, 2]] *= 2
    y[y > 2] = -1.0
    y.mul_(2).clamp_(-3, 3)
    y.select(1, 3).zero_()
    return y


# Functions of one matrix [5, 7] that have a derivative.
SMOOTH: dict[str, Callable[[Tensor], Any]] = {
    "arithmetic": lambda x: (x * 2 + x / 3 - x.pow(2) + torch.rsqrt(x.abs() + 1)).exp().log1p(),
    "reductions": lambda x: (x.sum(0), x.mean(1), x.std(1), x.norm(dim=1), x.logsumexp(1), x.cumsum(0)),
    "extremes": lambda x: (x.max(1).values, x.amin(0), x.topk(3).values, x.sort(1, descending=True).values),
    "products": lambda x: (x @ x.mT, torch.einsum("ij,kj->ik", x, x), torch.outer(x[0], x[1]), torch.kron(x, x)),
    "batched products": lambda x: torch.baddbmm(x[None], x[None] @ x.mT, x[None]),
    "addmm": lambda x: torch.addmm(x[0], x, x.mT @ x),
    "softmax": lambda x: (x.softmax(1), x.log_softmax(0), F.softmax(x.masked_fill(x > 1, -torch.inf), 1)),
    "layer_norm": lambda x: F.layer_norm(x, (7,), x[0], x[1]),
    "activations": lambda x: (F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), x.tanh(), x.erf(), F.relu(x)),
    "views": lambda x: (x[1:, ::2].T, x.reshape(7, 5), x.unflatten(1, (7, 1)), x.diagonal(), x[2:], x.expand(2, 5, 7)),
    "unfold": lambda x: x.unfold(1, 3, 2),
    "view of a view": lambda x: x[1:, 2:].as_strided((2, 3), (7, 1), 9) + x[2:][1:, 3:6].T.contiguous().T[:2],
    "joining": lambda x: (torch.cat([x, x[:2]]), torch.stack([x, x], 1), x.repeat(2, 1), x.repeat_interleave(2, 0)),
    "padding": lambda x: (F.pad(x, (1, 2)), x.roll(1, 0), x.flip(1), x.tril(1), x.triu()),
    "picking": lambda x: (x[[0, 3]], x[:, torch.tensor([1, 1], device=x.device)], x.take_along_dim(x.argsort(1), 1)),
    "gather": lambda x: (
        x.gather(1, torch.zeros(5, 2, dtype=torch.long, device=x.device)),
        x.index_select(0, x.new_zeros(2).long()),
    ),
    "scatter": lambda x: (
        torch.zeros_like(x).index_add(0, torch.tensor([0, 0, 1, 2, 3], device=x.device), x),
        torch.zeros_like(x).scatter_add(1, x.argsort(1), x),
        x.scatter(1, x.argsort(1), x * 2),
        x.index_copy(0, torch.tensor([1], device=x.device), x[:1] * 3),
    ),
    "masking": lambda x: (x[x > 0], x.masked_select(x < 0), torch.where(x > 0, x, torch.tensor(0.0, device=x.device))),
    "writing": written,
    "qr": lambda x: torch.linalg.qr(x.mT),
    "svd": lambda x: torch.linalg.svd(x, full_matrices=False)[1],
    "eigh": lambda x: torch.linalg.eigh(spd(x))[0],
    "cholesky": lambda x: torch.linalg.cholesky(spd(x)),
    "solve": lambda x: (torch.linalg.solve(spd(x), x), torch.linalg.inv(spd(x)), torch.linalg.pinv(x)),
    "triangular": lambda x: torch.linalg.solve_triangular(torch.linalg.cholesky(spd(x)), x, upper=False),
    "cholesky_solve": lambda x: torch.cholesky_solve(x, torch.linalg.cholesky(spd(x))),
    "least squares": lambda x: torch.linalg.lstsq(x.mT, x.mT[:, :2]).solution,
    "lu": lambda x: torch.linalg.lu_factor(spd(x))[0],
    "norms": lambda x: (torch.linalg.norm(x), torch.linalg.matrix_norm(x), torch.linalg.vector_norm(x, dim=1)),
    "determinants": lambda x: (torch.linalg.det(spd(x)), torch.linalg.slogdet(spd(x))[1]),
    "embedding": lambda x: F.embedding(torch.tensor([[0, 4], [1, 1]], device=x.device), x),
    "linear": lambda x: F.linear(x[None], x, x[:, 0]),
    "convolution": lambda x: F.conv1d(x[None], x[:, None, :3].expand(5, 5, 3)),
    "cross entropy": lambda x: F.cross_entropy(x, torch.tensor([0, 1, 2, 3, 4], device=x.device)),
    "distances": lambda x: (F.cosine_similarity(x, x.flip(0)), F.pairwise_distance(x, x.flip(1))),
    "dtypes": lambda x: x.float().double() + x.to(torch.float32).pow(2).to(x),
    "attention": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], is_causal=True),
}


# What has no derivative, or need not have one.
PLAIN: dict[str, Callable[[Tensor], Any]] = {
    "half": lambda x: (x.half() @ x.half().mT, x.bfloat16().softmax(1), F.layer_norm(x.half(), (7,)), x.half().sum(0)),
    "whole numbers": lambda x: (x.long() // 2, x.long() % 3, x.int() << 1, x.argmax(1), x.long().unique()),
    "truth": lambda x: (x > 0, (x > 0).any(1), (x > 0) & (x < 1), ~(x > 0), torch.isfinite(x).all(), x.isnan().any()),
    "nonzero": lambda x: ((x > 0).nonzero(), torch.nonzero(x > 0, as_tuple=True), (x > 0).sum(), x.count_nonzero()),
    "order": lambda x: (x.argsort(0), x.kthvalue(2, 1), x.median(1), torch.searchsorted(x[0].sort().values, x[1])),
    "factories": lambda x: [
        torch.eye(4, device=x.device),
        torch.arange(3, 9, 2, device=x.device),
        torch.linspace(0, 1, 5, device=x.device),
        torch.full((2,), 3.5, device=x.device),
        torch.ones_like(x),
        x.new_zeros(3),
        torch.tensor([[1, 2]], device=x.device),
        torch.zeros(2, 3, dtype=torch.bool, device=x.device),
        torch.tril_indices(3, 3, device=x.device),
        torch.as_tensor(np.arange(3.0), device=x.device),
        torch.empty_like(x).fill_(2),
        torch.empty_strided((2, 3), (1, 2), device=x.device).zero_(),
    ],
    "out": lambda x: [
        torch.add(x, 1, out=torch.empty(0, dtype=x.dtype, device=x.device)),
        torch.matmul(x, x.mT, out=torch.empty(5, 5, dtype=x.dtype, device=x.device)),
        torch.mul(x, 2, out=torch.empty(7, 5, dtype=x.dtype, device=x.device).T),
        torch.cat([x, x], out=x.new_empty(0)),
        torch.sort(x, out=(x.new_empty(0), x.new_empty(0, dtype=torch.long))),
        torch.linalg.qr(x, out=(x.new_empty(0), x.new_empty(0))),
    ],
    "random": lambda x: [
        torch.randn(4, generator=torch.Generator(x.device).manual_seed(1), device=x.device),
        torch.rand(4, generator=torch.Generator(x.device).manual_seed(1), device=x.device),
        torch.randperm(9, generator=torch.Generator(x.device).manual_seed(1), device=x.device),
        torch.randint(9, (5,), generator=torch.Generator(x.device).manual_seed(1), device=x.device),
        torch.empty(5, device=x.device).normal_(generator=torch.Generator(x.device).manual_seed(1)),
        torch.multinomial(x.abs(), 3, generator=torch.Generator(x.device).manual_seed(1)),
    ],
    "complex": lambda x: (
        torch.fft.rfft(x),
        torch.linalg.eig(x @ x.mT + x[:, :5])[0].conj() * 2,
        torch.view_as_real(x.to(torch.cfloat)),
    ),
    "full svd": lambda x: torch.linalg.svd(x),
    "rank": lambda x: (torch.linalg.matrix_rank(x), torch.linalg.svdvals(x), torch.linalg.cholesky_ex(x @ x.mT).info),
    "empty": lambda x: (x[:0], x[:0].sum(0), torch.cat([x[:0], x]), x[:, :0] @ x[:, :0].mT, x[:0].clone()),
    "no axes": lambda x: (x.sum(), x[0, 0], x.max() + 1, torch.tensor(2.0, device=x.device) * x[0, 1]),
    "numbers": lambda x: [
        x.sum().item(),
        x[0].tolist(),
        bool((x > 0).any()),
        float(x[0, 0]),
        int(x[1, 1]),
        torch.equal(x, x),
        torch.allclose(x, x + 1),
    ],
    "cdist": lambda x: torch.cdist(x, x * 2),
    "resize": lambda x: x.clone().resize_(3, 2),
    "foreach": lambda x: torch._foreach_add([x, x[0]], 1.0),
    "triangle": lambda x: torch.ones(4, 4, dtype=torch.bool, device=x.device).tril().expand(2, 4, 4),
    "uneven": lambda x: [
        *x.split([2, 3]),
        *x.chunk(3, 1),
        *x.unbind(0),
        x.squeeze(),
        x[:, None],
        x.movedim(0, 1),
        x.view(-1),
    ],
}

BOTH = SMOOTH | PLAIN
# The CPU does not give the same bits twice here: LAPACK's routine depends on how its work space lies in memory.
UNSTEADY = {"least squares": 1e-12}


@pytest.mark.parametrize("device", [ZERO, ONE], ids=["0", "1"])
@pytest.mark.parametrize("name", BOTH)
def test_every_operation_gives_the_cpu_s_numbers_and_stays_on_the_device(name: str, device: torch.device) -> None:
    x = given(5, 7)
    expected, found = BOTH[name](x.clone()), BOTH[name](x.to(device))
    assert_same(found, expected, UNSTEADY.get(name, 0.0))
    tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(found) if isinstance(leaf, Tensor)]
    assert {tensor.device for tensor in tensors} <= {device}


def scalar(name: str, x: Tensor) -> Tensor:
    """A number that depends on all that a function returns, each part with weights of its own."""
    total = x.new_zeros(())
    for place, part in enumerate(torch.utils._pytree.tree_leaves(SMOOTH[name](x))):
        if part.is_floating_point():
            weights = torch.arange(part.numel(), device=part.device).add(place).cos().reshape(part.shape)
            total = total + (part * weights).sum()
    return total


@pytest.mark.parametrize("device", [ZERO, ONE], ids=["0", "1"])
@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_are_the_cpu_s(name: str, device: torch.device) -> None:
    here, there = given(5, 7).requires_grad_(), given(5, 7).to(device).requires_grad_()
    scalar(name, here).backward()
    scalar(name, there).backward()
    assert here.grad is not None and there.grad is not None and bool(here.grad.any())
    assert there.grad.device == device
    assert_same(there.grad, here.grad, UNSTEADY.get(name, 0.0))


@pytest.mark.parametrize("name", SMOOTH)
def test_forward_mode_derivatives_are_the_cpu_s(name: str) -> None:
    x, tangent = given(5, 7), given(5, 7, seed=1)
    expected = torch.func.jvp(lambda x: scalar(name, x), (x,), (tangent,))
    found = torch.func.jvp(lambda x: scalar(name, x), (x.to(ZERO),), (tangent.to(ZERO),))
    assert float(expected[1]) != 0
    assert_same(found, expected, UNSTEADY.get(name, 0.0))


@pytest.mark.parametrize(
    "name", [name for name in SMOOTH if name not in ("masking", "writing", "unfold", "view of a view")]
)
def test_vmap_jacrev_and_jacfwd_are_the_cpu_s(name: str) -> None:
    x = given(3, 5, 7)
    function = lambda x: scalar(name, x)  # noqa: E731
    for transformed in (torch.func.vmap(function), torch.func.vmap(torch.func.grad(function))):
        assert_same(transformed(x.to(ZERO)), transformed(x), UNSTEADY.get(name, 0.0))
    for transformed in (torch.func.jacrev(function), torch.func.jacfwd(function)):
        assert_same(transformed(x[0].to(ZERO)), transformed(x[0]), UNSTEADY.get(name, 0.0))


def test_second_derivatives_and_derivatives_through_a_move() -> None:
    def function(x: Tensor) -> Tensor:
        return (F.layer_norm(x, (7,)).tanh() @ x.mT).pow(3).sum()

    assert_same(torch.func.hessian(function)(given(5, 7).to(ONE)), torch.func.hessian(function)(given(5, 7)))

    x = given(5, 7).requires_grad_()
    (function(x.to(ZERO)).cpu() + function(x.to(ONE)).cpu() + function(x.to(ZERO).to(ONE)).to(ZERO).cpu()).backward()
    y = given(5, 7).requires_grad_()
    (function(y) + function(y) + function(y)).backward()
    assert_same(x.grad, y.grad, 1e-13)


@pytest.mark.parametrize(
    ("name", "implementation"),
    [
        ("BERT", "eager"),
        ("BERT", "sdpa"),
        ("Llama", "eager"),
        ("Llama", "sdpa"),
        ("T5", "sdpa"),
        ("DeBERTa-v2", "eager"),
    ],
)
def test_a_model_computes_the_same_and_learns_the_same(name: str, implementation: str) -> None:
    model = FAMILIES[name].model()
    model.set_attn_implementation(implementation)
    arguments = FAMILIES[name].inputs()
    arguments = {"input_ids": torch.tensor([TEXT])} if isinstance(arguments, list) else arguments
    there = copy.deepcopy(model).to(ONE)
    expected, found = model(**arguments)[0], there(**moved(arguments, ONE))[0]
    assert found.device == ONE
    assert_same(found, expected)
    expected.pow(2).sum().backward()
    found.pow(2).sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    assert_same([parameter.grad for parameter in there.parameters()], gradients)
    optimisers = [torch.optim.AdamW(one.parameters(), lr=0.1) for one in (model, there)]
    for optimiser in optimisers:
        optimiser.step()
    assert_same([*there.parameters()], [*model.parameters()])


def test_a_whole_step_of_torch_s_own_transformer() -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 24, batch_first=True, dropout=0.0), 2).double()
    there = copy.deepcopy(model).to(ZERO)
    x = given(2, 6, 16)
    for train in (True, False):
        model.train(train)
        there.train(train)
        with torch.set_grad_enabled(train):
            assert_same(there(x.to(ZERO)), model(x))


MIXED: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda device, cpu: device + cpu,
    "sum, the other way": lambda device, cpu: cpu + device,
    "in place": lambda device, cpu: cpu.add_(device),
    "product": lambda device, cpu: device @ cpu.mT,
    "cat": lambda device, cpu: torch.cat([cpu, device]),
    "stack": lambda device, cpu: torch.stack([device, cpu]),
    "where": lambda device, cpu: torch.where(device > 0, device, cpu),
    "condition": lambda device, cpu: torch.where(cpu > 0, device, device),
    "mask": lambda device, cpu: device.masked_fill(cpu > 0, 0.0),
    "a mask of the device": lambda device, cpu: cpu[device > 0],
    "an index of the device": lambda device, cpu: cpu[device[0].argsort()[:2]],
    "writing": lambda device, cpu: device.__setitem__(slice(None), cpu) or device + cpu,
    "values of an index": lambda device, cpu: device.__setitem__([0, 1], cpu[:2]),
    "gather": lambda device, cpu: device.gather(0, cpu.argsort(0)),
    "index_add": lambda device, cpu: device.index_add(0, torch.arange(5), device),
    "solve": lambda device, cpu: torch.linalg.solve(spd(device), cpu),
    "layer_norm": lambda device, cpu: F.layer_norm(device, (7,), cpu[0]),
    "linear": lambda device, cpu: F.linear(device, cpu),
    "embedding": lambda device, cpu: F.embedding(torch.tensor([1]), device),
    "equal": lambda device, cpu: torch.equal(device, cpu),
    "allclose": lambda device, cpu: torch.allclose(device, cpu),
    "a number of the device": lambda device, cpu: cpu * device.sum(),
    "out": lambda device, cpu: torch.add(device, 1, out=cpu),
    "generator": lambda device, cpu: torch.randn(3, generator=torch.Generator(), device=device.device),
}


@pytest.mark.parametrize("name", MIXED)
def test_tensors_of_two_devices_do_not_mix(name: str) -> None:
    cpu = given(5, 7)
    with pytest.raises((RuntimeError, IndexError), match=r"same device|device type"):
        MIXED[name](cpu.to(ZERO), cpu.clone())
    if name not in ("generator", "writing"):
        with pytest.raises((RuntimeError, IndexError), match="same device"):
            MIXED[name](cpu.to(ZERO), cpu.to(ONE))


def test_what_cuda_lets_pass_passes() -> None:
    cpu, device = given(5, 7), given(5, 7).to(ZERO)
    number = torch.tensor(2.5, dtype=torch.float64)
    assert_same(device * number, cpu * 2.5)
    assert_same(torch.where(device > 0, device, number), torch.where(cpu > 0, cpu, 2.5))
    assert_same(device.masked_fill(device > 0, number), cpu.masked_fill(cpu > 0, 2.5))
    with second_device.counted() as traffic:
        assert_same(device[torch.tensor([0, 2])], cpu[[0, 2]])
    assert traffic.to_device["index"] == 1
    other = device.clone()
    other[0] = number
    other[1] = cpu[1]
    assert_same(other[:2], torch.stack([torch.full_like(cpu[0], 2.5), cpu[1]]))


def test_numpy_does_not_read_the_device() -> None:
    tensor = given(3).to(ZERO)
    for read in (lambda: tensor.numpy(), lambda: np.asarray(tensor), lambda: np.array([tensor, tensor])):
        with pytest.raises(TypeError, match="can't convert second:0 device type tensor to numpy"):
            read()
    with pytest.raises((TypeError, BufferError, RuntimeError)):
        np.from_dlpack(tensor)


def test_there_are_two_of_them() -> None:
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.zeros(2, device="second:2")
    assert torch.zeros(2, device="second").device == ZERO
    moving = given(3).to(ZERO)
    with second_device.counted() as traffic:
        assert_same(moving.to(ONE), given(3))
    assert traffic.between.total() == 1


WAITS: dict[str, tuple[Callable[[Tensor], Any], int]] = {
    "item": (lambda x: x[0, 0].item(), 1),
    "float": (lambda x: float(x.max()), 1),
    "bool": (lambda x: bool((x > 0).any()), 1),
    "if": (lambda x: 1 if x[0, 0] > 0 else 2, 1),
    "tolist": (lambda x: x.tolist(), 1),
    "cpu": (lambda x: x.cpu(), 1),
    "to": (lambda x: x.to("cpu", torch.float32), 1),
    "copy_": (lambda x: torch.empty(5, 7, dtype=x.dtype).copy_(x), 1),
    "nonzero": (lambda x: (x > 0).nonzero(), 1),
    "mask": (lambda x: x[x > 0], 1),
    "unique": (lambda x: x.long().unique(), 1),
    "equal": (lambda x: torch.equal(x, x.clone()), 1),
    "iteration over numbers": (lambda x: [float(one) for one in x[0]], 7),
    "arithmetic": (lambda x: (x @ x.mT).softmax(1).sum(), 0),
    "views and indices": (lambda x: x[1:, [0, 2]].T.reshape(-1)[:3], 0),
    "a mask that is filled": (lambda x: x.masked_fill(x > 0, 0.0), 0),
    "factories": (lambda x: torch.arange(5, device=x.device) + torch.zeros(5, device=x.device), 0),
    "shapes": (lambda x: (x.shape[0], len(x), x.numel(), x.device, x.is_contiguous()), 0),
}


@pytest.mark.parametrize("name", WAITS)
def test_every_wait_for_the_device_is_counted(name: str) -> None:
    function, waits = WAITS[name]
    x = given(5, 7).to(ZERO)
    with second_device.counted() as outer, second_device.counted() as traffic:
        function(x)
    assert traffic.waits == waits and outer.to_cpu == traffic.to_cpu
    with second_device.counted() as after:
        pass
    assert after.waits == 0


def test_what_comes_from_the_cpu_is_counted_too() -> None:
    with second_device.counted() as traffic:
        torch.tensor([1.0, 2.0], device=ZERO)
        given(3).to(ZERO)
        torch.zeros(3, device=ZERO).copy_(torch.ones(3))
    assert (traffic.waits, traffic.to_device.total()) == (0, 3)


def test_a_device_without_float64() -> None:
    with second_device.in_use(float64=False):
        for make in (
            lambda: torch.zeros(2, dtype=torch.float64, device=ZERO),
            lambda: torch.zeros(2, device=ZERO).double(),
            lambda: given(2).to(ZERO),
        ):
            with pytest.raises(TypeError, match="float64"):
                make()
        assert_same(given(2).float().to(ZERO).sum(), given(2).float().sum())
    assert torch.zeros(2, device=ZERO).double().dtype == torch.float64


def test_memory_lives_as_long_as_a_tensor_of_it() -> None:
    base = torch.arange(12.0).to(ZERO).reshape(3, 4)
    view, detached = base[1:].T, base.detach()
    base.mul_(2)
    expected = torch.arange(12.0).reshape(3, 4) * 2
    assert_same(view, expected[1:].T)
    assert base._version == view._version and view.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    del base
    torch.zeros(1000)
    assert_same(detached, expected)
    copied = copy.deepcopy({"one": detached, "two": view})
    detached.zero_()
    assert_same(copied, {"one": expected, "two": expected[1:].T})


def test_an_in_place_change_that_spoils_a_gradient_is_noticed() -> None:
    x = given(3).to(ZERO).requires_grad_()
    y = x.exp()
    y[0] = 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_tensors_of_the_cpu_notice_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    assert generator.device.type == "cpu" and isinstance(transformers.__version__, str)
    assert torch.empty(2).device.type == "cpu" and torch.get_default_device().type == "cpu"
    found: list[Any] = []

    def gradient() -> None:
        x = given(3).requires_grad_()
        (x * x).sum().backward()
        found.append(x.grad)

    threads = [threading.Thread(target=gradient) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_same(found, [given(3) * 2] * 2)
