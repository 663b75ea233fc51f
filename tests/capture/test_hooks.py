"""Hooks and adapters inside an attention block, whoever put them there and whatever they ask: followed, or refused."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import pytest
import torch
from torch import Tensor, nn

import families
import identiscope
import reference_attention

# Family: what reads the input of the second layer and what reads that plus what attention adds; what stands between the
# output projection and where the block returns it; the projection of the values.
PLACES = {
    "GPT-2": ("transformer.h.1.ln_1", "transformer.h.1.ln_2", "transformer.h.1.attn.resid_dropout", ""),
    "BERT": (
        "encoder.layer.1.attention",
        "encoder.layer.1.attention.output.LayerNorm",
        "encoder.layer.1.attention.output.dropout",
        "encoder.layer.1.attention.self.value",
    ),
    "T5": ("encoder.block.1.layer.0", "encoder.block.1.layer.1", "encoder.block.1.layer.0.dropout", ""),
    "Llama": (
        "model.layers.1.input_layernorm",
        "model.layers.1.post_attention_layernorm",
        "",
        "model.layers.1.self_attn.v_proj",
    ),
}


def added(model: nn.Module, family: str) -> Tensor:
    """What attention adds to the residual of the second layer, in a pass that nobody watches."""
    seen: dict[str, Tensor] = {}

    def keep(name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        seen[name] = (args[0] if args else kwargs["hidden_states"]).clone()

    handles = [
        model.get_submodule(PLACES[family][place]).register_forward_pre_hook(partial(keep, name), with_kwargs=True)
        for place, name in enumerate(("before", "after"))
    ]
    given = families.ALL[family].inputs()
    with torch.no_grad():
        model(**given) if isinstance(given, dict) else model(torch.tensor([given]))
    for handle in handles:
        handle.remove()
    return (seen["after"] - seen["before"])[0]


def check(model: nn.Module, family: str) -> identiscope.Site:
    """The capture against what attention adds in the running model, through a literal sum over heads in NumPy."""
    trace = identiscope.trace(model, families.ALL[family].inputs())
    assert trace.verify().verified
    site = next(site for site in trace.sites if site.layer == 1)
    truth = added(model, family)
    made = torch.from_numpy(reference_attention.block(site)[1])
    assert float((made - truth).abs().max() / truth.abs().max()) <= 1e-12
    return site


def double_in_place(output: Tensor) -> None:
    output.mul_(2)


AFFINE: dict[str, Callable[[Tensor], Tensor | None]] = {
    "scaled and moved": lambda output: output * 2 + 1,
    "channels turned around": lambda output: output.flip(-1),
    "in place": double_in_place,
}
BETWEEN = ["GPT-2", "BERT", "T5"]


@pytest.mark.parametrize("change", AFFINE.values(), ids=AFFINE.keys())
@pytest.mark.parametrize("family", BETWEEN)
def test_a_hook_between_the_projection_and_the_end_of_the_block_is_followed(
    family: str, change: Callable[[Tensor], Tensor | None]
) -> None:
    model, place = families.ALL[family].model(), PLACES[family][2]
    before = check(model, family)
    model.get_submodule(place).register_forward_hook(lambda module, args, output: change(output))
    site = check(model, family)
    assert not torch.allclose(site.projection, before.projection)
    assert site.verify().compared_with == site.returned_by


@pytest.mark.parametrize("family", BETWEEN)
def test_a_hook_on_what_comes_into_it_is_followed(family: str) -> None:
    model, place = families.ALL[family].model(), PLACES[family][2]
    model.get_submodule(place).register_forward_pre_hook(lambda module, args: (args[0] * 3,))
    check(model, family)


@pytest.mark.parametrize("change", [torch.tanh, lambda output: output.roll(1, 1)], ids=["tanh", "other positions"])
@pytest.mark.parametrize("family", BETWEEN)
def test_one_that_is_not_affine_is_refused_by_name(family: str, change: Callable[[Tensor], Tensor]) -> None:
    model, place = families.ALL[family].model(), PLACES[family][2]
    model.get_submodule(place).register_forward_hook(lambda module, args, output: change(output))
    with pytest.raises(identiscope.CaptureError, match=rf"{place} \(Dropout\) makes of it is no affine map"):
        identiscope.trace(model, families.ALL[family].inputs())


class Adapter(nn.Module):
    """Houlsby's: a bottleneck beside the identity."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.down, self.activation, self.up = nn.Linear(32, 16), activation, nn.Linear(16, 32)
        self.double()
        for parameter in self.parameters():
            nn.init.normal_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = x + self.up(self.activation(self.down(x)))
        return made


