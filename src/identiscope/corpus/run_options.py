"""What a Run was asked for: everything that its numbers depend on, and nothing else."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from identiscope.errors import InputError

TooLong = Literal["refuse", "cut", "keep"]
METHODS = ("attention", "attribution", "tokens", "structure")


@dataclass(frozen=True)
class RunOptions:
    """Options of a Run.

    layers: attention layers from 0, all by default; hidden states are those after these layers. heads: only these.
    max_tokens: the most tokens of a text, by default what the model takes. too_long: such a text is refused before
    any work, or cut, or kept in its place without statistics. batch_size: texts of one forward pass. shard_size:
    texts of one shard. probes: directions of an attribution estimate. seed: of these. threads: of torch, since the
    last bits of a sum depend on them. keep_texts: write the texts beside their numbers. hidden_states: write
    those, too. subspace_length: sum the projectors of texts of just so many tokens.
    """

    methods: tuple[str, ...] = ("attention",)
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

    def __post_init__(self) -> None:
        unknown = sorted(set(self.methods) - set(METHODS))
        if unknown or not self.methods:
            raise InputError(f"methods {unknown or 'none'} were asked for; there are {', '.join(METHODS)}.")
        if len(set(self.methods)) != len(self.methods):
            raise InputError(f"methods {', '.join(self.methods)} were asked for; name each once.")
        if self.too_long not in ("refuse", "cut", "keep"):
            raise InputError(f"too_long={self.too_long!r} was given; expected refuse, cut or keep.")
        for name, least in (("batch_size", 1), ("shard_size", 1), ("threads", 1), ("probes", 2)):
            if getattr(self, name) < least:
                raise InputError(f"{name}={getattr(self, name)} was given; expected at least {least}.")
        if self.max_tokens is not None and self.max_tokens < 3:
            raise InputError(f"max_tokens={self.max_tokens} was given; expected at least 3.")

    def described(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def options_from(described: dict[str, Any]) -> RunOptions:
    """What `described` gave."""
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in described.items()
    }
    return RunOptions(**values)


def chosen(numbers: Sequence[int] | None) -> tuple[int, ...] | None:
    """A choice in one form: sorted, each once."""
    return None if numbers is None else tuple(sorted(set(numbers)))
