"""Options of a Run: every number is checked, whatever it is given as."""

from typing import Any

import numpy as np
import pytest

from identiscope import RunOptions
from identiscope.errors import InputError
from identiscope.runs.compute.options import options_from

NUMBERS = ("max_tokens", "batch_size", "shard_size", "probes", "seed", "threads", "subspace_length")
NOT_NUMBERS = (
    float("nan"),
    float("inf"),
    2.0,
    True,
    "8",
    [8],
    10**30,
    -(10**30),
    10**5000,
    np.float64(2),
    1j,
    object(),
)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", NOT_NUMBERS, ids=lambda value: type(value).__name__)
def test_what_is_no_whole_number_of_a_fitting_size_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{name}(=|: ).* was given; expected a whole number"):
        RunOptions(**{name: value})


@pytest.mark.parametrize("name", ["batch_size", "shard_size", "probes", "seed", "threads"])
def test_what_must_be_given_is_not_none(name: str) -> None:
    with pytest.raises(InputError, match=f"{name}=None"):
        RunOptions(**{name: None})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layers": 3}, "layers=3 was given; expected a list of whole numbers"),
        ({"layers": "01"}, "layers='01'"),
        ({"layers": ()}, "at least one"),
        ({"heads": (0, -1)}, "heads=-1"),
        ({"heads": (0.5,)}, "heads=\\(0.5,\\)"),
        ({"layers": (2**15,)}, "at most 32766"),
        ({"methods": "attention"}, "list of strings"),
        ({"methods": None}, "list of strings"),
        ({"methods": (3,)}, "list of strings"),
        ({"methods": ([],)}, "list of strings"),
        ({"methods": ("colour",)}, "there are attention"),
        ({"keep_texts": 1}, "True or False"),
        ({"hidden_states": "no"}, "True or False"),
        ({"too_long": ["cut"]}, "expected 'refuse', 'cut' or 'keep'"),
        ({"probes": 1}, "at least 2"),
    ],
)
def test_choices_are_checked(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        RunOptions(**options)


def test_choices_have_one_form() -> None:
    """Layers in another order would be written in that order, and read in this."""
    made = RunOptions(methods=["tokens"], layers=[3, 1, 1], heads=(np.int64(2), 0), batch_size=np.int32(4))  # type: ignore[arg-type]
    assert made == RunOptions(methods=("tokens",), layers=(1, 3), heads=(0, 2), batch_size=4)
    assert options_from(made.described()) == made and type(made.batch_size) is int


def test_a_method_can_be_set() -> None:
    made = RunOptions(
        methods=("rollout", "statistic_interval"), settings=("statistic_interval.on=special", "rollout.residual=0.3")
    )
    assert made.settings == ("rollout.residual=0.3", "statistic_interval.on=special")
    assert options_from(made.described()) == made
    # Those that are as they were made before there were settings say nothing of them.
    assert "settings" not in RunOptions().described()
    for wrong, words in (
        (("rollout.residual=0.3",), "of a method that is asked for: attention_identifiability"),
        (("attention_identifiability.layer_level=false",), "attention_identifiability has no settings in a Run"),
        (("rollout",), "expected METHOD.OPTION=VALUE"),
        ("rollout.residual=0.3", "expected a list of strings"),
        ((3,), "expected a list of strings"),
    ):
        with pytest.raises(InputError, match=words):
            RunOptions(settings=wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="rollout has no option residue"):
        RunOptions(methods=("rollout",), settings=("rollout.residue=0.3",))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("on=1.5", "on=1.5 was given; expected a string, a whole number, a list of whole numbers"),
        ("on=true", "on=True was given"),
        ("on=[0.5]", "on=\\[0.5\\] was given"),
        ('on={"a": 1}', "on={'a': 1} was given"),
        ("sample=many", "sample='many' was given; expected a whole number or None"),
        ("sample=2.5", "sample=2.5 was given"),
        ("seed=null", "seed=None was given; expected a whole number"),
        ("layers=[0]", "layers of statistic_interval were set; the tables of a Run have the layers of the Run"),
    ],
)
def test_settings_are_checked_as_public_functions_are(setting: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        RunOptions(methods=("statistic_interval",), settings=(f"statistic_interval.{setting}",))
