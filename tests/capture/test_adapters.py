"""Adapters, hooks and wrappers on the output projection are part of what is captured, or refused by name."""

from collections.abc import Callable, Iterator
from functools import wraps
from types import MethodType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import families
import identiscope
import reference_attention
from identiscope.capture.watch import projection
from identiscope.linalg.agreement import TOLERANCES

try:
    import peft
except ImportError:
    peft = None  # type: ignore[assignment]

with_peft = pytest.mark.skipif(peft is None, reason="peft is not installed (it is in the extra `dev`)")

# Family, the attention block whose return value is the truth, and its output projection.
PLACES = {
    "Llama": ("model.layers.1.self_attn", "o_proj"),
    "GPT-2": ("transformer.h.1.attn", "c_proj"),
    "OPT": ("model.decoder.layers.1.self_attn", "out_proj"),
    # BERT's block ends in a residual and a norm: the truth is what its projection returns.
    "BERT": ("encoder.layer.1.attention.output.dense", r".*attention\.output\.dense"),
}


def tiny(family: str, dtype: torch.dtype = torch.float64) -> Any:
    return families.ALL[family].model().to(dtype)


def returned_by(model: nn.Module, name: str) -> Tensor:
    """What a module returns in a pass that nobody watches."""
    seen: list[Tensor] = []
    handle = model.get_submodule(name).register_forward_hook(
        lambda module, args, output: seen.append(output if isinstance(output, Tensor) else output[0])
    )
    with torch.no_grad():
        model(torch.tensor([families.TEXT]))
    handle.remove()
    return seen[-1][0].double()


def check(model: Any, block: str, dtype: torch.dtype = torch.float64, run: Any = None) -> identiscope.Site:
    """The capture against the block's own return value, through a literal sum over heads in NumPy."""
    trace = identiscope.trace(model if run is None else run, families.TEXT)
    assert trace.verify().verified
    site = trace.site(1)
    truth = returned_by(model, block)
    error = float((torch.from_numpy(reference_attention.block(site)[1]) - truth).abs().max() / truth.abs().max())
    assert error <= TOLERANCES[dtype]
    assert abs(error - site.verify().error) <= 1e-12 + 0.1 * error
    return site


def adapted(family: str, kind: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """A model with a random adapter on its output projections, and what peft has put around it."""
    target = PLACES[family][1]
    given: Any = {"target_modules": [target] if target.isidentifier() else target}
    configs: dict[str, Callable[[], Any]] = {
        "LoRA": lambda: peft.LoraConfig(r=4, **given),
        "DoRA": lambda: peft.LoraConfig(r=4, use_dora=True, **given),
        "IA3": lambda: peft.IA3Config(feedforward_modules=[], **given),
        "IA3 on its input": lambda: peft.IA3Config(feedforward_modules=given["target_modules"], **given),
        "merged": lambda: peft.LoraConfig(r=4, **given),
        # Turns what the layer reads, in a module of its own that holds no layer.
        "OFT": lambda: peft.OFTConfig(r=0, oft_block_size=4, **given),
        # Adds to what the layer returned in place.
        "AdaLoRA": lambda: peft.AdaLoraConfig(init_r=4, total_step=10, **given),
    }
    model = tiny(family, dtype)
    torch.manual_seed(1)
    around: Any = peft.get_peft_model(model, configs[kind]()).eval()
    with torch.no_grad():
        for name, parameter in around.named_parameters():
            if any(part in name for part in ("lora_A", "lora_B", "lora_E", "ia3", "oft_R")):
                parameter.normal_(std=0.5)
    if kind == "merged":
        around.merge_adapter()
    return model, around


KINDS = ["LoRA", "DoRA", "IA3", "IA3 on its input", "merged", "OFT", "AdaLoRA"]


@with_peft
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("family", "kind"),
    # peft's OFT knows no transformers.Conv1D.
    [(family, kind) for family in PLACES for kind in KINDS if (family, kind) != ("GPT-2", "OFT")],
)
@pytest.mark.filterwarnings("ignore:.*fan_in_fan_out.*")
def test_adapters_are_part_of_the_projection(family: str, kind: str, dtype: torch.dtype) -> None:
    plain = identiscope.trace(tiny(family, dtype), families.TEXT).site(1)
    model, _ = adapted(family, kind, dtype)
    site = check(model, PLACES[family][0], dtype)
    difference = (site.projection.double() - plain.projection.double()).abs().max() / plain.projection.abs().max()
    assert float(difference) > 0.1  # the adapter does something


