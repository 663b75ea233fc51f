"""Structure of a corpus, and which distance predicts the effect of a perturbation."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import families
import identiscope
import reference_structure as reference
from identiscope.asking.structure.extracting import extract_structure
from identiscope.capture import Rerun, Trace
from identiscope.errors import InputError
from identiscope.papers.structure_draft.corpus_structure import corpus_structure, shared_subspaces, text_embedding
from identiscope.papers.structure_draft.perturbation import DISTANCES, Subject, perturbation_effects
from identiscope.results import load_result, save_result


@pytest.fixture(scope="module")
def model() -> identiscope.Model:
    return identiscope.load(families.ALL["GPT-2"].model())


def texts(count: int, lengths: tuple[int, ...] = (12,)) -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randint(3, families.VOCABULARY, (lengths[n % len(lengths)],), generator=generator).tolist()
        for n in range(count)
    ]


def test_representatives_are_chosen_and_shown(model: identiscope.Model) -> None:
    given, calls = texts(20), []
    result = corpus_structure(model, given, progress=lambda done, total: calls.append((done, total)))
    assert result.attrs["corpus"] == 20 and result.attrs["options"]["layout"] == "absolute"
    chosen = int(result.candidate[int(result.silhouette.values.argmax())])
    assert result.sizes["cluster"] == chosen == result.attrs["texts"] >= 8
    assert f"{chosen} clusters" in result.attrs["representatives"] and int(result.cluster_size.sum()) == 20
    assert calls[-1] == (40, 40) and calls == sorted(calls)
    picked: list[Any] = [identiscope.trace(model, given[place]) for place in result.representative.values]
    again = extract_structure(picked, layout="absolute")
    assert np.array_equal(again.structure, result.structure)


def test_options_reach_the_extraction(model: identiscope.Model) -> None:
    given = texts(6, (12, 9))
    result = corpus_structure(model, given, representatives=False, layers=[1], heads=[0, 2], threshold=0.3)
    assert result.attrs["representatives"] == "all 6 texts" and result.attrs["options"]["layout"] == "aligned"
    assert result["layer"].values.tolist() == [1] and result["head"].values.tolist() == [0, 2]
    three = corpus_structure(model, given, clusters=3, layout="relative")
    assert three.attrs["texts"] == 3 and three.attrs["options"]["layout"] == "relative"
    no_lists: list[Any] = ["one text", [], {"input_ids": torch.ones(1, 2)}]
    for wrong in no_lists:
        with pytest.raises(InputError, match="list of texts"):
            corpus_structure(model, wrong)
    with pytest.raises(InputError, match="layout 'other'"):
        corpus_structure(model, given, layout="other")  # type: ignore[arg-type]


def test_texts_are_embedded_by_their_mean(model: identiscope.Model) -> None:
    found = identiscope.trace(model, texts(1)[0])
    assert np.allclose(text_embedding(found), np.mean(found.embeddings.numpy(), 0), atol=1e-12)
    arrays = identiscope.from_arrays(torch.full((1, 1, 2, 2), 0.5), torch.tensor([[[[1.0], [3.0]]]]))
    assert text_embedding(arrays).tolist() == [2.0]


def test_subspaces_of_a_corpus_are_those_of_its_traces(model: identiscope.Model) -> None:
    given, calls = texts(5, (12, 9)), []
    found = shared_subspaces(
        model, given, length=9, when_longer="first_keys", layers=[1], progress=lambda *done: calls.append(done)
    )
    assert (found.used, found.longer, calls[-1]) == (5, 3, (5, 5))
    samples = []
    for text in given:
        site = identiscope.trace(model, text).site(1)
        samples.append((site.value_of(2)[:9] @ site.projection[2]).numpy())
    assert np.allclose(found.of(1, 9).mean_projector[2], reference.mean_projector(samples), atol=1e-9)


def linear_subject(value: Tensor, attentions: list[Tensor]) -> Subject:
    """One attention head and nothing else: the logits are A·V, so that the head's output is the whole effect."""

    def traced(text: int) -> Trace:
        found = identiscope.from_arrays(attentions[text][None, None], value[None, None])
        return replace(found, logits=attentions[text] @ value)

    def substituted(text: int, maps: Mapping[tuple[int, int], Tensor]) -> Rerun:
        return Rerun(maps[0, 0] @ value, {})

    return Subject("linear", traced, substituted)


