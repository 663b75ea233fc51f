"""What is explained, in every form that it can be asked for, against what the model itself returns."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import identiscope
from families import _BART, _BERT, _GPT, _LLAMA, _T5, _VIT, ALL, TEXT, VOCABULARY, _vision
from identiscope.errors import IdentiscopeError, InputError, MathError
from plain_families import model_of, traced
from tiny_text_model import save_tiny, tokenizer

TEXT_OF_WORDS = "w1 w2 w3 w4"  # [CLS] w1 w2 w3 w4 [SEP]
MASKED = "w1 [MASK] w3 w4"
LABELS = {0: "O", 1: "PER", 2: "LOC"}


@cache
def model(architecture: str, with_tokenizer: bool = True, **options: Any) -> identiscope.Model:
    """A tiny random model with a tokenizer of words."""
    torch.manual_seed(0)
    kind = getattr(transformers, architecture)
    sizes = _LLAMA if "Llama" in architecture else _BART if "Bart" in architecture else _BERT
    made = kind(kind.config_class(**(sizes | options))).double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.mul_(6)
    return identiscope.load(made, tokenizer() if with_tokenizer else None)


def classifier(**options: Any) -> identiscope.Model:
    found = model("BertForSequenceClassification", **options)
    found.config.id2label = {0: "negative", 1: "positive"}
    return found


def labeller() -> identiscope.Model:
    found = model("BertForTokenClassification", num_labels=3)
    found.config.id2label = LABELS
    return found


def logits(one: identiscope.Model, text: str) -> np.ndarray:
    """What the model itself returns."""
    given = one.tokenizer(text, return_tensors="pt")
    accepted = {name: given[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        return np.asarray(one.module(**accepted).logits[0].double().numpy())


def log_probabilities(row: np.ndarray) -> np.ndarray:
    return row - row.max() - np.log(np.exp(row - row.max()).sum())


def identity(word: str) -> int:
    return int(tokenizer().convert_tokens_to_ids(word))


# The forms.


def test_of_a_causal_model_the_most_likely_next_word_is_the_usual_one() -> None:
    one = model("LlamaForCausalLM")
    row = log_probabilities(logits(one, TEXT_OF_WORDS)[-1])
    found = identiscope.trace(one, TEXT_OF_WORDS).outcome()
    word = tokenizer().convert_ids_to_tokens(int(row.argmax()))
    assert found.name == f"log-probability of {word!r} as the next token (the most likely)"
    assert abs(found.value - row.max()) < 1e-5 and found.unit == "log-probability"
    np.testing.assert_allclose(found.read.numpy(), [0] * 5 + [1], atol=0)


@pytest.mark.parametrize("unit", ["log-probability", "logit", "probability"])
def test_a_word_in_every_unit(unit: str) -> None:
    one = model("LlamaForCausalLM")
    raw = logits(one, TEXT_OF_WORDS)[-1]
    numbers = {"logit": raw, "log-probability": log_probabilities(raw), "probability": np.exp(log_probabilities(raw))}
    found = identiscope.trace(one, TEXT_OF_WORDS).outcome(f"{unit}:w7")
    assert found.unit == unit and found.name == f"{unit} of 'w7' as the next token"
    assert abs(found.value - numbers[unit][identity("w7")]) < 1e-5


def test_a_number_a_place_and_a_difference() -> None:
    one = model("LlamaForCausalLM")
    trace, raw = identiscope.trace(one, TEXT_OF_WORDS), logits(one, TEXT_OF_WORDS)
    assert abs(trace.outcome("logit:id:9").value - raw[-1, 9]) < 1e-5
    assert abs(trace.outcome(9).value - log_probabilities(raw[-1])[9]) < 1e-5
    placed = trace.outcome("logit:w7@2")
    assert abs(placed.value - raw[2, identity("w7")]) < 1e-5 and placed.name.endswith("after token 2")
    assert abs(trace.outcome("logit:w7@-4").value - placed.value) < 1e-12
    both = trace.outcome("w7-w9")
    # What all logits have in common is in both.
    assert abs(both.value - (raw[-1, identity("w7")] - raw[-1, identity("w9")])) < 1e-5
    assert both.name == "difference in logit of 'w7' and 'w9' as the next token"
    shares = np.exp(log_probabilities(raw[-1]))
    probable = trace.outcome("probability:w7-w9")
    assert abs(probable.value - (shares[identity("w7")] - shares[identity("w9")])) < 1e-6


def test_the_word_at_the_mask_of_a_masked_model() -> None:
    one = model("BertForMaskedLM")
    trace = identiscope.trace(one, MASKED)
    row = log_probabilities(logits(one, MASKED)[2])
    assert abs(trace.outcome().value - row.max()) < 1e-9 and "at the mask (the most likely)" in trace.outcome().name
    assert abs(trace.outcome("w7").value - row[identity("w7")]) < 1e-9
    elsewhere = trace.outcome("w7@3")
    assert abs(elsewhere.value - log_probabilities(logits(one, MASKED)[3])[identity("w7")]) < 1e-9
    assert elsewhere.name == "log-probability of 'w7' at token 3"
    for text, count in ((TEXT_OF_WORDS, 0), ("[MASK] w1 [MASK]", 2)):
        with pytest.raises(InputError, match=rf"says which word stands at \[MASK\]; the text has {count} of them"):
            identiscope.trace(one, text).outcome()


def test_a_class_by_its_name_its_number_and_by_default() -> None:
    one = classifier()
    trace = identiscope.trace(one, TEXT_OF_WORDS)
    row = log_probabilities(logits(one, TEXT_OF_WORDS))
    best = ["negative", "positive"][int(row.argmax())]
    assert trace.outcome().name == f"log-probability of class {best} (the most likely)"
    assert abs(trace.outcome().value - row.max()) < 1e-9
    for given in ("positive", "POSITIVE", "1", 1, "id:1"):
        assert abs(trace.outcome(given).value - row[1]) < 1e-9
    gap = trace.outcome("positive-negative")
    raw = logits(one, TEXT_OF_WORDS)
    assert abs(gap.value - (raw[1] - raw[0])) < 1e-9
    assert gap.name == "difference in logit of class positive and class negative"


def test_the_label_of_a_token() -> None:
    one = labeller()
    trace = identiscope.trace(one, TEXT_OF_WORDS)
    rows = np.stack([log_probabilities(row) for row in logits(one, TEXT_OF_WORDS)])
    found = trace.outcome("PER@2")
    assert abs(found.value - rows[2, 1]) < 1e-9 and found.name == "log-probability of class PER for 'w2' (token 2)"
    # By default the token of which the model is surest, among those with a label that says something.
    named = [at for at in range(1, 5) if LABELS[int(rows[at].argmax())] != "O"] or list(range(1, 5))
    surest = max(named, key=lambda at: float(rows[at].max()))
    assert abs(trace.outcome().value - rows[surest].max()) < 1e-9
    assert f"(token {surest})" in trace.outcome().name


def test_a_model_that_gives_one_number() -> None:
    one = model("BertForSequenceClassification", num_labels=1)
    found = identiscope.trace(one, TEXT_OF_WORDS).outcome()
    assert found.name == "the number that the model gives" and found.unit == "logit"
    assert abs(found.value - float(logits(one, TEXT_OF_WORDS)[0])) < 1e-9


def test_classes_that_do_not_exclude_each_other_have_probabilities_of_their_own() -> None:
    """A model of several labels is trained by a sigmoid of each: a softmax over them is no probability of anything."""
    one = model("BertForSequenceClassification", num_labels=3, problem_type="multi_label_classification")
    trace, row = identiscope.trace(one, TEXT_OF_WORDS), logits(one, TEXT_OF_WORDS)
    best = int(row.argmax())
    assert abs(trace.outcome().value + np.log1p(np.exp(-row[best]))) < 1e-9
    assert abs(trace.outcome("probability:LABEL_1").value - 1 / (1 + np.exp(-row[1]))) < 1e-9
    assert abs(trace.outcome("LABEL_1-LABEL_0").value - (row[1] - row[0])) < 1e-9
    assert "whatever the others do" in trace.outcome().name and trace.outcome().distribution is None


def test_plain_numbers_are_no_probabilities() -> None:
    one = model("BertForSequenceClassification", num_labels=3, problem_type="regression")
    trace, row = identiscope.trace(one, TEXT_OF_WORDS), logits(one, TEXT_OF_WORDS)
    assert abs(trace.outcome("LABEL_1").value - row[1]) < 1e-9 and trace.outcome("LABEL_1").unit == "logit"
    assert "output 1" in trace.outcome("LABEL_1").name and "class" not in trace.outcome("LABEL_1").name
    for given in (None, "probability:LABEL_1"):
        with pytest.raises(InputError, match="3 plain numbers, each of its own"):
            trace.outcome(given)
    with pytest.raises(InputError, match="1 plain number: none is a probability"):
        identiscope.trace(model("BertForSequenceClassification", num_labels=1), TEXT_OF_WORDS).outcome("probability:0")


def test_numbers_of_tokens_are_no_classes_of_the_text() -> None:
    one = model("ElectraForPreTraining", embedding_size=16)
    trace = identiscope.trace(one, TEXT_OF_WORDS)
    with pytest.raises(InputError, match="one number for each token, and not 2 classes"):
        trace.outcome()
    assert abs(trace.outcome(lambda run: run.logits[3]).value - logits(one, TEXT_OF_WORDS)[3]) < 1e-9


@pytest.mark.parametrize("family", ["T5", "UMT5", "BART"])
def test_a_word_of_a_decoder_is_read_from_the_decoder_however_much_it_owes_to_the_encoder(family: str) -> None:
    """In T5 and UMT5 the derivative by the encoder's last states is the larger one."""
    trace = identiscope.trace(ALL[family].model(), ALL[family].inputs())
    found = trace.outcome()
    assert found.stream == "decoder" and len(found.read) == len(trace.streams["decoder"])
    np.testing.assert_array_equal(found.read.numpy(), [0.0] * 6 + [1.0])
    of_encoder = trace.outcome(lambda run: run.streams["encoder"][-1][2].norm())
    assert of_encoder.stream == "encoder"
    np.testing.assert_array_equal(of_encoder.read.nonzero().flatten().numpy(), [2])


