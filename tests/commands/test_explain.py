"""`identiscope explain`: the text by each method in a terminal, as JSON, saved, and as a page."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import identiscope
from identiscope.cli import main
from identiscope.errors import IdentiscopeError
from tiny_text_model import save_tiny, words

TEXT = words(5, 3)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> str:
    names = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
    return str(save_tiny(tmp_path_factory.mktemp("explain") / "model", "BertForSequenceClassification", **names))


def invoke(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["explain", *arguments])
    assert done.exception is None or isinstance(done.exception, (SystemExit, IdentiscopeError)), done.exception
    return done.exit_code, done.output + str(done.exception or "")


def test_text_top_tokens_agreement_and_costs_are_shown(classifier: str) -> None:
    code, shown = invoke(classifier, TEXT, "--outcome", "good", "--methods", "rollout,gradient-input,occlusion")
    assert code == 0
    assert ("explained:" in shown and "'good'" in shown) or "good" in shown
    for name in ("rollout", "gradient_input", "occlusion"):
        assert shown.count(name) >= 2  # the text, and what matters most
    assert "What matters most" in shown and "Do they agree?" in shown and "special tokens" in shown


def test_json_has_what_the_library_gives(classifier: str) -> None:
    code, shown = invoke(classifier, TEXT, "--outcome", "good-bad", "--methods", "occlusion", "--json", "--top", "2")
    assert code == 0
    found = json.loads(shown)
    alone = identiscope.explain(identiscope.trace(classifier, TEXT), "good-bad", methods=["occlusion"])
    assert found["outcome_value"] == pytest.approx(alone.attrs["outcome_value"]) and len(found["top"][0]["top"]) == 2
    share = alone["share"].loc["occlusion"].values
    first = found["top"][0]["top"][0]
    assert first["share"] == pytest.approx(float(share[first["input"]]), abs=1e-6)
    kept = [abs(value) for value, special in zip(share, alone["input_special"].values, strict=True) if not special]
    assert abs(first["share"]) == pytest.approx(max(kept), abs=1e-6)
    assert found["tokens"] == alone["input_token"].values.tolist()


def test_a_result_is_saved_gone_on_with_and_shown_as_a_page(classifier: str, tmp_path: Path) -> None:
    out, page, table = (str(tmp_path / name) for name in ("e.safetensors", "e.html", "e.csv"))
    assert invoke(classifier, TEXT, "--methods", "rollout", "--out", out)[0] == 0
    code, shown = invoke(
        classifier, TEXT, "--methods", "rollout,saliency", "--resume", out, "--html", page, "--out", table
    )
    assert code == 0 and "saved" in shown
    assert identiscope.load_result(out)["method"].values.tolist() == ["rollout"]
    assert "saliency" in Path(page).read_text(encoding="utf-8")
    assert Path(table).read_text(encoding="utf-8").count("\n") > len(TEXT.split())


def test_words_are_added_up_on_request(minilm: identiscope.Model) -> None:
    given = ("minilm", "A lighthousekeeper slept.", "--outcome", "similarity:A man.", "--methods", "saliency", "--json")
    pieces, whole = (json.loads(invoke(*given, *more)[1])["tokens"] for more in ((), ("--words",)))
    assert "lighthousekeeper" in whole and len(whole) < len(pieces)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--methods", "colour"), "there is no method 'colour'"),
        (("--methods", "attention_rank"), "expected all, fast, or some of"),
        (("--outcome", "ugly"), "ugly"),
        (("--outcome", "7"), "7"),
        (("--budget", "0"), "budget"),
        (("--top", "0"), "top"),
        (("--resume", "nothing.safetensors"), "nothing.safetensors"),
        (("--out", "no/such/directory/e.safetensors"), "no/such/directory"),
    ],
)
def test_bad_input_is_answered(classifier: str, arguments: tuple[str, ...], said: str) -> None:
    code, shown = invoke(classifier, TEXT, *arguments)
    assert code != 0 and said in shown.replace("\n", " ") and "Traceback" not in shown


def test_a_bare_encoder_asks_for_an_outcome() -> None:
    code, shown = invoke("minilm", "A cat sat.")
    assert code != 0 and "similarity:" in shown
