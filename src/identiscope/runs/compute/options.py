"""What a Run is asked for: everything that its numbers depend on, and nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from identiscope.asking.ask import bound, function_of
from identiscope.errors import ArgumentError, InputError
from identiscope.methods.registry import METHODS, method
from identiscope.runs.compute.filling import RunMethod
from identiscope.runs.compute.methods import BROUGHT, DEFAULT, RUN_METHODS
from identiscope.runs.format.options import checked_options, described_options, settings_of
from identiscope.validation import checked_values

TooLong = Literal["refuse", "cut", "keep"]


@dataclass(frozen=True)
class RunOptions:
    """Options of a Run.

    layers: attention layers from 0, all by default; hidden states are those after these layers. heads: only these.
    max_tokens: the most tokens of a text, by default what the model takes. too_long: such a text is refused before
    any work, or cut, or kept in its place without statistics. batch_size: texts of one forward pass. shard_size:
    texts of one shard. probes: directions of an attribution estimate. seed: of these, and of all else that methods
    draw. threads: of torch, since the last bits of a sum depend on them. keep_texts: write the texts beside their
    numbers. hidden_states: write those, too. subspace_length: sum the projectors of texts of just so many tokens.
    settings: options of methods that are asked of each text by itself, as METHOD.OPTION=VALUE.
    """

    methods: tuple[str, ...] = DEFAULT
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    max_tokens: int | None = None
    too_long: TooLong = "refuse"
    batch_size: int = 32
    shard_size: int = 128
    probes: int = 8
    seed: int = 0
    threads: int = 1
    keep_texts: bool = True
    hidden_states: bool = False
    subspace_length: int | None = None
    settings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        values = self._values()
        if isinstance(self.methods, Sequence) and not isinstance(self.methods, str):
            # By the name that the registry has, whatever alias was given.
            values["methods"] = tuple(known(name) if isinstance(name, str) else name for name in self.methods)
        for name, value in checked_options(values, RUN_METHODS).items():
            object.__setattr__(self, name, value)
        for name in {setting.partition(".")[0] for setting in self.settings}:
            self._check_settings(name)

    def _check_settings(self, name: str) -> None:
        """What a method is set to must be among its options, and what these may be."""
        if not RUN_METHODS[name].can_be_set:
            raise InputError(f"{name} has no settings in a Run; ask it of one text: identiscope.{name}(trace, …).")
        self.settings_of(name)

    def settings_of(self, name: str) -> dict[str, Any]:
        """The options that a method was set to, checked as those of its public function are."""
        name = name if name in BROUGHT else method(name).name
        given = settings_of(self.settings, name)
        if not given:
            return {}
        if name in BROUGHT:
            return BROUGHT[name].checked(given)
        bound(METHODS[name], given)
        if of_run := sorted({"layers", "heads"} & given.keys()):
            raise InputError(f"{of_run[0]} of {name} were set; the tables of a Run have the {of_run[0]} of the Run.")
        try:
            return checked_values(function_of(name), given)
        except ArgumentError as error:
            raise ArgumentError(f"of the settings of {name}, {error}") from error

    @property
    def chosen(self) -> dict[str, RunMethod]:
        """The methods, as they are set."""
        return {
            name: RUN_METHODS.of(name, self.settings_of(name)) if name in BROUGHT else RUN_METHODS[name]
            for name in self.methods
        }

    def described(self) -> dict[str, Any]:
        """As JSON holds it."""
        return described_options(self._values())

    def _values(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def known(name: str) -> str:
    """The name of the method that is known by a name, or else that name."""
    return next((one.name for one in METHODS.values() if name in (one.name, *one.aliases)), name)


def options_from(described: Mapping[str, Any]) -> RunOptions:
    """What `described` gave."""
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in described.items()
    }
    return RunOptions(**values)