@pytest.mark.parametrize("architecture", ["GPT2ForSequenceClassification", "LlamaForSequenceClassification"])
def test_a_causal_classifier_without_padding_is_run_text_by_text(architecture: str) -> None:
    """Of several texts at once it cannot tell where each ends, and refuses."""
    kind = getattr(transformers, architecture)
    sizes = {"pad_token_id": None} | (_GPT if "GPT2" in architecture else {**_LLAMA, "pad_token_id": None})
    torch.manual_seed(0)
    alone = kind(kind.config_class(num_labels=3, **sizes)).double().eval()
    padded = kind(kind.config_class(num_labels=3, **(sizes | {"pad_token_id": 0}))).double().eval()
    padded.load_state_dict(alone.state_dict())
    names = ["occlusion", "shapley", "integrated_gradients", "smooth_gradient"]
    both = [identiscope.explain(identiscope.trace(one, TEXT[:5]), 1, methods=names) for one in (alone, padded)]
    assert not any(both[0]["failed"].values)
    np.testing.assert_allclose(both[0]["score"], both[1]["score"], atol=1e-10)


@pytest.mark.parametrize("head", ["LMHeadModel", "ForSequenceClassification", "ForTokenClassification"])
def test_an_outcome_of_a_model_that_reports_copies_of_its_states(head: str) -> None:
    """XLNet's logits are made of its last states, but not of those that it reports."""
    kind = getattr(transformers, f"XLNet{head}")
    torch.manual_seed(0)
    made = kind(kind.config_class(vocab_size=VOCABULARY, d_model=32, n_layer=2, n_head=4, d_inner=48)).double().eval()
    trace = identiscope.trace(made, TEXT)
    asked = {"LMHeadModel": "logit:id:7@2", "ForSequenceClassification": "logit:LABEL_1"}.get(head, "logit:LABEL_1@2")
    with torch.no_grad():
        raw = made(input_ids=torch.tensor([TEXT])).logits[0]
    place, expected = (len(TEXT) - 1, raw[1]) if raw.dim() == 1 else (2, raw[2, 7 if head == "LMHeadModel" else 1])
    found = trace.outcome(asked)
    assert abs(found.value - float(expected)) < 1e-12
    np.testing.assert_array_equal(found.read.nonzero().flatten().numpy(), [place])
    result = identiscope.explain(trace, asked, methods="gradient_input,rollout,direct_logit_attribution,occlusion")
    assert not any(result["failed"].values) and bool((result["score"] != 0).any("input").all())