@with_peft
@pytest.mark.parametrize("kind", ["VB-LoRA", "Lily"])
def test_the_softmax_of_an_adapter_is_no_attention(kind: str) -> None:
    given: Any = {"target_modules": ["q_proj", "v_proj"], "r": 2}
    plain, model = tiny("Llama"), tiny("Llama")
    mixed = lambda: peft.VBLoRAConfig(num_vectors=8, vector_length=8, topk=2, **given)  # noqa: E731
    torch.manual_seed(1)
    around = peft.get_peft_model(model, mixed() if kind == "VB-LoRA" else peft.LilyConfig(num_B=2, **given)).eval()
    with torch.no_grad():
        for parameter in around.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=0.5)
    site = check(model, PLACES["Llama"][0])
    before = identiscope.trace(plain, families.TEXT).site(1)
    assert float((site.attention(0) - before.attention(0)).abs().max()) > 0.01


@with_peft
def test_an_adapter_on_torch_s_own_attention() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True, dtype=torch.float64)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    around = peft.get_peft_model(model, peft.LoraConfig(target_modules=["self_attn"], r=4)).eval()
    with torch.no_grad():
        for name, parameter in around.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.3)
    x = torch.randn(1, 9, 32, dtype=torch.float64)
    trace = identiscope.trace(model, x)
    assert trace.verify().verified and trace.verify().error < 1e-12
    seen: list[Tensor] = []
    for number in range(2):  # torch's fused path, which it takes for layers without hooks, knows no adapters
        model.layers[number].self_attn.register_forward_hook(lambda module, args, output: seen.append(output[0]))
    with torch.no_grad():
        model(x)
    for site, truth in zip(trace.sites, seen, strict=True):
        assert torch.allclose(torch.from_numpy(reference_attention.block(site)[1]), truth[0], rtol=0, atol=1e-10)


# --- hooks


@pytest.mark.parametrize("family", PLACES)
def test_a_hook_behind_the_projection_is_part_of_it(family: str) -> None:
    block, name = PLACES[family]
    model = tiny(family)
    module = model.get_submodule(block if family == "BERT" else f"{block}.{name}")
    module.register_forward_hook(lambda module, args, output: output * 2 + 1)
    site = check(model, block)
    before = identiscope.trace(tiny(family), families.TEXT).site(1)
    assert torch.allclose(site.projection, 2 * before.projection)
    bias = 0.0 if before.projection_bias is None else before.projection_bias
    assert site.projection_bias is not None and torch.allclose(site.projection_bias, bias * 2 + torch.ones(32).double())


@pytest.mark.parametrize("family", ["Llama", "GPT-2", "OPT"])
def test_a_hook_on_the_attention_module_is_part_of_it(family: str) -> None:
    block = PLACES[family][0]
    model = tiny(family)
    model.get_submodule(block).register_forward_hook(lambda module, args, output: (output[0] * 2 + 1, *output[1:]))
    assert check(model, block).returned_by == block


def test_a_hook_on_torch_s_own_attention_is_part_of_it() -> None:
    torch.manual_seed(0)
    model = nn.MultiheadAttention(32, 4, batch_first=True, dtype=torch.float64)
    model.register_forward_hook(lambda module, args, output: (output[0] * 3 - 1, output[1]))
    x = torch.randn(1, 7, 32, dtype=torch.float64)
    trace = identiscope.trace(model, x)
    with torch.no_grad():
        truth = model(x, x, x)[0][0]
    assert torch.allclose(torch.from_numpy(reference_attention.block(trace.site(0))[1]), truth, rtol=0, atol=1e-12)
    assert trace.verify().error < 1e-12


def test_a_hook_before_the_projection_is_part_of_it() -> None:
    model = tiny("Llama")
    model.model.layers[1].self_attn.o_proj.register_forward_pre_hook(lambda module, args: (args[0] * 3,))
    check(model, "model.layers.1.self_attn")


