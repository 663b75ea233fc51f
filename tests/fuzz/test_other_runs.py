"""The other half of the Runs of random bytes: from another seed, by another process."""

import pytest

from soak.crafted_runs import fuzz

pytestmark = pytest.mark.long


def test_whatever_the_bytes_are_it_is_an_answer_or_an_error_of_ours() -> None:
    outcome = fuzz(500, seed=21)
    assert outcome.cases == 500 and outcome.failures == ()
