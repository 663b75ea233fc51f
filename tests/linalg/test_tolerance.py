"""Cutoffs by precision."""

import warnings

import pytest
import torch

import identiscope
from identiscope.errors import InputError
from identiscope.linalg.rank.column_space import spectrum
from identiscope.linalg.tolerance import machine_epsilon, output_resolution, relative_cutoff
from identiscope.methods.heads.attention_rank import attention_rank


def test_full_precisions_use_the_larger_side_and_half_precisions_one_rounding():
    assert relative_cutoff(512, 64, 768, torch.float32) == 768 * 2**-23
    assert relative_cutoff(1024, 64, 768, torch.float64) == 1024 * 2**-52
    assert relative_cutoff(4096, 64, 768, torch.bfloat16) == pytest.approx(2**-7 / 3**0.5)
    assert relative_cutoff(4, 64, 768, torch.float16) == pytest.approx(2**-10 / 3**0.5)


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rank", [1, 3, 64])
def test_one_rounding_stays_below_the_half_precision_cutoff(precision, rank):
    """Down to one direction, and with rows and columns of very different size, which is where the bound is tight."""
    generator = torch.Generator().manual_seed(0)
    for keys, channels in ((30, 8), (400, 16), (8, 8), (2, 64), (1000, 2)):
        for spread in (0.0, 1.5):
            left = torch.randn(keys, rank, generator=generator, dtype=torch.float64)
            right = torch.randn(rank, channels, generator=generator, dtype=torch.float64)
            left *= torch.exp(spread * torch.randn(keys, 1, generator=generator, dtype=torch.float64))
            exact = left @ right
            rounded = exact.to(precision).double()
            noise = float(torch.linalg.matrix_norm(rounded - exact, 2) / torch.linalg.matrix_norm(exact, 2))
            assert noise < relative_cutoff(keys, channels, 64, precision)


def test_half_precision_sees_the_ranks_of_float32(minilm: identiscope.Model):
    """Values of a real text, rounded: the rank is that of float32 in every head, in bfloat16 in nine of ten."""
    trace = identiscope.trace(minilm, "The cat sat on the mat, and then it slept for hours.")
    wrong = dict.fromkeys((torch.float16, torch.bfloat16), 0)
    for site in trace.sites:
        full = attention_rank(site.value, site.projection, precision=torch.float32).spectrum.rank
        for precision in wrong:
            with warnings.catch_warnings(record=True):
                warnings.simplefilter("always")
                found = attention_rank(site.value.to(precision).float(), site.projection, precision=precision).spectrum
            wrong[precision] += int((found.rank != full).sum())
    assert wrong[torch.float16] == 0
    assert wrong[torch.bfloat16] <= 72 // 10


def test_resolution_and_unknown_precisions():
    assert output_resolution(torch.float32) == 2**-23
    assert output_resolution(torch.float64) > 2**-52
    # A small output of half precision shows much smaller directions than eps of it.
    assert output_resolution(torch.bfloat16) == output_resolution(torch.float16) == 2**-23
    with pytest.raises(InputError, match=r"torch\.int8"):
        machine_epsilon(torch.int8)


def test_rank_gap_and_uncertainty_at_the_cutoff():
    values = torch.tensor([[8.0, 4.0, 1e-9, 0.0], [8.0, 4.0, 2.0, 1.0], [0.0, 0.0, 0.0, 0.0], [8.0, 2.0, 1.9, 1e-9]])
    found = spectrum(values.double(), torch.tensor([1e-6, 0.5, 0.0, 1.95]).double())
    assert found.rank.tolist() == [2, 4, 0, 2]
    assert found.gap[:2].tolist() == pytest.approx([4e9, 2.0], rel=1e-6)
    assert found.gap[2] == torch.inf
    assert found.uncertain.tolist() == [False, True, False, True]