def test_hooks_with_keyword_arguments_run_too() -> None:
    model = tiny("Llama")

    def double(module: Any, args: Any, kwargs: Any, output: Any) -> Any:
        assert "hidden_states" in kwargs
        return (output[0] * 2, *output[1:])

    model.model.layers[1].self_attn.register_forward_hook(double, with_kwargs=True)
    check(model, "model.layers.1.self_attn")


def test_plain_models_and_hooks_that_only_look_cost_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    def tried(*args: Any) -> None:
        raise AssertionError("tried")

    monkeypatch.setattr(projection.Projection, "_compose", tried)
    for family in families.ALL:
        assert identiscope.trace(families.ALL[family].model(), families.ALL[family].inputs()).sites
    model, looks = tiny("Llama"), []
    model.model.layers[1].self_attn.o_proj.register_forward_hook(
        lambda module, args, output: looks.append(output.shape)
    )
    identiscope.trace(model, families.TEXT)
    assert looks == [(1, 12, 32)]


# --- what is no affine map is refused, by name


class Bottleneck(nn.Module):
    """An adapter with an activation in it."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base, self.down, self.up = base, nn.Linear(32, 2).double(), nn.Linear(2, 32).double()

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.base(x) + self.up(torch.relu(self.down(x)))
        return made


def with_bottleneck(model: Any) -> None:
    attention = model.model.layers[1].self_attn
    attention.o_proj = Bottleneck(attention.o_proj)


def on_projection(hook: Callable[[Tensor], Tensor]) -> Callable[[Any], None]:
    def put(model: Any) -> None:
        model.model.layers[1].self_attn.o_proj.register_forward_hook(lambda module, args, output: hook(output))

    return put


def add_to_the_last(output: Tensor) -> Tensor:
    return torch.cat([output[:, :-1], output[:, -1:] + 1], 1)


def around_attention(model: Any) -> None:
    class Doubled(nn.Module):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__()
            self.inner = attention

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output = self.inner(*args, **kwargs)
            return (output[0] * 2, *output[1:])

    model.model.layers[1].self_attn = Doubled(model.model.layers[1].self_attn)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("change", "name"),
    [
        (with_bottleneck, r"o_proj \(Bottleneck\)"),
        (on_projection(torch.tanh), r"o_proj \(Linear\)"),
        (on_projection(add_to_the_last), r"o_proj \(Linear\)"),
        (on_projection(lambda output: output + torch.rand_like(output)), r"o_proj \(Linear\)"),
        (around_attention, r"self_attn \(Doubled\)"),
    ],
    ids=["bottleneck", "tanh", "last position", "noise", "wrapper"],
)
def test_what_is_not_affine_is_refused_by_name(change: Any, name: str, dtype: torch.dtype) -> None:
    model = tiny("Llama")
    change(model)
    with pytest.raises(identiscope.CaptureError, match=rf"layers\.1\.self_attn.*{name}"):
        identiscope.trace(model.to(dtype), families.TEXT)


# --- behind a residual or a norm that the attention block holds, nobody else may change what it returns

# Family, an attention block that holds a residual, and what of it may be replaced.
RESIDUALS = {
    "BERT": "encoder.layer.1.attention",
    "ESM": "encoder.layer.0.attention.output",
    "T5": "encoder.block.1.layer.0",
    "ALBERT": "albert.encoder.albert_layer_groups.0.albert_layers.0.attention",
    "XLNet": "transformer.layer.0.rel_attn",
}


def doubled(output: Any) -> Any:
    return output * 2 if isinstance(output, Tensor) else (output[0] * 2, *output[1:])


def double_in_place(module: Any, args: Any, output: Any) -> None:
    (output if isinstance(output, Tensor) else output[0]).mul_(2)


class Around(nn.Module):
    """Stands in the place of another module and changes what it returns, or does not."""

    def __init__(self, inner: nn.Module, change: Callable[[Any], Any]) -> None:
        super().__init__()
        self.inner, self.change = inner, change

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.change(self.inner(*args, **kwargs))


def put_around(model: nn.Module, place: str, change: Callable[[Any], Any]) -> None:
    parent, _, name = place.rpartition(".")
    setattr(model.get_submodule(parent), name, Around(model.get_submodule(place), change))


def replace_forward(model: nn.Module, place: str) -> None:
    module = model.get_submodule(place)
    before = module.forward
    module.forward = lambda *args, **kwargs: doubled(before(*args, **kwargs))


CHANGES: dict[str, Callable[[nn.Module, str], Any]] = {
    "hook": lambda model, place: model.get_submodule(place).register_forward_hook(lambda *all: doubled(all[-1])),
    "in place": lambda model, place: model.get_submodule(place).register_forward_hook(double_in_place),
    "wrapper": lambda model, place: put_around(model, place, doubled),
    "forward": replace_forward,
}


@pytest.mark.parametrize("way", CHANGES)
@pytest.mark.parametrize("family", RESIDUALS)
def test_a_change_behind_the_residual_of_an_attention_block_is_refused_by_name(family: str, way: str) -> None:
    model, place = families.ALL[family].model(), RESIDUALS[family]
    CHANGES[way](model, place)
    with pytest.raises(identiscope.CaptureError, match=rf"{place} \("):
        identiscope.trace(model, families.ALL[family].inputs())


@pytest.mark.parametrize("family", RESIDUALS)
def test_who_only_looks_at_an_attention_block_changes_nothing(family: str) -> None:
    plain = identiscope.trace(families.ALL[family].model(), families.ALL[family].inputs())
    model = families.ALL[family].model()
    model.get_submodule(RESIDUALS[family]).register_forward_hook(lambda *all: None)
    put_around(model, RESIDUALS[family], lambda output: output)
    seen = identiscope.trace(model, families.ALL[family].inputs())
    assert seen.verify().verified and len(seen.sites) == len(plain.sites)
    for one, other in zip(plain.sites, seen.sites, strict=True):
        assert torch.equal(one.projection, other.projection)


def test_a_hook_at_one_place_of_a_long_text_is_refused() -> None:
    model = tiny("Llama")

    def patch(module: Any, args: Any, output: Tensor) -> Tensor:
        changed = output.clone()
        changed[:, 50:51] = 1.0  # more places than are tried, and none of them
        return changed

    model.model.layers[1].self_attn.o_proj.register_forward_hook(patch)
    with pytest.raises(identiscope.CaptureError, match="no affine map that is the same for all positions"):
        identiscope.trace(model, list(range(20, 80)))


def test_what_a_hook_writes_in_place_is_part_of_the_map() -> None:
    for name in ("model.layers.0.self_attn", "model.layers.0.self_attn.o_proj"):
        model = tiny("Llama")
        model.get_submodule(name).register_forward_hook(double_in_place)
        trace = identiscope.trace(model, families.TEXT)
        assert trace.verify().error < 1e-12
        assert torch.allclose(
            trace.site(0).projection, 2 * identiscope.trace(tiny("Llama"), families.TEXT).site(0).projection
        )


def test_a_layer_may_be_steered_behind_its_attention() -> None:
    model = tiny("BERT")
    model.get_submodule("encoder.layer.0").register_forward_hook(lambda *all: doubled(all[-1]))
    assert identiscope.trace(model, families.TEXT).verify().verified


# --- a container of torch's is no architecture: linear as a whole, or refused


def within(family: str, make: Callable[[nn.Module], nn.Module]) -> Any:
    """A tiny model with something else where its projection was."""
    block, name = {"Llama": PLACES["Llama"], "BERT": ("encoder.layer.1.attention.output", "dense")}[family]
    model = tiny(family)
    parent = model.get_submodule(block)
    setattr(parent, name, make(getattr(parent, name)).double().eval())
    return model


@pytest.mark.parametrize("family", ["Llama", "BERT"])
@pytest.mark.parametrize(
    "make",
    [
        lambda base: nn.Sequential(base, nn.GELU()),
        lambda base: nn.Sequential(base, nn.LayerNorm(32)),
        lambda base: nn.Sequential(nn.Sequential(base, nn.Tanh())),
        lambda base: nn.Sequential(nn.GELU(), base),
        lambda base: nn.Sequential(nn.Linear(32, 64), nn.GLU()),
    ],
    ids=["GELU", "LayerNorm", "nested", "before", "GLU"],
)
def test_a_container_that_is_not_linear_is_refused_by_name(make: Any, family: str) -> None:
    with pytest.raises(identiscope.CaptureError, match=r"(o_proj|dense)(\.0)? \(Sequential\) makes of it is no affine"):
        identiscope.trace(within(family, make), families.TEXT)


@pytest.mark.parametrize("family", ["Llama", "BERT"])
def test_a_container_of_linear_maps_is_followed(family: str) -> None:
    torch.manual_seed(1)
    model = within(
        family, lambda base: nn.Sequential(base, nn.Identity(), nn.Linear(32, 4), nn.Dropout(), nn.Linear(4, 32))
    )
    check(model, {"Llama": "model.layers.1.self_attn", "BERT": "encoder.layer.1.attention.output.dense"}[family])


# --- a forward that is not the class's own may do anything with what the modules inside return

Replaced = Callable[[nn.Module, Callable[[Any], Any], pytest.MonkeyPatch], None]


def by_function(module: nn.Module, change: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    before = module.forward
    module.forward = lambda *args, **kwargs: change(before(*args, **kwargs))


def by_method(module: nn.Module, change: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    before: Any = type(module).forward

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return change(before(self, *args, **kwargs))

    module.forward = MethodType(forward, module)


def for_the_class(module: nn.Module, change: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    before: Any = type(module).forward

    @wraps(before)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        made = before(self, *args, **kwargs)
        return change(made) if self is module or vars(self).get("_identiscope_original") is module else made

    monkeypatch.setattr(type(module), "forward", forward)


def by_accelerate(module: nn.Module, change: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = pytest.importorskip("accelerate.hooks", reason="the hooks are accelerate's")

    class Changing(hooks.ModelHook):  # type: ignore[misc,name-defined]
        def post_forward(self, module: nn.Module, output: Any) -> Any:
            return change(output)

    hooks.add_hook_to_module(module, Changing())


def on_all_modules(module: nn.Module, change: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    vars(module)["is_meant"] = True  # which its copies say as well

    def hook(one: nn.Module, args: Any, output: Any) -> Any:
        return change(output) if hasattr(one, "is_meant") else None

    _GLOBAL.append(nn.modules.module.register_module_forward_hook(hook))


_GLOBAL: list[Any] = []


@pytest.fixture
def global_hooks() -> Iterator[None]:
    yield
    while _GLOBAL:
        _GLOBAL.pop().remove()


WAYS: dict[str, Replaced] = {
    "function": by_function,
    "method": by_method,
    "class": for_the_class,
    "accelerate": by_accelerate,
    "all modules": on_all_modules,
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("global_hooks")
def test_a_replaced_forward_of_the_attention_is_refused_by_name(
    way: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("Llama", dtype)
    attention = model.model.layers[1].self_attn
    WAYS[way](attention, lambda output: (output[0] * 2, *output[1:]), monkeypatch)
    with pytest.raises(identiscope.CaptureError, match=r"layers\.1\.self_attn \(LlamaAttention\) around it returns"):
        identiscope.trace(model, families.TEXT)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("global_hooks")
def test_a_replaced_forward_of_the_projection_is_followed_or_refused(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(change: Callable[[Any], Any], patch: pytest.MonkeyPatch) -> Any:
        model = tiny("Llama")
        WAYS[way](model.model.layers[1].self_attn.o_proj, change, patch)
        return model

    with monkeypatch.context() as patch:
        check(changed(lambda output: output * 2 + 1, patch), "model.layers.1.self_attn")
        while _GLOBAL:
            _GLOBAL.pop().remove()
    with pytest.raises(identiscope.CaptureError, match=r"o_proj \(Linear\) makes of it is no affine map"):
        identiscope.trace(changed(torch.tanh, monkeypatch), families.TEXT)


@pytest.mark.parametrize("family", ["Llama", "BERT", "XLNet"])
def test_accelerate_s_own_hooks_change_nothing(family: str) -> None:
    accelerate = pytest.importorskip("accelerate", reason="device maps are accelerate's")
    model = families.ALL[family].model()
    before = identiscope.trace(model, families.ALL[family].inputs())
    accelerate.dispatch_model(model, {"": "cpu"}, force_hooks=True)
    assert any("forward" in vars(module) for module in model.modules())
    after = identiscope.trace(model, families.ALL[family].inputs())
    for one, other in zip(before.sites, after.sites, strict=True):
        assert torch.equal(one.projection, other.projection) and one.returned_by == other.returned_by


def test_a_linear_adapter_of_one_s_own_is_followed() -> None:
    class Adapted(nn.Module):
        def __init__(self, base: nn.Module) -> None:
            super().__init__()
            self.base, self.down, self.up = base, nn.Linear(32, 2).double(), nn.Linear(2, 32).double()

        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = self.base(x) + self.up(self.down(x))
            return made

    model = tiny("Llama")
    attention = model.model.layers[1].self_attn
    attention.o_proj = Adapted(attention.o_proj)
    check(model, "model.layers.1.self_attn")


def test_two_readers_that_no_module_joins_are_refused() -> None:
    class SelfAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            y = nn.functional.scaled_dot_product_attention(x, x, x)
            return torch.cat([self.one(y), self.other(y)], -1)

    with pytest.raises(identiscope.CaptureError, match="two linear layers read the attention output"):
        identiscope.trace(SelfAttention().double(), torch.randn(1, 5, 8, dtype=torch.float64))


def test_a_norm_behind_one_s_own_projection_is_not_part_of_it() -> None:
    class Output(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = self.norm(self.dense(x))
            return made

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = Output()

        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = self.out(nn.functional.scaled_dot_product_attention(x, x, x))
            return made

    torch.manual_seed(0)
    trace = identiscope.trace(Block().double(), torch.randn(1, 5, 8, dtype=torch.float64))
    assert trace.verify().error < 1e-12
    assert trace.site(0).returned_by == "out.dense"


# --- what peft puts around a model


@with_peft
def test_a_peft_model_has_states_and_logits_and_can_be_proved() -> None:
    model, around = adapted("Llama", "LoRA", torch.float64)
    check(model, "model.layers.1.self_attn", run=around)
    trace, inner = identiscope.trace(around, families.TEXT), identiscope.trace(model, families.TEXT)
    assert trace.logits is not None and inner.logits is not None
    assert torch.equal(trace.logits, inner.logits)
    assert len(trace.hidden_states) == 3
    for one, other in zip(trace.hidden_states, inner.hidden_states, strict=True):
        assert torch.equal(one, other)
    torch.testing.assert_close(trace.replay(trace.embeddings)[-1], trace.hidden_states[-1])
    other_map = trace.site(1).attention(0).roll(1, 0).tril()
    other_map /= other_map.sum(-1, keepdim=True)
    proof = identiscope.prove(around, families.TEXT, 1, 0, other_map, check=False)
    moved = proof.sel(map=["alternative", "random"])
    assert bool((moved.hidden_states > 0).all() and (moved.logits > 0).all()) and not bool(proof.same)


@with_peft
@pytest.mark.filterwarnings("ignore:.*fan_in_fan_out.*")
def test_a_batch_of_a_peft_model_gives_what_each_text_gives_alone() -> None:
    _, around = adapted("GPT-2", "LoRA", torch.float64)
    both = identiscope.trace(around, [families.TEXT, families.TEXT[:5]])
    alone = identiscope.trace(around, families.TEXT[:5])
    for one, other in zip(both[1].sites, alone.sites, strict=True):
        assert torch.allclose(one.attentions(), other.attentions(), rtol=0, atol=1e-12)


@with_peft
def test_virtual_tokens_are_refused() -> None:
    config = peft.PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM")
    around: Any = peft.get_peft_model(tiny("Llama"), config)
    with pytest.raises(identiscope.ModelError, match=r"PromptTuningConfig.*virtual tokens"):
        identiscope.load(around)


@with_peft
def test_an_adapter_that_wraps_the_attention_module_is_refused() -> None:
    config = peft.AdaptionPromptConfig(adapter_len=3, adapter_layers=1, task_type="CAUSAL_LM")
    around: Any = peft.get_peft_model(tiny("Llama", torch.float32), config).eval()
    with torch.no_grad():
        for name, parameter in around.named_parameters():
            if "adaption" in name:
                parameter.fill_(0.5)
    with pytest.raises(identiscope.CaptureError, match="AdaptedAttention"):
        identiscope.trace(around, families.TEXT)


@with_peft
def test_the_same_map_changes_no_bit_under_an_adapter() -> None:
    model, _ = adapted("Llama", "LoRA", torch.float64)
    trace = identiscope.trace(model, families.TEXT)
    same = identiscope.substitute(model, families.TEXT, {(1, 2): lambda attention: attention})
    assert torch.equal(same.hidden_states[-1], trace.hidden_states[-1])
