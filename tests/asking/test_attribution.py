"""Results of attribution from model and text to figure: labels, encoder and decoder, files, figures and plots."""

import copy
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
import transformers
import xarray as xr

import families
import identiscope
import null_models
from identiscope.asking.attribution_intervals import attribution_intervals
from identiscope.asking.maps import mean_attention_maps
from identiscope.capture.blocks import find_blocks
from identiscope.errors import CaptureError, InputError
from identiscope.methods.mixtures.hidden_token_attribution import hidden_token_attribution
from identiscope.papers.brunner2020 import attribution_figures as figures
from identiscope.papers.brunner2020.attribution_claims import attribution_claims
from identiscope.papers.brunner2020.tokens.tags import token_tags
from identiscope.results import load_result, save_result
from identiscope.views.plots import attribution as plots
from identiscope.views.tables.attribution import print_attribution

matplotlib.use("Agg")
TEXT = ("The nurse told the doctor.", "She had found the keys.")


def attribution(model: Any, text: Any, **options: Any) -> xr.Dataset:
    return identiscope.hidden_token_attribution(identiscope.trace(model, text), **options)


@pytest.fixture(scope="module")
def result(minilm: identiscope.Model) -> xr.Dataset:
    return attribution(minilm, TEXT, mode="estimate", probes=8)


def test_result_is_labelled(result: xr.Dataset) -> None:
    assert result["contribution"].dims == ("layer", "input", "output")
    assert result["layer"].values.tolist() == [0, 1, 2, 3, 4, 5]
    assert result["output_token"].values[:3].tolist() == ["[CLS]", "the", "nurse"]
    assert result.attrs["path"] == "blocks" and result.attrs["complete"] and result.attrs["probes"] == 8
    np.testing.assert_allclose(result["contribution"].sum("input"), 1)
    assert float(result["contribution_error"].min()) > 0


def test_result_goes_on_from_a_file(result: xr.Dataset, minilm: identiscope.Model, tmp_path: Path) -> None:
    kept = load_result(save_result(result, tmp_path / "part.safetensors"))
    assert kept.attrs == result.attrs
    on = attribution(minilm, TEXT, mode="estimate", probes=16, resume=kept)
    straight = attribution(minilm, TEXT, mode="estimate", probes=16)
    np.testing.assert_allclose(on["contribution"], straight["contribution"], rtol=1e-12)
    np.testing.assert_allclose(on["contribution_error"], straight["contribution_error"], rtol=1e-9)
    with pytest.raises(InputError, match="expected one of hidden_token_attribution"):
        attribution(minilm, TEXT, mode="estimate", resume=figures.self_contributions(result))


@pytest.mark.parametrize("stops", [(2, 8), (3, 9, 17), (8, 9), (5, 16, 34, 41)])
def test_wherever_it_stopped_a_result_goes_on_to_what_it_is_at_once(
    minilm: identiscope.Model, tmp_path: Path, stops: tuple[int, ...]
) -> None:
    """Within a round and at its end, below the number of groups that are kept apart and above, and from a file."""
    trace, on = identiscope.trace(minilm, TEXT[0]), None
    for probes in stops:
        found = identiscope.hidden_token_attribution(trace, mode="estimate", probes=probes, resume=on)
        on = load_result(save_result(found, tmp_path / f"{probes}.safetensors"))
    once = identiscope.hidden_token_attribution(trace, mode="estimate", probes=stops[-1])
    assert on is not None and "sum_anchor" in once and set(once.variables) == set(on.variables)
    # Probes of a round are pushed in other parts, and so rounded to float32 otherwise; what is left of the anchored
    # layer, whose norms are known, is rounding alone.
    for name in once.data_vars:
        allowed = 1e-5 if once[name].dtype.kind == "f" else 0
        parts = (on[name], once[name])
        here, there = (part.sel(layer=slice(1, None)) if "layer" in part.dims else part for part in parts)
        np.testing.assert_allclose(here, there, rtol=allowed, atol=allowed * float(abs(there).max()), err_msg=str(name))
    np.testing.assert_allclose(on["norm"].sel(layer=0), once["norm"].sel(layer=0), rtol=1e-6)
    assert float(abs(on["norm_error"].sel(layer=0)).max()) < 1e-4 * float(on["norm"].sel(layer=0).max())


