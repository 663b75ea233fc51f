"""What heads look at, against the definitions in plain NumPy; in a Run as of one text."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import identiscope
import reference_heads as reference
from identiscope.methods.heads.attended import ATTENDED
from identiscope.methods.heads.head_attends import head_attends
from identiscope.runs.compute.batch import Worker, compute_batch, model_shape
from identiscope.runs.compute.options import RunOptions

METHODS = ("head_attends", "head_role", "head_sink", "head_class")


@settings(max_examples=25)
@given(st.integers(0, 2**20), st.lists(st.sampled_from(["a", "b", ".", ",", "!", "[X]"]), min_size=1, max_size=9),
       st.booleans())  # fmt: skip
def test_it_is_the_definition(seed: int, tokens: list[str], causal: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    count = len(tokens)
    allowed = torch.ones(count, count, dtype=torch.bool).tril(0 if causal else count)
    logits = torch.randn(2, count, count, generator=generator, dtype=torch.float64)
    attention = logits.masked_fill(~allowed, -torch.inf).softmax(-1)
    value = torch.randn(2, count, 3, generator=generator, dtype=torch.float64)
    projection = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64)
    special = torch.tensor([token == "[X]" for token in tokens])
    found = head_attends(attention, value, projection, special, tokens, tokens, "causal" if causal else None).arrays()
    for head in range(2):
        raw = attention[head].numpy()
        real = reference.projected(raw, value[head].numpy(), projection[head].numpy(), allowed.numpy())
        for name in ATTENDED:
            for kind, rows in (("raw", raw), ("simplex", real)):
                expected = reference.mean_weight(name, rows, tokens, special.tolist(), allowed.numpy())
                np.testing.assert_allclose(found[f"{kind}_to_{name}"][1][head], expected, atol=1e-9)


def test_next_is_the_token_that_comes() -> None:
    """The published notebook has them the other way round."""
    ahead = torch.eye(6).roll(1, 1)[None]
    nothing = torch.zeros(6, dtype=torch.bool)
    found = head_attends(ahead, torch.eye(6)[None], torch.eye(6)[None], nothing, "abcdef", "abcdef").arrays()
    assert float(found["raw_to_next"][1]) == 1 and float(found["raw_to_previous"][1]) == 0


def test_a_run_has_the_same_numbers(minilm: identiscope.Model, smollm2: identiscope.Model) -> None:
    """Of texts of several lengths in one batch; fewer and more tokens than channels, and causal."""
    texts: list[str | tuple[str, str]] = [("The cat, a cat, sat.", "It slept."), "one two three. " * 12, "Yes!"]
    for model, layers in ((minilm, (0, 3)), (smollm2, (2,))):
        options = RunOptions(methods=METHODS, layers=layers)
        worker = Worker(model, options, model_shape(model, options))
        computed = compute_batch(worker, texts)
        for number, text in enumerate(texts):
            traced = identiscope.trace(model, text)
            for name in METHODS:
                alone = identiscope.ask(name, traced, layers=list(layers))
                for column, values in computed.tables[name].items():
                    np.testing.assert_allclose(values[number], alone[column].values, atol=2e-4, err_msg=column)


def test_without_words_that_are_meant_there_is_no_number(minilm: identiscope.Model) -> None:
    found = identiscope.head_attends(identiscope.trace(minilm, "A dog"), layers=[1])
    assert bool(np.isnan(found["raw_to_point"]).all() and np.isnan(found["raw_to_duplicate"]).all())
    assert bool(np.isfinite(found["raw_to_cls"]).all())
