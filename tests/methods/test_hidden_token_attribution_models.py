"""The method on real and tiny models: against jacrev, the composed path against the replay, coverage, memory."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import families
import identiscope
import reference_attribution as reference
from identiscope.capture.blocks import find_blocks
from identiscope.errors import InputError
from identiscope.linalg.jacobian.composed import compose
from identiscope.methods.mixtures.hidden_token_attribution import hidden_token_attribution

TEXT = "The nurse told the doctor that she had found the keys."


def in_float64(model: torch.nn.Module) -> torch.nn.Module:
    """Llama's norm computes in float32 whatever the model's precision; here it computes in the model's.

    As initialised, norms have weight 1, which hides a weight that is left out, and makes 1ᵀJ vanish.
    """
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if "Norm" in type(module).__name__ and weight is not None:
            torch.nn.init.normal_(weight, mean=1, std=0.3)
        if type(module).__name__.endswith("RMSNorm"):

            def forward(x: Tensor, module: Any = module) -> Tensor:
                return module.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + module.variance_epsilon)

            module.forward = forward
    return model


def tiny(name: str) -> identiscope.Trace:
    family = families.ALL[name]
    return identiscope.trace(in_float64(family.model()), family.inputs())


@pytest.fixture(scope="module")
def minilm64() -> identiscope.Model:
    return identiscope.load("minilm", dtype=torch.float64)


@pytest.mark.parametrize("name", ["BERT", "GPT-2", "Llama", "ViT"])
@pytest.mark.parametrize("norm", ["frobenius", "spectral", "ones"])
def test_every_layer_is_what_jacrev_says(name: str, norm: Any) -> None:
    trace = tiny(name)
    replay, x = trace.replay, trace.embeddings
    found = hidden_token_attribution(replay, x, norm=norm, blocks=find_blocks(trace).blocks)
    general = hidden_token_attribution(replay, x, norm=norm)
    assert found.composed and not general.composed
    for layer in (1, 2):
        jacobian = torch.func.jacrev(lambda inputs, layer=layer: replay(inputs)[layer])(x)
        norms, shares = reference.contributions(jacobian.detach().numpy(), norm)
        for result in (found, general):
            np.testing.assert_allclose(result.norm[layer - 1].numpy(), norms, atol=1e-8 * norms.max(), rtol=1e-8)
            np.testing.assert_allclose(result.contribution[layer - 1].numpy(), shares, atol=1e-8)


def test_a_sum_that_a_norm_makes_vanish_is_not_passed_off_as_shares() -> None:
    family = families.ALL["BERT"]
    trace = identiscope.trace(family.model(), family.inputs())
    for blocks in (find_blocks(trace).blocks, None):
        found = hidden_token_attribution(trace.replay, trace.embeddings, norm="ones", blocks=blocks)
        assert not found.norm.any() and bool(found.contribution.isnan().all())


def test_minilm_is_what_jacrev_says(minilm64: identiscope.Model) -> None:
    trace = identiscope.trace(minilm64, "The cat sat.")
    replay, x = trace.replay, trace.embeddings
    found = hidden_token_attribution(replay, x, blocks=find_blocks(trace).blocks)
    for layer, output in ((1, 2), (6, 0)):
        jacobian = torch.func.jacrev(lambda inputs, at=(layer, output): replay(inputs)[at[0]][at[1]])(x)
        norms, _ = reference.contributions(jacobian[None].detach().numpy())
        np.testing.assert_allclose(found.norm[layer - 1, :, output].numpy(), norms[:, 0], rtol=1e-8)


@pytest.mark.parametrize(
    "name",
    [
        "BERT",
        "RoBERTa",
        "ELECTRA",
        "ALBERT",
        "DistilBERT",
        "GPT-2",
        "OPT",
        "Llama",
        "Mistral",
        "Qwen2",
        "ViT",
        "BioGPT",
    ],
)
def test_blocks_and_replay_agree(name: str) -> None:
    trace = tiny(name)
    found = find_blocks(trace)
    assert found.blocks is not None, found.reason
    general = hidden_token_attribution(trace.replay, trace.embeddings)
    # With little memory nothing is multiplied out, and columns go in small chunks.
    for memory in (2**30, 400_000):
        composed = hidden_token_attribution(trace.replay, trace.embeddings, blocks=found.blocks, memory=memory)
        torch.testing.assert_close(composed.norm, general.norm, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(composed.contribution, general.contribution, rtol=0, atol=1e-8)
    ended = hidden_token_attribution(
        trace.replay, trace.embeddings, blocks=found.blocks, mode="estimate", probes=general.width
    )
    torch.testing.assert_close(ended.norm, general.norm, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["GPT-2", "Llama", "Mistral", "GPT-NeoX"])
@pytest.mark.parametrize("options", [{}, {"mode": "estimate", "probes": 5}], ids=["exact", "estimate"])
def test_nothing_comes_from_the_future(name: str, options: dict[str, Any]) -> None:
    trace = tiny(name)
    for blocks in {find_blocks(trace).blocks, None}:
        found = hidden_token_attribution(trace.replay, trace.embeddings, blocks=blocks, **options)
        after = torch.ones(found.norm.shape[1:], dtype=torch.bool).tril(-1)
        assert not found.norm[:, after].any() and not found.contribution[:, after].any()
        assert bool((found.norm[:, ~after] > 0).any())
        assert not found.contribution_error[:, after].any()


def test_intervals_cover_the_exact_value_on_a_real_text(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, TEXT)
    blocks = find_blocks(trace).blocks
    exact = hidden_token_attribution(trace.replay, trace.embeddings, blocks=blocks).contribution
    covered = []
    for seed in range(10):
        found = hidden_token_attribution(
            trace.replay, trace.embeddings, blocks=blocks, mode="estimate", probes=12, seed=seed
        )
        low, high = found.interval()
        covered.append(((low <= exact) & (exact <= high)).double().mean((1, 2)))
    # The first layer is known in closed form, so its interval is a point: right, not covering.
    torch.testing.assert_close(found.contribution[0], exact[0], rtol=1e-4, atol=0)
    by_layer = torch.stack(covered).mean(0)[1:]
    assert bool((by_layer >= 0.90).all()) and bool((by_layer <= 0.99).all()), by_layer


def test_the_closed_form_of_the_first_layer_is_exact_and_helps() -> None:
    trace = tiny("BERT")
    blocks, x = find_blocks(trace).blocks, trace.embeddings
    assert blocks is not None
    exact = hidden_token_attribution(trace.replay, x)
    anchor = compose(blocks, x, memory=2**30, directions=32, anchored=True).anchor
    assert anchor is not None
    torch.testing.assert_close(anchor.sqrt(), exact.norm[0].T, rtol=1e-10, atol=0)

    def estimates(**options: Any) -> list[Tensor]:
        options |= {"mode": "estimate", "probes": 12}
        found = [hidden_token_attribution(trace.replay, x, seed=seed, **options) for seed in range(12)]
        return [one.norm for one in found]

    with_anchor, without = (
        torch.stack([(norm / exact.norm - 1).abs().mean((1, 2)) for norm in norms]).mean(0)
        for norms in (estimates(blocks=blocks), estimates())
    )
    assert bool((with_anchor < without).all())
    torch.testing.assert_close(
        torch.stack(estimates(blocks=blocks))[:, 0], exact.norm[0].expand(12, -1, -1), rtol=1e-10, atol=0
    )
    # It takes part in layers that are asked for alone, too.
    alone = hidden_token_attribution(trace.replay, x, blocks=blocks, mode="estimate", probes=12, layers=[1])
    torch.testing.assert_close(alone.norm[0], estimates(blocks=blocks)[0][1], rtol=1e-10, atol=0)


_LIMITS = [(True, 64, 2**28), (True, 120, 2**28), (False, 64, 2**27)]
# A process for each limit, since a peak is never forgotten; all of them begin where the model is loaded.
_MEMORY = """
import os, sys, torch, identiscope
from identiscope.capture.blocks import find_blocks
from identiscope.methods.mixtures.hidden_token_attribution import hidden_token_attribution
torch.set_num_threads(1)
model = identiscope.load("minilm")