@pytest.mark.parametrize("family", ["Bart", "MBart", "T5"])
def test_a_classifier_whose_decoder_reads_the_text_too(family: str) -> None:
    """As the model gives it to its decoder where it is given the text alone: one place behind."""
    kind, sizes = getattr(transformers, f"{family}ForSequenceClassification"), _T5 if family == "T5" else _BART
    torch.manual_seed(0)
    made = kind(kind.config_class(num_labels=3, **(sizes | {"eos_token_id": 2}))).double().eval()
    # Of mBART the token of the language stands behind the end, and begins what the decoder reads.
    text = [*TEXT[:6], 2, 91] if family == "MBart" else [*TEXT[:6], 2]
    with torch.no_grad():
        raw = made(input_ids=torch.tensor([text])).logits[0].numpy()
    trace = identiscope.trace(made, text)
    assert abs(trace.outcome("LABEL_2").value - log_probabilities(raw)[2]) < 1e-10
    first = {"Bart": 2, "MBart": 91, "T5": 0}[family]
    assert trace.streams["decoder"].ids == (first, *text[:-1]) and trace.streams["encoder"].ids == tuple(text)
    result = identiscope.explain(trace, "LABEL_2-LABEL_0", methods="gradient_input,occlusion,alti_logit")
    assert not any(result["failed"].values) and result["score"].shape == (3, 2 * len(text))
    several = identiscope.trace(made, [text, [*TEXT[:3], *text[6:]]])
    assert abs(several[0].outcome("LABEL_2").value - log_probabilities(raw)[2]) < 1e-10
    with pytest.raises(InputError, match="reads the text itself; leave target out"):
        identiscope.trace(made, text, target="w1")


