"""What holds of a model that never learnt is said to: the figures of attention through the whole pipeline."""

from dataclasses import replace

import pytest
import torch

import identiscope
from identiscope.corpus.readers import Text
from identiscope.papers.brunner2020.attention import attention_figures
from identiscope.papers.untrained import beside_untrained, untrained
from identiscope.views.plots.figures import OF_UNTRAINED, Claim, Figure

WORDS = identiscope.PASSAGE.split()
TEXTS = [Text((f"{' '.join(WORDS[3 * n : 3 * n + 24 + 2 * n])}.", f"{' '.join(WORDS[9 : 24 + n])}.")) for n in range(7)]
CLAIM = Claim(statement="it is so", source="§1", published="a picture", rule="it is", here="very much", holds=True)


def test_an_untrained_model_has_the_shape_and_other_weights(minilm: identiscope.Model) -> None:
    state = torch.get_rng_state()
    null, again = untrained(minilm), untrained(minilm)
    assert null is not None and again is not None and torch.equal(torch.get_rng_state(), state)
    given, made, same = (model.module.state_dict() for model in (minilm, null, again))
    assert {name: one.shape for name, one in given.items()} == {name: one.shape for name, one in made.items()}
    weight = next(name for name in given if name.endswith("query.weight"))
    assert torch.equal(made[weight], same[weight]) and not torch.equal(made[weight], given[weight])


def test_no_claim_on_attention_simply_holds_of_a_null_model(minilm: identiscope.Model) -> None:
    null = untrained(minilm, seed=1)
    assert null is not None
    made = beside_untrained(attention_figures(null, TEXTS), null, lambda other: attention_figures(other, TEXTS))
    claims = [claim for figure in made if isinstance(figure, Figure) for claim in figure.claims]
    held = [claim for claim in claims if claim.holds]
    # Some do hold, by the shape of the model alone, or this would try nothing.
    assert held and all(claim.verdict == f"holds, and {OF_UNTRAINED}" for claim in held)


@pytest.mark.parametrize(
    ("of_null", "verdict"), [(True, f"holds, and {OF_UNTRAINED}"), (False, "holds"), (None, "holds")]
)
def test_the_verdict_says_what_came_of_the_null_model(
    minilm: identiscope.Model, of_null: bool | None, verdict: str
) -> None:
    def figure(claim: Claim) -> list[Figure]:
        return [Figure("1", "title", "data", (), (claim, replace(claim, statement="not so", holds=False)))]

    null = replace(CLAIM, holds=of_null, here="a little")
    (made,) = beside_untrained(figure(CLAIM), minilm, lambda _: figure(null))
    assert isinstance(made, Figure)
    assert [claim.verdict for claim in made.claims] == [verdict, "does not hold"]
    assert made.claims[0].here == "very much; untrained: a little"