def now(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field)) * 1024

def peak(blocks, tokens, memory):
    trace = identiscope.trace(model, [101] + [2000 + 7 * i for i in range(tokens - 2)] + [102])
    blocks = find_blocks(trace).blocks if blocks else None
    trace.replay
    before, chunks = now("VmRSS"), []

    def stop(done, total):
        chunks.append(done)
        raise KeyboardInterrupt

    found = hidden_token_attribution(trace.replay, trace.embeddings, blocks=blocks, memory=memory, progress=stop)
    assert chunks and not found.complete
    return now("VmHWM") - before

for limit in LIMITS:
    child = os.fork()
    if not child:
        print(peak(*limit), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.fixture(scope="module")
def peaks() -> list[int]:
    code = _MEMORY.replace("LIMITS", repr(_LIMITS))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.splitlines()]


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory from /proc")
@pytest.mark.parametrize("number", range(len(_LIMITS)))
def test_memory_stays_under_the_limit(peaks: list[int], number: int) -> None:
    """At 64 tokens some layers are multiplied out; at 120 none are. The longer the text, the smaller the chunks."""
    assert 0 < peaks[number] <= _LIMITS[number][2]


def test_too_little_memory_is_said(minilm: identiscope.Model) -> None:
    trace = identiscope.trace(minilm, TEXT)
    with pytest.raises(InputError, match="allow more memory"):
        hidden_token_attribution(trace.replay, trace.embeddings, blocks=find_blocks(trace).blocks, memory=100_000)