class Scaled(nn.Module):
    """An adapter without weights of two axes or parts of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 0.5


WAYS: dict[str, Callable[[nn.Module, nn.Module], nn.Module]] = {
    "in its place": lambda dropout, adapter: adapter,
    "behind it": nn.Sequential,
    "behind it, and more": lambda dropout, adapter: nn.Sequential(dropout, adapter, nn.Linear(32, 32).double()),
}


def put(model: nn.Module, family: str, way: str, adapter: nn.Module) -> str:
    parent, _, name = PLACES[family][2].rpartition(".")
    setattr(model.get_submodule(parent), name, WAYS[way](model.get_submodule(PLACES[family][2]), adapter))
    return PLACES[family][2]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("family", BETWEEN)
def test_an_adapter_between_them_is_followed_or_refused(family: str, way: str) -> None:
    torch.manual_seed(2)
    for adapter in (Adapter(nn.Identity()), Scaled()):
        model = families.ALL[family].model()
        put(model, family, way, adapter)
        check(model, family)
    model = families.ALL[family].model()
    place = put(model, family, way, Adapter(nn.ReLU()))
    with pytest.raises(identiscope.CaptureError, match=rf"{place}(\.1)? \(Adapter\) makes of it is no affine map"):
        identiscope.trace(model, families.ALL[family].inputs())


@pytest.mark.parametrize("family", BETWEEN)
def test_hooks_that_only_look_change_nothing(family: str) -> None:
    plain = check(families.ALL[family].model(), family)
    model = families.ALL[family].model()
    for module in model.modules():
        module.register_forward_hook(lambda module, args, output: None)
        module.register_forward_pre_hook(lambda module, args: None)
    site = check(model, family)
    assert torch.equal(site.projection, plain.projection) and site.returned_by == plain.returned_by


class Normed(nn.Module):
    """An attention of the user's own architecture that norms what its projection returns."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(32, 32) for _ in range(4))
        self.after = nn.Sequential(nn.LayerNorm(32), nn.Dropout())

    def forward(self, x: Tensor) -> Tensor:
        parts = (map_(x).unflatten(-1, (4, 8)).transpose(1, 2) for map_ in (self.q_proj, self.k_proj, self.v_proj))
        made: Tensor = self.after(
            self.o_proj(nn.functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))
        )
        return made


class NormedAttention(Normed):
    """The same by a name that says what it is."""


@pytest.mark.parametrize("kind", [Normed, NormedAttention])
def test_the_norm_of_an_architecture_of_ones_own_is_no_change_of_others(kind: type[Normed]) -> None:
    torch.manual_seed(0)
    model = kind().double().eval()
    x = torch.randn(1, 7, 32, dtype=torch.float64)
    plain = identiscope.trace(model, x)
    model.after[0].register_forward_hook(lambda module, args, output: None)
    model.after[0].register_forward_pre_hook(lambda module, args: None)
    site = identiscope.trace(model, x).site(0)
    assert site.verify().verified and site.returned_by == plain.site(0).returned_by
    assert torch.equal(site.projection.flatten(0, 1), model.o_proj.weight.T)


# --- which module a hook was called for

_WANTED: nn.Module | None = None


def is_wanted(module: nn.Module) -> bool:
    return module is _WANTED


class Bound:
    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def change(self, module: nn.Module, args: Any, output: Tensor) -> Any:
        return output * 2 if module is self.model.get_submodule(PLACES["Llama"][3]) else None


def of_table(model: nn.Module, wanted: nn.Module) -> Any:
    names = {module: name for name, module in model.named_modules()}
    return lambda module, args, output: output * 2 if names[module] == PLACES["Llama"][3] else None


def of_weak_table(model: nn.Module, wanted: nn.Module) -> Any:
    factors = WeakKeyDictionary({wanted: 2})
    return lambda module, args, output: output * factors[module] if module in factors else None


def of_numbers(model: nn.Module, wanted: nn.Module) -> Any:
    names = {id(module): name for name, module in model.named_modules()}
    return lambda module, args, output: output * 2 if names[id(module)] == PLACES["Llama"][3] else None


def of_an_argument(model: nn.Module, wanted: nn.Module) -> Any:
    def change(wanted: nn.Module, module: nn.Module, args: Any, output: Tensor) -> Any:
        return output * 2 if module is wanted else None

    return partial(change, wanted)


ASKING: dict[str, Callable[[nn.Module, nn.Module], Any]] = {
    "closure": lambda model, wanted: lambda module, args, output: output * 2 if module is wanted else None,
    "table": of_table,
    "weak table": of_weak_table,
    "ids": of_numbers,
    "argument": of_an_argument,
    "method": lambda model, wanted: Bound(model).change,
    "function around it": lambda model, wanted: lambda module, args, out: out * 2 if is_wanted(module) else None,
}


@pytest.fixture
def llama() -> Iterator[nn.Module]:
    global _WANTED
    model: nn.Module = families.ALL["Llama"].model()
    _WANTED = model.get_submodule(PLACES["Llama"][3])
    yield model
    _WANTED = None


@pytest.mark.parametrize("asking", ASKING)
def test_a_hook_that_asks_for_a_module_of_the_users_meets_it(llama: nn.Module, asking: str) -> None:
    assert _WANTED is not None
    before = check(llama, "Llama")
    hook = ASKING[asking](llama, _WANTED)
    for module in llama.modules():
        module.register_forward_hook(hook)
    site = check(llama, "Llama")
    assert torch.allclose(site.value, 2 * before.value)


def test_any_other_is_given_the_module_that_runs(llama: nn.Module) -> None:
    llama.train()
    met: list[bool] = []
    llama.get_submodule(PLACES["Llama"][3]).register_forward_hook(
        lambda module, args, output: met.append(module.training)
    )
    identiscope.trace(llama, families.TEXT)
    assert met and not any(met)  # the copy, in evaluation


def test_one_for_all_modules_of_torch_that_asks_is_refused(llama: nn.Module) -> None:
    wanted = _WANTED
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, args, output: output * 2 if module is wanted else None
    )
    try:
        with pytest.raises(identiscope.ModelError, match=r"a hook on all modules of torch .* refers to modules of"):
            identiscope.trace(llama, families.TEXT)
    finally:
        handle.remove()


# --- the bias inside the values


@pytest.mark.parametrize("family", ["BERT", "Llama"])
def test_a_bias_in_values_that_a_hook_wrote_into_is_not_told(family: str) -> None:
    model, place = families.ALL[family].model(), PLACES[family][3]
    assert check(model, family).value_bias is not None
    model.get_submodule(place).register_forward_hook(lambda module, args, output: output.add_(1))
    assert check(model, family).value_bias is None