def test_a_result_of_anything_else_is_not_resumed(
    result: xr.Dataset, minilm: identiscope.Model, tmp_path: Path
) -> None:
    """Same sizes, other numbers: taken up, they would be wrong by more than a half, and end with an error of 0.0 %."""
    kept = load_result(save_result(result, tmp_path / "part.safetensors"))
    options: dict[str, Any] = {"mode": "estimate", "probes": 16, "resume": kept}
    other = ("The doctor told the nurse.", "She had lost the books.")
    assert len(identiscope.trace(minilm, other).tokens) == result.sizes["input"]
    with pytest.raises(InputError, match=r"another text \(there: [0-9a-f]{12}…, now: [0-9a-f]{12}…\)"):
        attribution(minilm, other, **options)
    with pytest.raises(InputError, match=r"another input \(there: embeddings, now: embedding_sum\)"):
        attribution(minilm, TEXT, input="embedding_sum", **options)
    with pytest.raises(InputError, match="another seed"):
        attribution(minilm, TEXT, seed=3, **options)
    with pytest.raises(InputError, match="another composed"):
        attribution(minilm, TEXT, fast=False, **options)
    changed = identiscope.load(copy.deepcopy(minilm.module), minilm.tokenizer)
    with torch.no_grad():
        changed.module.get_parameter("encoder.layer.2.output.dense.weight").data[0, 0] += 1e-4
    with pytest.raises(InputError, match=r"another model \(its weights, adapters or hooks\)"):
        attribution(changed, TEXT, **options)
    for name in ("model_digest", "text_digest"):
        with pytest.raises(InputError, match="there: unknown"):
            attribution(minilm, TEXT, mode="estimate", resume=kept.assign_attrs({name: ""}))
    with pytest.raises(InputError, match="version of identiscope"):
        attribution(minilm, TEXT, mode="estimate", resume=kept.drop_vars("first_response"))


def test_a_model_that_was_changed_since_the_trace_is_not_followed(minilm: identiscope.Model) -> None:
    model = identiscope.load(copy.deepcopy(minilm.module), minilm.tokenizer)
    traced = identiscope.trace(model, "The cat sat.")
    _ = traced.replay  # verified before the change
    model.module.get_parameter("encoder.layer.2.output.dense.weight").data.mul_(1.5)
    for fast in (True, False):
        with pytest.raises(CaptureError, match="changed since this trace"):
            identiscope.hidden_token_attribution(traced, mode="estimate", probes=2, fast=fast)


def test_intervals_of_a_result_are_those_of_the_method(result: xr.Dataset, minilm: identiscope.Model) -> None:
    found = attribution_intervals(result, 0.9)
    traced = identiscope.trace(minilm, TEXT)
    options: dict[str, Any] = {"mode": "estimate", "probes": 8, "blocks": find_blocks(traced).blocks}
    method = hidden_token_attribution(traced.replay, traced.embeddings, **options)
    for name, interval in (("contribution", method.interval(0.9)), ("norm", method.norm_interval(0.9))):
        for end, bound in zip(("low", "high"), interval, strict=True):
            np.testing.assert_allclose(found[f"{name}_{end}"], bound, rtol=1e-9)
    with pytest.raises(InputError, match="level"):
        attribution_intervals(result, 95)


def moe(name: str) -> Any:
    """Tiny, in float32, with the kernels that transformers chooses."""
    shared = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    shared |= {"num_key_value_heads": 2, "intermediate_size": 24, "max_position_embeddings": 32}
    own: dict[str, dict[str, Any]] = {
        "Mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
        "Qwen2Moe": {
            "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
            "shared_expert_intermediate_size": 12, "decoder_sparse_step": 1,
        },
        "DeepseekV3": {
            "moe_intermediate_size": 12, "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2,
            "n_shared_experts": 1, "first_k_dense_replace": 1, "q_lora_rank": 8, "kv_lora_rank": 8,
            "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8,
        },
    }  # fmt: skip
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**shared, **own[name])
    model = getattr(transformers, f"{name}Model")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
    return model


@pytest.mark.parametrize("name", ["Mixtral", "Qwen2Moe", "DeepseekV3"])
def test_experts_as_they_are_loaded_are_what_differences_say(name: str) -> None:
    """Central differences in float64, of the model called as transformers calls it."""
    model, ids = moe(name), [1, 5, 9, 30]
    kept, attributes = model.config.to_dict(), [set(vars(module)) for module in model.modules()]
    found = attribution(model, ids)
    few = attribution(model, ids, mode="estimate", probes=16)
    assert model.config._experts_implementation == "grouped_mm" and model.config.to_dict() == kept
    assert [set(vars(module)) for module in model.modules()] == attributes
    np.testing.assert_allclose(few["norm"], found["norm"], rtol=1e-4)
    other = copy.deepcopy(model).double()
    other.set_experts_implementation("eager")
    for module in other.modules():
        if type(module).__name__.endswith("RMSNorm"):  # it computes in float32, whatever it is given

            def forward(x: torch.Tensor, module: Any = module) -> torch.Tensor:
                return module.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + module.variance_epsilon)

            module.forward = forward
    x, step = other.get_input_embeddings()(torch.tensor([ids])).detach(), 1e-3
    squares = np.zeros((2, len(ids), len(ids)))
    with torch.no_grad():
        for token in range(len(ids)):
            for channel in range(16):
                moved = torch.zeros_like(x)
                moved[0, token, channel] = step
                one, two = (
                    other(inputs_embeds=given, output_hidden_states=True, use_cache=False).hidden_states
                    for given in (x + moved, x - moved)
                )
                for layer in (1, 2):
                    slope = (one[layer][0] - two[layer][0]) / (2 * step)
                    squares[layer - 1, token] += slope.square().sum(-1).numpy()
    np.testing.assert_allclose(found["norm"], np.sqrt(squares), atol=1e-4 * np.sqrt(squares.max()))
    assert abs(found["norm"].values[:, :, -1]).min() > 0.01  # there is something to agree on