def test_the_next_word_of_a_decoder() -> None:
    given = {"input_ids": torch.tensor([TEXT]), "decoder_input_ids": torch.tensor([[2, 8, 61]])}
    one = model("BartForConditionalGeneration")
    trace = identiscope.trace(one, given)
    with torch.no_grad():
        raw = one.module(**given).logits[0].double().numpy()
    assert abs(trace.outcome().value - log_probabilities(raw[-1]).max()) < 1e-9
    assert trace.outcome("w3").stream == "decoder"
    assert abs(trace.outcome("logit:w3@0").value - raw[0, identity("w3")]) < 1e-9


def test_the_class_of_a_picture() -> None:
    torch.manual_seed(0)
    made = transformers.ViTForImageClassification(transformers.ViTConfig(**_VIT, num_labels=5)).double().eval()
    trace = identiscope.trace(made, dict(_vision()))
    with torch.no_grad():
        row = log_probabilities(made(**_vision()).logits[0].numpy())
    assert abs(trace.outcome().value - row.max()) < 1e-9
    assert abs(trace.outcome("LABEL_3").value - row[3]) < 1e-9
    result = identiscope.gradient_input(trace, outcome="LABEL_3")
    assert result["score"].shape == (17,)


def states(one: identiscope.Model, text: str) -> np.ndarray:
    given = one.tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        return np.asarray(one.module(given["input_ids"]).last_hidden_state[0].numpy())


