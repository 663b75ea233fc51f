"""Figure 2a for the linear probes: all layers and folds, against one plain PyTorch loop for each layer and fold.

    python benchmarks/tokens.py [CORPUS] [--model minilm] [--loss cosine] [--layers 0,5] [--plain-folds 1] [--search]

CORPUS is a file of texts; by default the sentences of the built-in pairs and passages. CPU seconds of one
thread, in one run. The plain loop is what one writes first: nn.Linear, torch.optim.Adam, a
DataLoader, and a walk over the validation sentences after each epoch; the lean one slices shuffled rows instead
of using a DataLoader. Same recipe, splits and stopping rule as ours. The plain loops run on the first
`--plain-folds` folds and their seconds are scaled to all; ours runs on all folds, or with --adam-folds on fewer,
scaled likewise.
"""

import argparse
import copy
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from claims import at_least
from timing import one_thread
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import identiscope
from identiscope.corpus.hidden_state_cache import capture_hidden_states
from identiscope.corpus.readers import Corpus, Text, read_corpus
from identiscope.corpus.splits import split_sentences
from identiscope.methods.tokens.direct_fit import fit_linear_directly
from identiscope.methods.tokens.identification import score
from identiscope.methods.tokens.pairs import Pairs
from identiscope.methods.tokens.probes import SEARCHED_RATES, Probe, ProbeSet, Recipe
from identiscope.methods.tokens.sentences import Sentences, Split
from identiscope.methods.tokens.training import fit_probes


def built_in_sentences() -> list[Text]:
    parts = [part for name in ("pairs", "passages") for text in Corpus(name).read() for part in text.parts]
    sentences = [sentence for part in parts for sentence in re.split(r"(?<=[.?!]) ", part)]
    return [Text((sentence,)) for sentence in dict.fromkeys(sentences)]


def plain_rate(model: nn.Module, hidden: Tensor, inputs: Tensor, lengths: list[int], loss: str) -> float:
    """Walk over the sentences and look every token up in its own."""
    right = start = 0
    with torch.no_grad():
        for length in lengths:
            own = inputs[start : start + length]
            predicted = model(hidden[start : start + length])
            if loss == "cosine":
                nearest = (nn.functional.normalize(predicted, dim=1) @ nn.functional.normalize(own, dim=1).T).argmax(1)
            else:
                nearest = torch.cdist(predicted, own).argmin(1)
            right += int((nearest == torch.arange(length)).sum())
            start += length
    return right / start


