"""Results of attribution from model and text to figure: labels, encoder and decoder, files, figures and plots."""

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
import xarray as xr

import families
import identiscope
from identiscope.errors import InputError
from identiscope.experiments import attribution_figures as figures
from identiscope.experiments.attribution import attention_maps, attribution, attribution_of_texts, token_tags
from identiscope.results import load_result, save_result
from identiscope.views import attribution_plots as plots
from identiscope.views.attribution_tables import print_attribution

matplotlib.use("Agg")
TEXT = ("The nurse told the doctor.", "She had found the keys.")


@pytest.fixture(scope="module")
def result(minilm: identiscope.Model) -> xr.Dataset:
    return attribution(minilm, TEXT, mode="estimate", probes=8)


def test_result_is_labelled(result: xr.Dataset) -> None:
    assert result["contribution"].dims == ("layer", "input", "output")
    assert result["layer"].values.tolist() == [1, 2, 3, 4, 5, 6]
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
    with pytest.raises(InputError, match="only a result"):
        attribution(minilm, TEXT, mode="estimate", resume=figures.self_contributions(result))


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
    with pytest.raises(InputError, match="attribution_of_texts"):
        attribution(minilm, ["The cat.", "The dog."])
    with pytest.raises(InputError, match="at least one"):
        figures.self_contributions([])
    with pytest.raises(InputError, match="no text has the tokens"):
        figures.contributions_to_token(result, "<s>")
    with pytest.raises(InputError, match="0 to"):
        figures.contributions_of_word(result, 99)
    with pytest.raises(InputError, match="layer 9"):
        plots.plot_attribution(result, None, layer=9)  # type: ignore[arg-type]


def test_figures_and_plots(result: xr.Dataset, minilm: identiscope.Model) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    trace = identiscope.trace(minilm, TEXT)
    words = [[(0, 3, "DT"), (4, 9, "NN"), (10, 14, "VBD")], [(0, 3, "PRP")]]
    tags = token_tags(trace, words)
    assert tags[:4] == ["[CLS]", "DT", "NN", "VBD"] and tags[7:9] == ["[SEP]", "PRP"]
    assert token_tags(trace, lambda part: words[TEXT.index(part)], TEXT) == tags
    maps = attention_maps(trace, range(1, 7))
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
        plots.plot_attribution: result,
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


def test_claims_are_evaluated(result: xr.Dataset) -> None:
    found = figures.claims(result)
    assert set(found) == {"monotone", "largest", "local", "distant later", "first differs"}
    rising = result.copy(deep=True)
    rising["contribution"] = (
        result["contribution"].isel(layer=slice(None, None, -1)).assign_coords(layer=result["layer"])
    )
    assert found["monotone"]["holds"] and not figures.claims(rising)["monotone"]["holds"]


def test_texts_one_after_the_other(minilm: identiscope.Model) -> None:
    seen: list[tuple[int, int]] = []
    texts = ["The cat sat.", "A dog ran away.", "Nobody knew."]

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    found = attribution_of_texts(
        minilm, texts, mode="estimate", probes=2, layers=[1], progress=lambda *at: seen.append(at)
    )
    assert len(found) == 3 and seen == [(1, 3), (2, 3), (3, 3)]
    interrupted = attribution(minilm, texts[0], layers=[1], progress=stop)
    assert not interrupted.attrs["complete"]
    with pytest.raises(InputError, match="interrupted"):
        figures.self_contributions(interrupted)


def test_the_table_names_what_was_done(result: xr.Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    print_attribution(result)
    shown = capsys.readouterr().out
    assert "8 of 384 directions" in shown and "nurse" in shown and "[CLS]" in shown


def test_a_replay_and_its_embeddings_are_enough(minilm: identiscope.Model) -> None:
    traced = identiscope.trace(minilm, "The cat sat.")
    bare = identiscope.hidden_token_attribution(traced.replay, traced.embeddings, mode="estimate", probes=8)
    named = identiscope.hidden_token_attribution(minilm, traced, mode="estimate", probes=8, fast=False)
    assert np.allclose(bare.contribution, named.contribution, atol=1e-5)