@pytest.mark.parametrize("name", ["T5", "BART"])
def test_decoder_states_come_from_encoder_and_decoder(name: str) -> None:
    family = families.ALL[name]
    found = attribution(family.model(), family.inputs())
    inputs, outputs = found.sizes["input"], found.sizes["output"]
    assert (inputs, outputs) == (12 + 7, 7) and found.attrs["stream"] == "decoder"
    trace = identiscope.trace(family.model(), family.inputs())
    replay = trace.replay
    streams = {stream: trace.streams[stream].embeddings for stream in ("encoder", "decoder")}

    def last(encoder: torch.Tensor, decoder: torch.Tensor) -> torch.Tensor:
        return replay({"encoder": encoder, "decoder": decoder})["decoder"][-1]

    jacobians = torch.func.jacrev(last, argnums=(0, 1))(streams["encoder"], streams["decoder"])
    norms = torch.cat([part.square().sum((1, 3)).sqrt().T for part in jacobians]).detach()
    # T5's norm computes in float32, whatever the model's precision.
    tolerance = 1e-8 if name == "BART" else 1e-5
    np.testing.assert_allclose(found["norm"].values[-1], norms, rtol=tolerance, atol=tolerance)
    later = np.tril(np.ones((outputs, outputs), bool), -1)
    assert not found["contribution"].values[:, 12:][:, later].any()
    assert float(found["contribution"][:, :12].min()) > 0
    encoder = attribution(family.model(), family.inputs(), stream="encoder")
    assert encoder.sizes["input"] == encoder.sizes["output"] == 12


def test_t5_in_float64_is_what_jacrev_says() -> None:
    family = families.ALL["T5"]
    model = family.model()
    for module in model.modules():
        if type(module).__name__ == "T5LayerNorm":

            def forward(x: torch.Tensor, module: Any = module) -> torch.Tensor:
                return module.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + module.variance_epsilon)

            module.forward = forward
    found = attribution(model, family.inputs())
    replay = identiscope.trace(model, family.inputs()).replay
    trace = identiscope.trace(model, family.inputs())
    both = [trace.streams[name].embeddings for name in ("encoder", "decoder")]
    for layer in (1, 2):
        jacobians = torch.func.jacrev(
            lambda e, d, layer=layer: replay({"encoder": e, "decoder": d})["decoder"][layer], argnums=(0, 1)
        )(*both)
        norms = torch.cat([part.square().sum((1, 3)).sqrt().T for part in jacobians]).detach()
        np.testing.assert_allclose(found["norm"].values[layer - 1], norms, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["ViT", "Wav2Vec2"])
def test_inputs_that_are_no_text(name: str) -> None:
    family = families.ALL[name]
    found = attribution(family.model(), family.inputs())
    np.testing.assert_allclose(found["contribution"].sum("input"), 1)


def test_slow_and_fast_path_and_the_sum_of_embeddings(minilm: identiscope.Model) -> None:
    options: dict[str, Any] = {"mode": "estimate", "probes": 4, "norm": "ones"}
    fast = attribution(minilm, "The cat sat.", **options)
    slow = attribution(minilm, "The cat sat.", fast=False, **options)
    assert (fast.attrs["path"], slow.attrs["path"]) == ("blocks", "replay")
    np.testing.assert_allclose(fast["norm"], slow["norm"], rtol=1e-3, atol=1e-3)
    summed = attribution(minilm, "The cat sat.", input="embedding_sum", **options)
    assert summed.attrs["input"] == "embedding_sum" and abs(summed["norm"] - fast["norm"]).max() > 0.01