def antidiagonal_maps(count: int, size: int, noise: float) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    drawn = -torch.rand(count, size, size, generator=generator, dtype=torch.float64).log()
    even = drawn / drawn.sum(-1, keepdim=True)
    return [(1 - noise) * torch.eye(size, dtype=torch.float64).flip(0) + noise * one for one in even]


def test_where_all_directions_count_alike_size_is_all() -> None:
    maps = antidiagonal_maps(5, 12, 0.65)
    value = torch.eye(12, 12, dtype=torch.float64)
    result = perturbation_effects(linear_subject(value, maps), range(5), 0, 0, sets=8, resamples=100)
    assert result.outcome.values.tolist() == ["logits", "predictions"]
    # Every direction is seen alike, so effective attention is attention, and the Frobenius size is the effect
    # (but for rounding, which orders the three of a set at random).
    assert float(result.correlation.sel(outcome="logits", distance="frobenius")) > 0.99
    assert float(result.agreement.sel(outcome="logits", distance="frobenius")) == 0.5
    assert float(result.break_over_keep.sel(outcome="logits")) == pytest.approx(1, rel=1e-9)
    # Sizes are equal within a set, and measured as they were made.
    assert np.allclose(result.measured.sel(distance="frobenius"), result["size"].values[..., None])
    # And yet what is predicted, here the largest weight, changes far more where the structure is broken.
    predictions = result.effect.sel(outcome="predictions").mean(("text", "set"))
    assert float(predictions.sel(noise="break")) > 3 * float(predictions.sel(noise="keep"))


