"""`identiscope rewrite`: a model that is saved computes what it did, and nothing is written of what is refused."""

import errno
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import identiscope
from identiscope.capture.rewriting.rewriting import Rewritten
from identiscope.cli import main
from tiny_text_model import save_tiny, words


def test_it_is_written_and_read_again(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    out = tmp_path / "rewritten"
    done = CliRunner().invoke(main, ["rewrite", str(folder), "value_bias,head_order", "-o", str(out), "--seed", "3"])
    assert done.exit_code == 0, done.output
    assert "rewritten by value_bias, head_order (seed 3)" in done.output and "saved: " in done.output
    text = words(9, seed=0)
    before, after = (identiscope.trace(str(one), text) for one in (folder, out))
    torch.testing.assert_close(after.hidden_states[-1], before.hidden_states[-1], atol=1e-4, rtol=1e-4)
    assert after.tokens == before.tokens
    assert not torch.allclose(before.site(0).value, after.site(0).value)
    assert "another order" not in done.output
    done = CliRunner().invoke(main, ["rewrite", str(folder), "residual_permutation", "-o", str(tmp_path / "permuted")])
    assert "its states have their coordinates in another order (rewriting.json)" in done.output


def test_what_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    out = tmp_path / "rewritten"
    for how, words_of_it in (("sideways", "expected one or several"), ("residual_rotation", "not open to")):
        done = CliRunner().invoke(main, ["rewrite", str(folder), how, "-o", str(out)])
        assert done.exit_code != 0 and words_of_it in str(done.exception)
        assert not out.exists()
    done = CliRunner().invoke(main, ["rewrite", str(folder), "value_bias", "-o", "n" * 300])
    assert "give a shorter one" in str(done.exception)

    # Saving fails midway, as on a full disk.
    def save(self: object, place: Path) -> None:
        (place / "config.json").write_bytes(b"{")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Rewritten, "save_pretrained", save)
        done = CliRunner().invoke(main, ["rewrite", str(folder), "value_bias", "-o", str(out)])
    assert "the disk is full" in str(done.exception)
    assert [one.name for one in tmp_path.iterdir()] == ["model"]
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    done = CliRunner().invoke(main, ["rewrite", str(folder), "value_bias", "-o", str(out)])
    assert "not empty" in str(done.exception) and [one.name for one in out.iterdir()] == ["mine.txt"]
