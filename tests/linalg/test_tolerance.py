"""Cutoffs by precision."""

import pytest
import torch

from identiscope.errors import InputError
from identiscope.linalg.column_space import spectrum
from identiscope.linalg.tolerance import machine_epsilon, output_resolution, relative_cutoff


def test_full_precisions_use_the_larger_side_and_half_precisions_one_rounding():
    assert relative_cutoff(512, 64, 768, torch.float32) == 768 * 2**-23
    assert relative_cutoff(1024, 64, 768, torch.float64) == 1024 * 2**-52
    assert relative_cutoff(4096, 64, 768, torch.bfloat16) == 8 * 2**-7
    assert relative_cutoff(4, 64, 768, torch.float16) == 2 * 2**-10


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_one_rounding_stays_below_the_half_precision_cutoff(precision):
    """The worst case of the bound: rounding errors all of one sign and full size."""
    generator = torch.Generator().manual_seed(0)
    for keys, channels in ((30, 8), (400, 16), (8, 8)):
        exact = torch.randn(keys, channels, generator=generator, dtype=torch.float64)
        rounded = exact.to(precision).double()
        noise = float(torch.linalg.matrix_norm(rounded - exact, 2) / torch.linalg.matrix_norm(exact, 2))
        assert noise < relative_cutoff(keys, channels, 64, precision)


def test_resolution_and_unknown_precisions():
    assert output_resolution(torch.float32) == 2**-23
    assert output_resolution(torch.float64) > 2**-52
    with pytest.raises(InputError, match=r"torch\.int8"):
        machine_epsilon(torch.int8)


def test_rank_gap_and_uncertainty_at_the_cutoff():
    values = torch.tensor([[8.0, 4.0, 1e-9, 0.0], [8.0, 4.0, 2.0, 1.0], [0.0, 0.0, 0.0, 0.0], [8.0, 2.0, 1.9, 1e-9]])
    found = spectrum(values.double(), torch.tensor([1e-6, 0.5, 0.0, 1.95]).double())
    assert found.rank.tolist() == [2, 4, 0, 2]
    assert found.gap[:2].tolist() == pytest.approx([4e9, 2.0], rel=1e-6)
    assert found.gap[2] == torch.inf
    assert found.uncertain.tolist() == [False, True, False, True]