def test_the_similarity_of_two_texts() -> None:
    one = model("BertModel")
    first, second = (states(one, text).mean(0) for text in (TEXT_OF_WORDS, "w9 w8"))
    cosine = first @ second / np.sqrt((first @ first) * (second @ second))
    found = identiscope.trace(one, TEXT_OF_WORDS).outcome("similarity: w9 w8")
    assert found.name == "cosine of the mean state with that of 'w9 w8'" and found.unit == "cosine"
    assert abs(found.value - cosine) < 1e-9


@pytest.mark.parametrize(("mode", "place"), [('_cls_token": true', "first"), ('": "lasttoken"', "last")])
def test_a_folder_may_say_that_one_token_stands_for_the_text(tmp_path: Path, mode: str, place: str) -> None:
    one = identiscope.load(_pooled(tmp_path, f'{{"pooling_mode{mode}}}'))
    at = {"first": 0, "last": -1}[place]
    first, second = (states(one, text)[at].astype(float) for text in (TEXT_OF_WORDS, "w9 w8"))
    cosine = first @ second / np.sqrt((first @ first) * (second @ second))
    trace = identiscope.trace(one, TEXT_OF_WORDS)
    found = trace.outcome("similarity:w9 w8")
    assert found.name.startswith(f"cosine of the {place} token's state") and abs(found.value - cosine) < 1e-5
    # Without a token before it, it is still that one: the last that is left.
    shorter = TEXT_OF_WORDS.split(" ", 1)[1]
    expected = identiscope.trace(one, shorter).outcome("similarity:w9 w8").value
    without = identiscope.occlusion(trace, outcome="similarity:w9 w8", how="delete")["score"].values[1]
    assert abs(found.value - without - expected) < 1e-5


@pytest.mark.parametrize("said", ['{"pooling_mode_max_tokens": true}', '{"pooling_mode_mean_tokens": false}',
                                  '{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}'])  # fmt: skip
def test_another_way_to_make_one_vector_is_not_taken_for_the_mean(tmp_path: Path, said: str) -> None:
    trace = identiscope.trace(identiscope.load(_pooled(tmp_path, said)), TEXT_OF_WORDS)
    with pytest.raises(InputError, match=r"makes one vector of a text by .*Give a function of the states instead"):
        trace.outcome("similarity:w9 w8")


