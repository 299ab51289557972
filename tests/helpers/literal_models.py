"""The literal equations with a model's parameters: the expected logits and gradients."""

from __future__ import annotations

from itertools import combinations

import torch
from tests.helpers import literal


def logits(model, parameters, ids):
    """The logits of a model whose parameters, by name, are these float64 tensors; see ``literal.one_hot`` for rows."""
    return torch.stack([logit(model.config, parameters, row) for row in ids])


def logit(config, parameters, row):
    sizes = config["field_sizes"]
    F, _ = literal.features(sizes)
    x = literal.one_hot(row, sizes)
    total = parameters["bias"]
    if "linear.weight" in parameters:
        total = literal.linear(x, total, parameters["linear.weight"])
    if "field_linear" in parameters:
        vectors = torch.split(parameters["field_linear"], config["dims"])
        total = literal.field_linear(x, F, total, embeddings(config, parameters), vectors)
    return total + PAIRS[config["model"]](config, parameters, x, F)


def lr(config, parameters, x, F):
    return 0.0


def poly2(config, parameters, x, F):
    _, first = literal.features(config["field_sizes"])

    def h(i, j):
        return literal.pair_hash((F[i], i - first[F[i]]), (F[j], j - first[F[j]]), config["hash_bits"])

    return literal.poly2_pairs(x, F, parameters["pairs.weight"], h)


def ffm(config, parameters, x, F):
    n, dim = len(config["field_sizes"]), config["dim"]
    v = []
    table = rows(parameters["embedding.weight"], config["field_sizes"], [(n - 1) * dim] * n)
    for i, row in enumerate(table):
        others = [field for field in range(n) if field != F[i]]
        v.append(dict(zip(others, torch.split(row, dim), strict=True)))
    return literal.ffm_pairs(x, F, v)


def fm(config, parameters, x, F):
    v = embeddings(config, parameters)
    return literal.fm_pairs(x, F, v, config.get("signs"))


def fwfm(config, parameters, x, F):
    v = embeddings(config, parameters)
    pairs = combinations(range(len(config["dims"])), 2)
    r = dict(zip(pairs, parameters["interaction.weight"][:, 0], strict=True))
    return literal.fwfm_pairs(x, F, v, r)


def fvfm(config, parameters, x, F):
    v = embeddings(config, parameters)
    pairs = combinations(range(len(config["dims"])), 2)
    return literal.fvfm_pairs(x, F, v, dict(zip(pairs, parameters["interaction.weight"], strict=True)))


def fmfm(config, parameters, x, F):
    v = embeddings(config, parameters)
    return literal.fmfm_pairs(x, F, v, field_matrices(parameters["interaction.weight"], config["dims"]))


PAIRS = {"lr": lr, "poly2": poly2, "ffm": ffm, "fm": fm, "fwfm": fwfm, "fvfm": fvfm, "fmfm": fmfm}


def embeddings(config, parameters):
    """The vector of every feature. Fields with the same owner share their vectors, stored at the first of them."""
    sizes, dims = config["field_sizes"], config["dims"]
    owners = config.get("owners", list(range(len(sizes))))
    stored = list(dict.fromkeys(owners))
    tables = iter(rows(parameters["embedding.weight"], [sizes[f] for f in stored], [dims[f] for f in stored]))
    vectors = {field: [next(tables) for _ in range(sizes[field])] for field in stored}
    return [vector for owner in owners for vector in vectors[owner]]


def rows(weight, sizes, dims):
    """The vector of every feature, from a flat table."""
    lengths = [dim for size, dim in zip(sizes, dims, strict=True) for _ in range(size)]
    return torch.split(weight, lengths)


def field_matrices(weight, dims):
    """The field matrices by pair; packed are, for each field i, the rows of its matrices with all later fields."""
    entries = iter(weight)
    matrices = {(i, j): [[] for _ in range(dims[i])] for i, j in combinations(range(len(dims)), 2)}
    for i in range(len(dims)):
        for k in range(dims[i]):
            for j in range(i + 1, len(dims)):
                for _ in range(dims[j]):
                    matrices[i, j][k].append(next(entries))
    return matrices
