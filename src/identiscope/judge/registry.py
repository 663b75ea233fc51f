"""Every test of the judge, one line each: all that must be known of it without importing it.

A test is one file and one line here. File, function and name are the same word: `erasure` is the function `erasure` in
`judge/truths/erasure.py`, the folder being that of its kind. It is given a `Case` and gives a `Judgement` (both in
`judge/case.py`); the arena, its page, its tables and its Runs loop over `TESTS`, and nothing else lists tests.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from identiscope.errors import InputError

if TYPE_CHECKING:
    from identiscope.judge.case import Case, Judgement

#: Kind of a test → its folder.
FOLDERS: Mapping[str, str] = {"audit": "audits", "truth": "truths"}


@dataclass(frozen=True)
class Measure:
    """One number that a test gives each method on each text.

    low, high: between which it lies, for histograms; what is outside is counted at the ends. better: which end is good;
    "neither" is shown and not ranked. paired: whether methods are compared by it in pairs.
    """

    name: str
    says: str
    low: float = 0.0
    high: float = 1.0
    better: Literal["high", "low", "neither"] = "high"
    paired: bool = False


@dataclass(frozen=True)
class Test:
    """One test of the judge.

    kind: of `FOLDERS`. says: one sentence, shown wherever tests are listed. of: what its cases are, the texts of the
    corpus or the inputs of planted models. same: measures that ask one thing in several ways, of which the first leads:
    how far the ranking of methods depends on the way is said.
    """

    name: str
    kind: Literal["audit", "truth"]
    paper: str
    says: str
    measures: tuple[Measure, ...]
    of: Literal["corpus", "planted"] = "corpus"
    same: tuple[tuple[str, ...], ...] = ()
    __test__ = False  # no class of tests, whatever pytest takes its name for

    @property
    def module(self) -> str:
        """Where its function is."""
        return f"identiscope.judge.{FOLDERS[self.kind]}.{self.name}"

    def load(self) -> "Callable[[Case], Judgement]":
        """Its function, imported."""
        function: Callable[[Case], Judgement] = getattr(import_module(self.module), self.name)
        return function

    def planned(self, tokens: int, methods: int, budget: int | None) -> int:
        """At most so many passes for a text of so many tokens, by what its file says; 0 where it runs nothing."""
        said: Callable[[int, int, int | None], int] = getattr(import_module(self.module), "planned", _nothing)
        return said(tokens, methods, budget)


def _nothing(tokens: int, methods: int, budget: int | None) -> int:
    return 0


#: Versions of a planted model, as the names of measures begin: what each is, in words.
PLANTED: Mapping[str, str] = {
    "": "compiled by hand",
    "distracted_": "compiled by hand, and distractors attract attention without effect",
    "task_": "trained, so that the task alone is known",
    "distracted_task_": "trained, and distractors attract attention without effect",
}


def _planted() -> tuple[Measure, ...]:
    says = {
        "mass": "share of the scores on the true tokens",
        "precision": "true tokens among the k largest, k being how many are true",
        "reciprocal_rank": "one over the place of the first true token",
    }
    return tuple(
        Measure(f"{version}{name}", f"{words} ({model})", paired=name == "precision")
        for version, model in PLANTED.items()
        for name, words in says.items()
    )


_SHARES: tuple[tuple[str, str, Literal["high", "low"]], ...] = (
    ("comprehensiveness", "what the outcome loses without the most relevant tokens", "high"),
    ("sufficiency", "what it loses with these alone", "low"),
)


def _erasure() -> tuple[Measure, ...]:
    curves = (
        Measure("most_first", "how fast the outcome falls, most relevant first: 1 as fast as any order", paired=True),
        Measure("least_first", "how long it stays, least relevant first: 1 as long as any order", paired=True),
    )
    ways = {"": "special tokens in their place", "deletion_": "deleted", "resampled_": "other words in their place"}
    shares = tuple(
        Measure(f"{way}{name}", f"{says}; {words}", -1.0, 1.0, better)
        for way, words in ways.items()
        for name, says, better in _SHARES
    )
    return curves + shares


_CAUSAL = (
    Measure("shapley", "rank correlation with exact Shapley values", -1.0, paired=True),
    Measure("leave_one_out", "rank correlation with what the outcome loses without a token", -1.0, paired=True),
    Measure("activation", "rank correlation with activation patching of another word", -1.0, paired=True),
    Measure("attribution", "rank correlation with attribution patching, its first order", -1.0),
)


# fmt: off
_LINES: tuple[Test, ...] = (
    Test("null", "audit", "Brunner et al. 2020, §3.3", "does the answer stay with other attention of the same output",
         (Measure("change", "the largest change of the scores, in total variation", better="low", paired=True),
          Measure("merged_change", "the same with equal tokens added up", better="low", paired=True),
          Measure("top_survives", "whether the strongest token stays the strongest"),
          Measure("merged_top_survives", "the same with equal tokens added up"))),
    Test("gauge", "audit", "rewritings that keep the function", "does the answer stay when the model is written down"
         " differently",
         (Measure("change", "the change of the scores, in total variation", better="low", paired=True),
          Measure("top_survives", "whether the strongest token stays the strongest"))),
    Test("redrawn", "audit", "Adebayo et al. 2018", "does the answer go when all layers are drawn anew",
         (Measure("left", "what is left: size of the rank correlation with the scores of random layers", better="low",
                  paired=True),
          Measure("rank_correlation", "the same with its sign", -1.0, better="neither"))),
    Test("planted", "truth", "models made here, whose mechanism is known", "does a method find the tokens that a model"
         " truly uses", _planted(), of="planted"),
    Test("erasure", "truth", "DeYoung et al. 2020; Samek et al. 2017", "does the outcome go with the tokens that a"
         " method calls relevant", _erasure(),
         same=(("comprehensiveness", "deletion_comprehensiveness", "resampled_comprehensiveness"),
               ("sufficiency", "deletion_sufficiency", "resampled_sufficiency"))),
    Test("causal", "truth", "Shapley 1953; Vig et al. 2020; Nanda 2023", "are a method's scores those of interventions",
         _CAUSAL, same=(("shapley", "leave_one_out", "activation", "attribution"),)),
)
# fmt: on

TESTS: dict[str, Test] = {test.name: test for test in _LINES}


def chosen_tests(names: str | Sequence[str]) -> list[Test]:
    """The tests of these names, or all."""
    if names == "all":
        return list(TESTS.values())
    asked = [names] if isinstance(names, str) else list(names)
    asked = [part.strip() for name in asked for part in str(name).split(",") if part.strip()]
    strange = [name for name in asked if name not in TESTS]
    if strange or not asked or len(set(asked)) < len(asked):
        raise InputError(
            f"tests {', '.join(asked) or 'none'} were given; expected all, or some of {', '.join(TESTS)}, each once."
        )
    return [TESTS[name] for name in TESTS if name in asked]