def test_bad_requests_are_named(minilm: identiscope.Model, result: xr.Dataset) -> None:
    with pytest.raises(InputError, match="embedding_sum"):
        attribution(minilm, "The cat.", input="tokens")
    with pytest.raises(InputError, match="this model has tokens"):
        attribution(minilm, "The cat.", stream="decoder")
    with pytest.raises(InputError, match=r"expected a Trace, as identiscope\.trace\(model, text\) gives"):
        attribution(minilm, ["The cat.", "The dog."])
    with pytest.raises(InputError, match=r"'no-such-model' was given; expected a Trace, as identiscope\.trace"):
        identiscope.hidden_token_attribution("no-such-model", identiscope.trace(minilm, "The cat."))
    with pytest.raises(InputError, match="there are 0 to 5"):
        attribution(minilm, "The cat.", layers=[6])
    with pytest.raises(InputError, match="at least one"):
        figures.self_contributions([])
    with pytest.raises(InputError, match="no text has the tokens"):
        figures.contributions_to_token(result, "<s>")
    with pytest.raises(InputError, match="0 to"):
        figures.contributions_of_word(result, 99)
    with pytest.raises(InputError, match="layer=9 was given"):
        identiscope.plot(result, layer=9)


def test_figures_and_plots(result: xr.Dataset, minilm: identiscope.Model) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    trace = identiscope.trace(minilm, TEXT)
    words = [[(0, 3, "DT"), (4, 9, "NN"), (10, 14, "VBD")], [(0, 3, "PRP")]]
    tags = token_tags(trace, words)
    assert tags[:4] == ["[CLS]", "DT", "NN", "VBD"] and tags[7:9] == ["[SEP]", "PRP"]
    assert token_tags(trace, lambda part: words[TEXT.index(part)], TEXT) == tags
    maps = mean_attention_maps(trace, range(6))
    one = identiscope.attention_maps(trace, 2, 3, ("raw", "effective"))
    # From the context of the pass, as the factored form is; maps of a head are from its own raw map, in float64.
    factored = identiscope.factored_attention(trace, 2).dense().mean(0).numpy()
    np.testing.assert_allclose(maps["effective"][2], factored, atol=1e-12)
    heads = [identiscope.attention_maps(trace, 2, head, ("effective",))["effective"].values for head in range(12)]
    np.testing.assert_allclose(maps["effective"][2], np.mean(heads, 0), atol=1e-6)
    assert maps["raw"].shape == (6, one.sizes["query"], one.sizes["key"])
    compared = figures.comparison_with_attention(result, maps)
    assert list(compared["map"].values) == ["raw", "effective"]
    own = figures.self_contributions(result)
    made = {
        plots.plot_self_contributions: own,
        plots.plot_not_largest: own,
        plots.plot_by_distance: figures.contributions_by_distance(result),
        plots.plot_by_offset: figures.contributions_by_offset([result, result], own=False),
        plots.plot_of_word: figures.contributions_of_word(result, 2),
        plots.plot_by_tag: figures.contributions_by_tag(result, [tags]),
        plots.plot_comparison: compared,
    }
    for plot, drawn in made.items():
        figure, ax = plt.subplots()
        assert plot(drawn, ax) is ax and ax.has_data()
        figure.canvas.draw()
        plt.close(figure)
    figure, ax = plt.subplots()
    plots.plot_by_offset(figures.contributions_to_token(result, "[CLS]", "[SEP]"), ax, values="total", layers=[2])
    assert next(line.get_label() for line in ax.get_lines()) == "layer 2" and "[SEP]" in ax.get_xlabel()
    plt.close(figure)
    word = made[plots.plot_of_word]
    np.testing.assert_array_equal(word["contribution"], result["contribution"].isel(output=2))
    assert word.attrs["word"] == "nurse"
    assert int(figures.self_contributions(result, special=False).attrs["tokens"]) == len(tags) - 3


def test_findings_are_judged_of_results(result: xr.Dataset) -> None:
    """Null models are in test_reproduced_claims.py; one text decides nothing."""
    (one,) = {claim.holds for claim in attribution_claims(result)}
    assert one is None
    several = [
        xr.Dataset({"contribution": (("layer", "input", "output"), text)}) for text in null_models.as_published()
    ]
    assert all(claim.holds for claim in attribution_claims(several))
    with pytest.raises(InputError, match="expected results of hidden_token_attribution"):
        attribution_claims([figures.self_contributions(result)])


def test_what_was_interrupted_makes_no_figure(minilm: identiscope.Model) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    interrupted = attribution(minilm, "The cat sat.", layers=[0], progress=stop)
    assert not interrupted.attrs["complete"]
    with pytest.raises(InputError, match="interrupted"):
        figures.self_contributions(interrupted)


def test_the_table_names_what_was_done(result: xr.Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    print_attribution(result)
    shown = capsys.readouterr().out
    assert "8 of 384 directions" in shown and "nurse" in shown and "[CLS]" in shown


def test_a_replay_and_its_embeddings_are_enough(minilm: identiscope.Model) -> None:
    traced = identiscope.trace(minilm, "The cat sat.")
    bare = hidden_token_attribution(traced.replay, traced.embeddings, mode="estimate", probes=8)
    named = identiscope.hidden_token_attribution(traced, mode="estimate", probes=8, fast=False)
    np.testing.assert_array_equal(named["contribution"], bare.contribution)