def _pooled(folder: Path, said: str) -> Path:
    save_tiny(folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(said, encoding="utf-8")
    return folder


def test_a_function_of_what_a_run_returns() -> None:
    def spread(run: identiscope.Rerun) -> torch.Tensor:
        assert run.logits is not None
        return run.logits[-1].max() - run.logits[-1].min()

    found = traced("GPT-2").outcome(spread)
    with torch.no_grad():
        row = model_of("GPT-2")(torch.tensor([TEXT])).logits[0, -1]
    assert found.name == "spread, as given" and abs(found.value - float(row.max() - row.min())) < 1e-9


def test_how_the_last_states_are_read_is_the_derivative() -> None:
    """Of a logit that is the row of the head's weights, at one token alone; its length is the share."""
    found = traced("GPT-2").outcome("logit:id:7@3")
    row = model_of("GPT-2").lm_head.weight[7].detach()
    expected = torch.zeros(len(TEXT), len(row), dtype=torch.float64)
    expected[3] = row
    np.testing.assert_allclose(found.direction, expected, atol=1e-12)
    pooled = traced("BERT").outcome(lambda run: run.hidden_states[-1].mean(0)[4])
    np.testing.assert_allclose(pooled.read, np.full(len(TEXT), 1 / len(TEXT)), atol=1e-12)


def test_every_result_says_what_it_explains() -> None:
    result = identiscope.saliency(traced("GPT-2"), outcome="logit:id:7")
    assert result.attrs["outcome"].startswith("logit of ") and result.attrs["outcome_unit"] == "logit"
    assert abs(result.attrs["outcome_value"] - traced("GPT-2").outcome("logit:id:7").value) < 1e-12


# What cannot be.


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("w1 w2", r"the tokenizer writes it as 2 tokens \('w1', 'w2'\), and an outcome is of one. Give one of them"),
        ("nonsense", "the tokenizer does not know it"),
        ("\ud800", "half a surrogate pair, which is no character"),
        ("w1-w1", "the difference of a logit and itself, which is always 0"),
        ("id:99", "there are 99 logits, 0 to 98"),
        (VOCABULARY, "outcome=99 was given: there are 99 logits, 0 to 98"),
        (-1, "outcome=-1 was given: there are 99 logits, 0 to 98"),
        ("w1@6", "the text has tokens 0 to 5"),
        (True, "expected a string, a whole number, a function or None"),
        (1.5, "expected a string, a whole number, a function or None"),
        ("similarity:", "was given without a text"),
    ],
)
def test_a_word_that_is_none_is_refused(given: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        identiscope.trace(model("LlamaForCausalLM"), TEXT_OF_WORDS).outcome(given)


def test_nothing_is_no_outcome() -> None:
    for nothing in ("", " "):
        with pytest.raises(InputError, match="which is nothing; leave it out"):
            identiscope.trace(model("LlamaForCausalLM"), TEXT_OF_WORDS).outcome(nothing)


def test_the_similarity_to_the_text_itself_has_no_derivative() -> None:
    trace = identiscope.trace(model("BertModel"), TEXT_OF_WORDS)
    with pytest.warns(UserWarning, match="the same tokens.*its derivative is zero"):
        found = trace.outcome(f"similarity:{TEXT_OF_WORDS}")
    other = trace.outcome("similarity:w5 w6")
    assert found.value == pytest.approx(1.0) and float(found.direction.norm()) < 1e-9 * float(other.direction.norm())


def test_a_class_that_is_none_is_refused() -> None:
    trace = identiscope.trace(classifier(), TEXT_OF_WORDS)
    with pytest.raises(InputError, match=r"'neutral' was given: the classes of .* are negative, positive"):
        trace.outcome("neutral")
    with pytest.raises(InputError, match="gives logits for the whole text; leave @2 out"):
        trace.outcome("positive@2")


def test_a_bare_encoder_asks_for_what_is_to_be_explained() -> None:
    trace = identiscope.trace(model("BertModel"), TEXT_OF_WORDS)
    for given in (None, "w1"):
        with pytest.raises(InputError, match=r"returns hidden states and no logits.*similarity:TEXT"):
            trace.outcome(given)
    with pytest.raises(InputError, match="similarity:TEXT"):
        identiscope.explain(trace)


def test_a_model_without_a_tokenizer_takes_numbers() -> None:
    with pytest.raises(InputError, match="came without a tokenizer; give the number of a token, as id:NUMBER"):
        traced("GPT-2").outcome("word")


def test_arrays_have_no_outcome() -> None:
    trace = identiscope.from_arrays(torch.full((1, 1, 3, 3), 1 / 3), torch.ones(1, 1, 3, 2))
    with pytest.raises(InputError, match="no model, and so no outcome"):
        trace.outcome()


def test_a_function_must_return_one_number_that_depends_on_the_states() -> None:
    trace = traced("GPT-2")
    functions: Any = (lambda run: 1.0, lambda run: run.hidden_states[-1][0], lambda run: torch.tensor(3))
    for function in functions:
        with pytest.raises(InputError, match="expected a tensor with one number"):
            _ = trace.outcome(function).value
    with pytest.raises(InputError, match="does not depend on the last hidden states"):
        _ = trace.outcome(lambda run: torch.ones((), dtype=torch.float64)).value
    with pytest.raises(MathError, match="is not a number for this text"):
        _ = trace.outcome(lambda run: run.hidden_states[-1].sum() * float("nan")).value
    with pytest.raises(MathError, match="is infinite for this text"):
        identiscope.explain(trace, lambda run: run.hidden_states[-1].square().sum() / 0, methods="all")


def test_a_derivative_that_is_no_number_is_refused() -> None:
    """√ of a square that is zero: the number is, its derivative is not."""

    def rooted(run: identiscope.Rerun) -> torch.Tensor:
        last = run.hidden_states[-1]
        return last[0].sum() + (last[1] - last[1].detach()).square().sum().sqrt()

    with pytest.raises(MathError, match="the derivative of the outcome by the inputs is infinite or no number"):
        identiscope.gradient_input(traced("GPT-2"), outcome=rooted)
    with pytest.raises(MathError, match="the derivative of the outcome by attention is infinite or no number"):
        identiscope.gradient_attention(traced("GPT-2"), outcome=rooted)


# Baselines.


def test_what_stands_for_nothing_is_said_and_special_tokens_stay() -> None:
    one = model("BertForMaskedLM")
    trace = identiscope.trace(one, MASKED)
    result = identiscope.occlusion(trace, outcome="w7")
    given = one.tokenizer(MASKED, return_tensors="pt")["input_ids"]
    whole = log_probabilities(logits(one, MASKED)[2])[identity("w7")]
    expected = []
    with torch.no_grad():
        for place in range(given.shape[1]):
            ids = given.clone()
            if int(given[0, place]) > 4:  # no special token
                ids[0, place] = identity("[MASK]")
            expected.append(whole - log_probabilities(one.module(ids).logits[0, 2].numpy())[identity("w7")])
    np.testing.assert_allclose(result["score"], expected, atol=1e-9)
    assert "[MASK]" in str(result.attrs["baseline"]) and not result["score"].values[[0, 2, 5]].any()
    padded = identiscope.occlusion(trace, outcome="w7", baseline="padding")
    assert "[PAD]" in str(padded.attrs["baseline"]) and np.abs(padded["score"] - result["score"]).max() > 1e-6


def test_without_the_token_it_is_refused_or_the_mean_stands_for_it() -> None:
    usual = identiscope.occlusion(traced("GPT-2"), outcome="logit:id:7")
    assert usual.attrs["baseline"] == "the mean embedding of the text"
    with pytest.raises(InputError, match=r"baseline='mask' was given; .* has no such token\. Give another"):
        identiscope.occlusion(traced("GPT-2"), outcome="logit:id:7", baseline="mask")
    with pytest.raises(InputError, match="baseline='silence' was given; expected 'mask', 'unknown', 'padding'"):
        identiscope.occlusion(traced("GPT-2"), outcome="logit:id:7", baseline="silence")
    with pytest.raises(InputError, match="are no tokens: give mean or zero"):
        identiscope.occlusion(traced("ViT"), outcome=lambda run: run.hidden_states[-1][0, 0], baseline="mask")


def test_a_text_of_one_token() -> None:
    trace = identiscope.trace(model_of("GPT-2"), TEXT[:1])
    result = identiscope.explain(trace, "logit:id:7", methods="all", baseline="zero")
    failed = {name: why for name, why in zip(result["method"].values, result["failed"].values, strict=True) if why}
    assert not failed and result["score"].shape[1] == 1 and np.isfinite(result["score"]).all()


def test_an_outcome_that_does_not_fit_is_one_error_of_all() -> None:
    with pytest.raises(IdentiscopeError, match="came without a tokenizer"):
        identiscope.explain(traced("GPT-2"), "word", methods="fast")