def lean_batches(hidden: Tensor, inputs: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    for rows in torch.randperm(len(hidden)).split(size):
        yield hidden[rows], inputs[rows]


def plain_loop(
    hidden: Tensor,
    inputs: Tensor,
    sentences: Sentences,
    split: Split,
    loss: str,
    rate: float,
    recipe: Recipe,
    lean: bool,
) -> tuple[nn.Module, float, int]:
    """Train one linear probe; return it, its best validation rate and the epochs it took."""
    torch.manual_seed(recipe.seed)
    rows = sentences.rows(split.train)
    x, y = hidden[rows], inputs[rows]
    chosen = sentences.rows(split.validation)
    validation = hidden[chosen], inputs[chosen], sentences.lengths[split.validation].tolist()
    model = nn.Linear(hidden.shape[1], inputs.shape[1], bias=False)
    nn.init.xavier_uniform_(model.weight)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    loader = None if lean else DataLoader(TensorDataset(x, y), batch_size=recipe.batch_size, shuffle=True)
    best, best_epoch, kept = -1.0, 0, None
    for epoch in range(recipe.maximum_epochs):
        for batch, goal in lean_batches(x, y, recipe.batch_size) if loader is None else loader:
            optimiser.zero_grad()
            predicted = model(batch)
            if loss == "cosine":
                value = (1 - nn.functional.cosine_similarity(predicted, goal)).mean()
            else:
                value = (predicted - goal).square().sum(1).mean()
            value.backward()
            optimiser.step()
        reached = plain_rate(model, *validation, loss)
        if reached >= best:
            kept = copy.deepcopy(model.state_dict())
        if reached > best:
            best, best_epoch = reached, epoch
        if epoch - best_epoch >= recipe.patience:
            break
    assert kept is not None
    model.load_state_dict(kept)
    return model, best, epoch + 1


def plain(pairs: Pairs, splits: list[Split], loss: str, recipe: Recipe, lean: bool) -> tuple[Tensor, Tensor]:
    """Test rates and epochs [layer, fold] of the plain loop; with several learning rates, the best on validation."""
    rates, epochs = torch.zeros(2, len(pairs.states), len(splits), dtype=torch.float64)
    for layer, hidden in enumerate(pairs.states):
        for fold, split in enumerate(splits):
            runs = [
                plain_loop(hidden, pairs.targets[0], pairs.sentences, split, loss, rate, recipe, lean)
                for rate in recipe.learning_rates
            ]
            model = max(runs, key=lambda run: run[1])[0]
            chosen = pairs.sentences.rows(split.test)
            lengths = pairs.sentences.lengths[split.test].tolist()
            rates[layer, fold] = plain_rate(model, hidden[chosen], pairs.targets[0][chosen], lengths, loss)
            epochs[layer, fold] = sum(run[2] for run in runs)
    return rates, epochs


def ours(pairs: Pairs, splits: list[Split], fit: Callable[[Pairs, list[Split]], ProbeSet]) -> tuple[Tensor, Tensor]:
    probes = fit(pairs, splits)

    def of(layer: int) -> Callable[[int], Probe]:
        return lambda fold: probes.probe(layer, fold)

    sets = [split.test for split in splits]
    scores = [score(of(layer), hidden, pairs, layer, sets, resamples=1) for layer, hidden in enumerate(pairs.states)]
    return torch.stack([one.folds for one in scores]), probes.epochs


def timed(
    work: Callable[[], tuple[Tensor, Tensor]], folds: int, all_folds: int, compared: int
) -> tuple[float, Tensor, Tensor]:
    """CPU seconds scaled to all folds, test rates of the folds that every way has run, and epochs."""
    begin = time.process_time()
    rates, epochs = work()
    return (time.process_time() - begin) * all_folds / folds, rates[:, :compared], epochs


def report(name: str, seconds: float, baseline: float, rates: Tensor, epochs: Tensor) -> None:
    shown = " ".join(f"{100 * rate:5.1f}" for rate in rates.mean(1).tolist())
    mean = float(epochs.double().mean())
    print(f"{name:34s} {seconds:9.1f} s {baseline / seconds:8.1f}×   {shown}   {mean:6.1f} epochs", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?")
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--loss", default="cosine", choices=["cosine", "l2"])
    parser.add_argument("--layers", default="5", help="only these, from 0: 0,5; all if empty")
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--plain-folds", type=int, default=1)
    parser.add_argument("--adam-folds", type=int, default=1)
    parser.add_argument("--search", action="store_true", help="search the paper's seven learning rates")
    parser.add_argument("--epochs", type=int, default=400, help="at most so many, on all sides")
    parser.add_argument("--limit", type=int, help="only so many texts")
    options = parser.parse_args()
    one_thread()
    with tempfile.TemporaryDirectory() as directory:
        texts = list(read_corpus(options.corpus, limit=options.limit) if options.corpus else built_in_sentences())
        cache = capture_hidden_states(identiscope.load(options.model), texts, directory)
        layers = [int(layer) for layer in (options.layers or "").split(",") if layer] or range(cache.layers)
        # In memory for both sides.
        states = [cache.layer(layer).clone() for layer in layers]
        pairs = Pairs(states, [cache.embeddings.clone()], Sentences(cache.lengths))
    splits = split_sentences(pairs.sentences.count, folds=options.folds)
    recipe = Recipe(maximum_epochs=options.epochs)
    if options.search:
        recipe = replace(recipe, learning_rates=SEARCHED_RATES)
    few, some = splits[: options.plain_folds], splits[: options.adam_folds]
    common = min(len(few), len(some))
    print(f"{options.model}, layers {list(layers)}, {pairs.sentences.tokens} tokens, linear {options.loss} probe,")
    print(f"learning rates {recipe.learning_rates}, {options.folds} folds;")
    print(f"test rates (%) by layer, on fold 1 to {common}\n")
    loader, *found = timed(lambda: plain(pairs, few, options.loss, recipe, False), len(few), options.folds, common)
    report("plain loop, DataLoader", loader, loader, *found)
    lean, *found = timed(lambda: plain(pairs, few, options.loss, recipe, True), len(few), options.folds, common)
    report("plain loop, sliced rows", lean, loader, *found)

    def adam(pairs: Pairs, splits: list[Split]) -> ProbeSet:
        return fit_probes(pairs, splits, loss=options.loss, recipe=recipe)

    def direct(pairs: Pairs, splits: list[Split]) -> ProbeSet:
        return fit_linear_directly(pairs, splits, loss=options.loss)

    together, *found = timed(lambda: ours(pairs, some, adam), len(some), options.folds, common)
    report("identiscope, Adam together", together, loader, *found)
    straight, *found = timed(lambda: ours(pairs, splits, direct), len(splits), options.folds, common)
    report("identiscope, direct", straight, loader, *found)
    print()
    at_least("probes trained together, against a plain loop with a DataLoader", loader / together, 1.2, "×")
    at_least("probes trained together, against a lean plain loop", lean / together, 1, "×")
    at_least("probes solved directly, against a plain loop with a DataLoader", loader / straight, 10, "×")
    at_least("probes solved directly, against a lean plain loop", lean / straight, 5, "×")


if __name__ == "__main__":
    main()