def test_in_a_head_alone_the_head_s_output_is_the_effect() -> None:
    maps = antidiagonal_maps(4, 12, 0.4)
    value = torch.randn(12, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    result = perturbation_effects(linear_subject(value, maps), range(4), 0, 0, sets=6, resamples=50)
    own = result.sel(outcome="logits", distance="head_output")
    assert float(own.correlation) == pytest.approx(1) == float(own.agreement)
    assert float(own.low) == float(own.high) == pytest.approx(1)
    assert float(result.correlation.sel(outcome="logits", distance="effective")) > 0.8


def test_it_is_the_values_and_not_the_structure_that_decide() -> None:
    """Values that are the same off the structure hear only a break; a structure on silent values, only the rest."""
    size = 12
    vertical = torch.zeros(size, size, dtype=torch.float64)
    vertical[:, 0] = 1
    generator = torch.Generator().manual_seed(2)
    drawn = torch.rand(4, size, size, generator=generator, dtype=torch.float64)
    maps = [0.6 * vertical + 0.4 * one / one.sum(-1, keepdim=True) for one in drawn]
    loud = torch.zeros(size, 1, dtype=torch.float64)
    loud[0] = 1
    heard = perturbation_effects(linear_subject(loud, maps), range(4), 0, 0, sets=6, resamples=50)
    assert heard.attrs["pattern"] == "vertical"
    effect = heard.effect.sel(outcome="logits")
    assert float(effect.sel(noise="keep").max()) < 1e-12 < 0.01 < float(effect.sel(noise="break").min())
    assert float(heard.agreement.sel(outcome="logits", distance="structure")) > 0.6
    quiet = torch.randn(size, 3, generator=generator, dtype=torch.float64)
    quiet -= quiet.mean(0)
    quiet[0] = 0
    silent = perturbation_effects(linear_subject(quiet, maps), range(4), 0, 0, sets=6, resamples=50)
    assert float(silent.break_over_keep.sel(outcome="logits")) < 1
    best = silent.correlation.sel(outcome="logits")
    assert float(best.sel(distance="effective")) > float(best.sel(distance="structure")) + 0.2


def test_runs_in_a_model_and_measures_what_it_says(model: identiscope.Model, tmp_path: Path) -> None:
    given, calls = texts(3, (14, 11)), []
    result = perturbation_effects(model, given, 1, 2, sets=4, resamples=50, progress=lambda *done: calls.append(done))
    assert calls == [(1, 3), (2, 3), (3, 3)] and result.attrs["layout"] == "aligned"
    assert result.measured.shape == (3, 4, 3, len(DISTANCES)) and float(result.effect.min()) >= 0
    assert {"hidden_states", "logits"} <= set(result.outcome.values.tolist())
    for name in ("correlation", "agreement"):
        # Twelve perturbations a text hardly ever change a prediction: that outcome may be undefined.
        low, value, high = (result[part].sel(outcome=["hidden_states", "logits"]).values for part in _bounds(name))
        assert (low <= high).all() and (value <= high + 1e-9).all() and not np.isnan(low).any()
    # By hand, from what is in the result.
    for place, distance in enumerate(DISTANCES):
        each = [
            reference.rank_correlation(
                result.measured.values[text, ..., place].ravel(),
                result.effect.sel(outcome="hidden_states").values[text].ravel(),
            )
            for text in range(3)
        ]
        found = float(result.correlation.sel(outcome="hidden_states", distance=distance))
        assert found == pytest.approx(np.mean(each), abs=1e-12)
        any_alone = [
            reference.rank_correlation(
                result.measured.sel(noise="any").values[text, :, place],
                result.effect.sel(outcome="logits", noise="any").values[text],
            )
            for text in range(3)
        ]
        found = float(result.correlation_any.sel(outcome="logits", distance=distance))
        assert found == pytest.approx(np.mean(any_alone), abs=1e-12)
    kept = load_result(save_result(result, tmp_path / "effects.safetensors"))
    assert np.array_equal(kept.correlation, result.correlation, equal_nan=True)
    again = perturbation_effects(model, given, 1, 2, sets=4, resamples=50)
    assert np.array_equal(again.effect, result.effect)


def _bounds(name: str) -> tuple[str, str, str]:
    return ("low", name, "high") if name == "correlation" else (f"{name}_low", name, f"{name}_high")


def test_an_effect_is_the_relative_change(model: identiscope.Model) -> None:
    (text,) = texts(1)
    result = perturbation_effects(model, [text, text], 0, 1, sets=2, resamples=10)
    found = identiscope.trace(model, text)
    changed: list[Any] = []

    class Watching:
        """A traceable of our own, which hands on to the model and keeps what it was given."""

        name = "watched"

        def trace(self, text: Any) -> Trace:
            return identiscope.trace(model, text)

        def substitute(self, text: Any, maps: Mapping[tuple[int, int], Tensor]) -> Rerun:
            changed.append(maps[0, 1])
            return identiscope.substitute(model, text, maps)

    watched = perturbation_effects(Watching(), [text, text], 0, 1, sets=2, resamples=10)
    assert watched.attrs["model"] == "watched" and np.array_equal(watched.effect, result.effect)
    raw = found.site(0).attention(1)
    for number, (kind, map_) in enumerate(zip(("keep", "break", "any"), changed[:3], strict=True)):
        after = identiscope.substitute(model, text, {(0, 1): map_})
        change = (after.hidden_states[-1] - found.hidden_states[-1]).norm() / found.hidden_states[-1].norm()
        assert float(result.effect.values[0, 0, number, 0]) == pytest.approx(float(change), rel=1e-9)
        one = result.measured.isel(text=0, set=0).sel(noise=kind)
        difference = (map_ - raw).numpy()
        assert [
            float(one.sel(distance=name)) for name in ("one", "infinity", "frobenius", "spectral")
        ] == pytest.approx(reference.classical_norms(difference), rel=1e-9)
        site = found.site(0)
        output = (site.value_of(1) @ site.projection[1]).numpy()
        assert float(one.sel(distance="head_output")) == pytest.approx(np.linalg.norm(difference @ output), rel=1e-9)


def test_cross_attention_of_an_encoder_decoder() -> None:
    model = identiscope.load(families.ALL["BART"].model())
    generator = torch.Generator().manual_seed(0)
    given = [
        {
            "input_ids": torch.randint(3, families.VOCABULARY, (1, 11), generator=generator),
            "decoder_input_ids": torch.randint(3, families.VOCABULARY, (1, 7), generator=generator),
        }
        for _ in range(4)
    ]
    result = corpus_structure(model, given, attention="cross", representatives=False)
    assert result.structure.shape == (2, 4, 7, 11) and result.attrs["options"]["layout"] == "absolute"
    found = shared_subspaces(model, given, attention="cross")
    assert found.lengths() == [11] and found.used == 4
    effects = perturbation_effects(model, given[:2], 1, 3, structure=result, sets=2, attention="cross", resamples=10)
    assert float(effects.effect.sel(outcome="hidden_states").min()) > 0
    with pytest.raises(InputError, match="several attentions"):
        corpus_structure(model, given)


def test_refuses_what_cannot_be_perturbed(model: identiscope.Model) -> None:
    with pytest.raises(InputError, match="list of at least one text"):
        perturbation_effects(model, "text", 0, 0)
    even = [torch.full((4, 4), 0.25, dtype=torch.float64)]
    with pytest.raises(InputError, match="both keep and break"):
        perturbation_effects(linear_subject(torch.eye(4, dtype=torch.float64), even), [0], 0, 0)
