"""One line of the registry brings a method into everything: toys, registered while a test lasts, show it."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import Tensor

matplotlib.use("Agg")
from matplotlib.figure import Figure

import contract
import identiscope
from identiscope.errors import InputError
from identiscope.methods.kinds import KINDS
from identiscope.methods.registry import METHODS, Method, map_names, method, registered
from tiny_text_model import save_tiny, words

PROJECT = Path(__file__).parents[1]
SOURCE = Path(identiscope.__file__).parent


def toy_half(attention: Tensor, *, share: float = 0.5) -> Tensor:
    """A share of raw attention.

    share: how much of it.

    >>> toy_half(torch.ones(1, 1, 1))
    tensor([[[0.5000]]])
    """
    return share * attention


def toy_mean(attention: Sequence[Tensor]) -> Tensor:
    """Attention of each layer, averaged over its heads, each row by what it sums to.

    >>> toy_mean([torch.eye(2)[None]])
    tensor([[[1., 0.],
             [0., 1.]]])
    """
    means = [layer.mean(0) for layer in attention]
    return torch.stack([one / one.sum(-1, keepdim=True) for one in means])


def toy_peak(attention: Tensor) -> Tensor:
    """The largest weight of each head.

    >>> toy_peak(torch.eye(2)[None])
    tensor([1.])
    """
    return attention.flatten(1).amax(1)


def toy_even(attention: Sequence[Tensor]) -> Tensor:
    """How even the attention of each layer is: one over the mean square of its rows' sizes.

    >>> toy_even([torch.eye(2)[None]])
    tensor([1.])
    """
    return torch.stack([layer.square().sum(-1).mean() for layer in attention])


def toy_length(embeddings: Tensor) -> Tensor:
    """How long each input embedding is.

    >>> toy_length(torch.ones(1, 4))
    tensor([2.])
    """
    lengths: Tensor = torch.linalg.vector_norm(embeddings, dim=-1)
    return lengths


def toy_change(hidden_states: Sequence[Tensor]) -> Tensor:
    """How far each block moves each token.

    >>> toy_change([torch.zeros(1, 4), torch.ones(1, 4)])
    tensor([[2.]])
    """
    return torch.stack([(after - before).norm(dim=-1) for before, after in pairwise(hidden_states)])


@dataclass(frozen=True)
class Bounds:
    """By cell [cell]: which it is, its weight, and between what it may lie."""

    query: Tensor
    key: Tensor
    weight: Tensor

    def arrays(self) -> dict[str, tuple[tuple[str, ...], Tensor]]:
        cells = {"query": self.query, "key": self.key, "weight": self.weight}
        cells |= {"lower": torch.zeros_like(self.weight), "upper": torch.ones_like(self.weight)}
        return {name: (("cell",), values) for name, values in cells.items()}


def toy_bounds(attention: Tensor, *, row: int = 0) -> Bounds:
    """Between nothing and all: what is known of the weights of one row before anything is computed.

    row: of which query.

    >>> toy_bounds(torch.eye(2)[None]).weight
    tensor([1., 0.])
    """
    keys = torch.arange(attention.shape[-1], device=attention.device)
    return Bounds(torch.full_like(keys, row), keys, attention[0, row])


def toy_same(attention: Tensor, *, turns: int = 1) -> Tensor:
    """The maps of a layer that give its output, of which its own are some. turns: how often that is said.

    >>> toy_same(torch.eye(2)[None])
    tensor([[[1., 0.],
             [0., 1.]]])
    """
    return attention.clone()


TOYS = {
    "toy_half": Method(
        "toy_half", "map", "nobody", "half of attention", ("fast", "weights"), ("halved",), function=toy_half
    ),
    "toy_bounds": Method("toy_bounds", "freedom", "nobody", "what is always known of a weight", function=toy_bounds),
    "toy_same": Method("toy_same", "layer", "nobody", "the maps that a layer has", function=toy_same),
    "toy_mean": Method("toy_mean", "mixture", "nobody", "attention averaged over heads", function=toy_mean),
    "toy_peak": Method("toy_peak", "head", "nobody", "the largest weight of a head", function=toy_peak),
    "toy_even": Method("toy_even", "prediction", "nobody", "how even attention is", function=toy_even),
    "toy_length": Method("toy_length", "score", "nobody", "the length of an input embedding", function=toy_length),
    "toy_change": Method("toy_change", "token", "nobody", "how far a block moves a token", function=toy_change),
}
MORE = contract.Case("BERT", tuple(contract.MANY))


def test_there_is_a_toy_of_every_kind() -> None:
    assert {toy.kind for toy in TOYS.values()} == set(KINDS)


def needed(toy: Method) -> dict[str, Any]:
    """What a method of its kind must be told: of freedom, the head."""
    return {"layer": 1, "head": 2} if toy.family.scope == "head" else {}


@pytest.fixture(params=TOYS)
def toy(request: pytest.FixtureRequest) -> Iterator[Method]:
    with registered(TOYS[request.param]) as one:
        yield one


def test_it_is_a_function_of_the_library(toy: Method) -> None:
    assert toy.name in dir(identiscope)
    function = getattr(identiscope, toy.name)
    found = function(contract.trace(MORE), **needed(toy))
    assert found.attrs["method"] == toy.name and found.attrs["kind"] == toy.kind
    assert function.__name__ == toy.name and toy.paper in function.__doc__ and "identiscope." in function.__doc__
    contract.assert_same(found, identiscope.ask(toy.name, contract.trace(MORE), **needed(toy)))


def test_it_is_gone_when_the_block_is_left() -> None:
    with registered(TOYS["toy_half"]):
        pass
    assert "toy_half" not in dir(identiscope) and "toy_half" not in METHODS
    with pytest.raises(AttributeError):
        _ = identiscope.toy_half
    with pytest.raises(InputError, match="no method 'toy_half'"):
        identiscope.ask("toy_half", contract.trace(MORE))


def test_its_options_and_aliases_are_known() -> None:
    with registered(TOYS["toy_half"]):
        found = identiscope.ask("halved", contract.trace(MORE), share=0.25)
        assert found.attrs["options"]["share"] == 0.25 and found.attrs["method"] == "toy_half"
        raw = identiscope.attention(contract.trace(MORE))
        np.testing.assert_array_equal(found["toy_half"], 0.25 * raw["attention"])
        with pytest.raises(InputError, match="shore"):
            identiscope.toy_half(contract.trace(MORE), shore=1)


def test_another_of_its_name_is_another() -> None:
    def toy_half(attention: Tensor) -> Tensor:
        """Double.

        >>> toy_half(attention)
        """
        return 2 * attention

    results = []
    for function in (TOYS["toy_half"].function, toy_half):
        with registered(Method("toy_half", "map", "nobody", "the same line", function=function)):
            results.append(identiscope.toy_half(contract.trace(MORE)))
    np.testing.assert_array_equal(4 * results[0]["toy_half"], results[1]["toy_half"])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"name": "attention"}, "cannot be called 'attention'"),
        ({"name": "plot"}, "cannot be called 'plot'"),
        ({"aliases": ("raw",)}, "cannot be called"),
        ({"name": "no name"}, "cannot be called 'no name'"),
        ({"kind": "picture"}, "kind='picture' was given; there are map"),
        ({"tags": ("swift",)}, "tags=swift was given; there are fast"),
    ],
)
def test_a_line_that_cannot_be_is_refused(changed: dict[str, Any], words: str) -> None:
    line: dict[str, Any] = {"name": "toy", "kind": "map", "paper": "nobody", "says": "a toy", "function": toy_half}
    before = dict(METHODS)
    with pytest.raises(InputError, match=words), registered(Method(**(line | changed))):
        pass
    assert before == METHODS


def test_a_map_of_weights_stands_beside_raw_attention(tiny: str) -> None:
    with registered(TOYS["toy_half"]):
        maps = identiscope.attention_maps(contract.trace(MORE), 1, 2)
        np.testing.assert_array_equal(2 * maps["toy_half"], maps["raw"])
        done = command("attention", tiny, words(9), "--layer", "0", "--head", "1", "--method", "toy_half")
    assert done.exit_code == 0 and "by toy_half attention" in done.output


def test_it_is_drawn_and_kept_in_files(toy: Method, tmp_path: Path) -> None:
    found = identiscope.ask(toy.name, contract.trace(MORE), **needed(toy))
    assert identiscope.plot(found, Figure().add_subplot()).has_data()
    assert found.identiscope.plot(Figure().add_subplot()).has_data()
    again = identiscope.load_result(identiscope.save_result(found, tmp_path / "toy"))
    contract.assert_same(again, found)


def test_a_file_of_it_is_drawn_where_nobody_knows_it(tmp_path: Path) -> None:
    with registered(TOYS["toy_mean"]):
        path = identiscope.save_result(identiscope.toy_mean(contract.trace(MORE)), tmp_path / "toy")
    assert identiscope.plot(identiscope.load_result(path), Figure().add_subplot()).has_data()


def test_the_contract_runs_on_it(toy: Method, tmp_path: Path) -> None:
    contract.check_everything(toy, tmp_path)


def test_it_is_in_the_list_of_the_documentation(toy: Method, generate: Any) -> None:
    page = generate.method_index()
    assert f"`{toy.name}`" in page and toy.says in page
    skeleton = generate.method_skeleton(toy.name)
    assert all(re.search(part, skeleton, flags=re.MULTILINE) for part in generate.PARTS_OF_A_PAGE.values())


def test_listing_methods_loads_nothing_heavy() -> None:
    code = (
        "import sys; from identiscope.methods.registry import METHODS; from identiscope.methods.signatures import"
        " signature; [signature(one) for one in METHODS.values()];"
        " print(sorted({'torch', 'numpy', 'xarray', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# The command line, Runs, reports and comparison.


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("spine") / "model"))


def command(*arguments: str) -> Any:
    from identiscope.cli import main

    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def test_the_command_line_has_it(toy: Method, tiny: str, tmp_path: Path) -> None:
    assert toy.says in command("method", "--help").output
    place = [part for name, number in needed(toy).items() for part in (f"--{name}", str(number))]
    done = command("method", toy.name, tiny, words(9), *place, "--out", str(tmp_path / "out.safetensors"))
    assert done.exit_code == 0, done.output
    assert identiscope.load_result(tmp_path / "out.safetensors").attrs["method"] == toy.name


def test_a_run_has_it(toy: Method, tiny: str, tmp_path: Path) -> None:
    if not toy.family.run_axes:
        corpus = tmp_path / "texts.txt"
        corpus.write_text(words(5, 5), encoding="utf-8")
        with pytest.raises(InputError, match=rf"methods \['{toy.name}'\] were asked for"):
            command("run", tiny, str(corpus), "--methods", toy.name, "--out", str(tmp_path / "run"))
        return
    corpus = tmp_path / "texts.txt"
    corpus.write_text("\n".join(words(count, count) for count in (9, 5)), encoding="utf-8")
    done = command("run", tiny, str(corpus), "--methods", toy.name, "--out", str(tmp_path / "run"))
    assert done.exit_code == 0, done.output
    run = identiscope.open_run(tmp_path / "run")
    assert toy.name in run.methods and run.to_xarray(toy.name).sizes["text"] == 2


def test_a_report_has_it(toy: Method, tiny: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = command("report", tiny, words(9), "--with", toy.name, "--out", str(page))
    assert done.exit_code == 0, done.output
    written = page.read_text(encoding="utf-8")
    assert toy.name in written or f'"title":"{toy.name.replace("_", " ").capitalize()}' in written


def test_a_server_offers_it(toy: Method) -> None:
    from identiscope.views.server.questions import choices, read_question

    (offered,) = [one for one in choices() if one.name == toy.name]
    assert toy.says in offered.note and offered.group == toy.family.says
    assert read_question({"model": 0, "text": "words", "methods": [toy.name]}, 1, 99).methods == (toy.name,)


def test_two_of_a_kind_are_compared(tiny: str) -> None:
    with registered(TOYS["toy_half"]):
        done = command("compare", tiny, words(9), "--methods", "attention,toy_half")
    assert done.exit_code == 0, done.output
    assert "toy_half" in done.output


# No method's name stands in a second list. One name, or two, is a question about these methods; three or more in one
# list, tuple, set or dictionary (as items, keys, or firsts of pairs) are a list that the next method would be missing
# in. The folder of a paper is left out: it says which methods the paper is of, and a new method is not.
A_LIST = 3


def lists_of_methods(source: str, names: set[str]) -> list[tuple[int, list[str]]]:
    """Displays of Python that name several methods: their line, and which. Keys and items count, and what is nested."""
    lists = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.List, ast.Tuple, ast.Set, ast.Dict)):
            parts = [part for part in node.keys if part] if isinstance(node, ast.Dict) else list(node.elts)
            # The first of a nested one, too, as in a list of pairs.
            parts += [part.elts[0] for part in parts if isinstance(part, (ast.List, ast.Tuple)) and part.elts]
            texts = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
            if len(texts & names) >= A_LIST:
                lists.append((node.lineno, sorted(texts & names)))
    return lists


def lists_of_methods_in_javascript(source: str, names: set[str]) -> list[list[str]]:
    """Brackets or braces of JavaScript, innermost ones, that name several methods as texts or keys."""
    plain = re.sub(r"//[^\n]*|/\*.*?\*/", "", source, flags=re.DOTALL)
    lists = []
    for display in re.findall(r"\[[^][]*\]|\{[^{}]*\}", plain):
        texts = set(re.findall(r"[\"'`](\w+)[\"'`]", display)) | set(re.findall(r"\b(\w+)\s*:", display))
        if len(texts & names) >= A_LIST:
            lists.append(sorted(texts & names))
    return lists


#: Raw attention goes by its alias among maps, so a list of maps would have that.
NAMES = {*METHODS, *map_names()}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_second_list_of_methods(path: Path) -> None:
    if path != SOURCE / "methods" / "registry.py" and SOURCE / "papers" not in path.parents:
        assert lists_of_methods(path.read_text(encoding="utf-8"), NAMES) == []


@pytest.mark.parametrize("path", sorted((SOURCE / "views" / "static").glob("*.js")), ids=lambda path: path.name)
def test_no_second_list_of_methods_in_javascript(path: Path) -> None:
    assert lists_of_methods_in_javascript(path.read_text(encoding="utf-8"), NAMES) == []


def test_a_second_list_is_seen() -> None:
    names = {"one", "two", "three"}
    seen = (
        '["one", "two", "three"]', 'x = ("one", "four", "two", "three")', '{"one": 1, "two": 2, "three": 3}',
        '{"one", "two", "three"}', '[("one", 1), ("two", 2), ("three", 3)]', 'f(*("one", "two", "three"))',
    )  # fmt: skip
    assert all(lists_of_methods(source, names) for source in seen)
    unseen = ('["one", "two"]', 'f("one"); g("two"); h("three")', "one, two, three = 1, 2, 3", '"one two three"')
    assert not any(lists_of_methods(source, names) for source in unseen)
    assert lists_of_methods_in_javascript("const all = ['one', \"two\", `three`];", names)
    assert lists_of_methods_in_javascript("const all = {one: 1, two: 2, three: 3};", names)
    assert not lists_of_methods_in_javascript("f('one'); // ['one', 'two', 'three']", names)


def test_every_method_is_where_its_kind_says() -> None:
    for one in METHODS.values():
        assert (SOURCE / "methods" / KINDS[one.kind].folder / f"{one.name}.py").is_file()
        assert method(one.name) is one
