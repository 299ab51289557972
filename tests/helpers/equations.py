"""Compare a network with its equations, row by row in float64."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

import torch
from tests.helpers import lists
from tests.helpers.lists import Values
from tests.helpers.networks import random_rows, small
from torch import Tensor

from fm2.data.rows import EncodedRows
from fm2.models import DeepModel, build
from fm2.models.rows import to_tensors

Parameters = dict[str, Tensor]


def random_model(name: str, **options) -> DeepModel:
    """Return a small network in float64 with random weights and biases."""
    model = small(name, **options).double()
    randomize(model)
    return model


def randomize(model: DeepModel) -> None:
    """Draw all parameters."""
    generator = torch.Generator().manual_seed(9)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.5, generator=generator)


def vectors_of(model: DeepModel, parameters: Parameters, row: list[Values], table: str = "embedding") -> list[Tensor]:
    """Look up the weights of a row, (id, weight) pairs by field: a vector per field, the weighted sum of its rows."""
    layout, weight = model.tables[table], parameters[f"{table}.weight"]
    vectors = []
    for field, values in enumerate(row):
        begin, dim = layout.offsets[field], layout.dims[field]
        terms = [factor * weight[begin + id * dim :][:dim] for id, factor in values]
        vectors.append(sum(terms, start=weight.new_zeros(dim)))
    return vectors


def layer(parameters: Parameters, name: str, x: Tensor) -> Tensor:
    """Apply a linear layer to one row."""
    return parameters[f"{name}.weight"] @ x + parameters[f"{name}.bias"]


def perceptron(parameters: Parameters, x: Tensor, name: str = "mlp", layers: int = 2) -> Tensor:
    """Apply the hidden layers, and the output layer if there is one."""
    for index in range(layers):
        x = torch.relu(layer(parameters, f"{name}.layers.{index}", x))
    if f"{name}.last.weight" not in parameters:
        return x
    x = layer(parameters, f"{name}.last", x)
    return x[0] if len(x) == 1 else x


def assert_follows(model: DeepModel, equation: Callable[..., Tensor]) -> None:
    """Compare logits and all gradients with those of an equation.

    ``equation(model, parameters, embeddings, row)`` returns a row's logit without bias and weights per feature; it can
    omit the last argument. Rows have single values, or lists of weighted values in some fields. If the dimensions
    allow it, a copy of the model whose field 2 uses the embeddings of field 0 is compared as well.
    """
    sizes = model.field_sizes
    assert_rows_follow(model, equation, EncodedRows(random_rows(6)[0]))
    assert_rows_follow(model, equation, lists.random_rows(sizes, [1, 2], 6, seed=1))
    assert_rows_follow(model, equation, lists.random_rows(sizes, [0, 1, 2, 3], 6, weighted=False, seed=2))
    if sizes[0] == sizes[2] and model.dims[0] == model.dims[2]:
        shared = build({**model.config, "owners": [0, 1, 0, 3]}).double()
        assert shared.n_parameters < model.n_parameters
        randomize(shared)
        assert_rows_follow(shared, equation, lists.random_rows(sizes, [2], 6, seed=3))


def assert_rows_follow(model: DeepModel, equation: Callable[..., Tensor], rows: EncodedRows) -> None:
    """Compare logits and all gradients of some rows with those of an equation."""
    parameters = {key: value.detach().clone().requires_grad_() for key, value in model.named_parameters()}
    expected = []
    for row in lists.rows_of_values(rows):
        arguments = (model, parameters, vectors_of(model, parameters, row), row)
        logit = parameters["bias"] + equation(*arguments[: len(signature(equation).parameters)])
        if "linear" in model.tables:
            logit = logit + torch.stack(vectors_of(model, parameters, row, "linear")).sum()
        expected.append(logit)
    logits, expected = model(to_tensors(rows)), torch.stack(expected)
    torch.testing.assert_close(logits, expected, rtol=1e-11, atol=1e-11)
    g = torch.linspace(-1, 2, len(rows), dtype=torch.float64)
    model.zero_grad()
    expected.backward(g)
    logits.backward(g)
    for key, value in model.named_parameters():
        torch.testing.assert_close(value.grad, parameters[key].grad, rtol=1e-10, atol=1e-10, msg=key)


def degree(model: DeepModel, most: int = 8) -> int:
    """Return the degree, below ``most``, of a network that is a polynomial of its embeddings.

    On a line through the space of embeddings, the finite differences of order d vanish if and only if d exceeds the
    degree.
    """
    generator = torch.Generator().manual_seed(5)
    start, direction = torch.randn(2, 10, 1, model.embedding.width, generator=generator, dtype=torch.float64)
    steps = torch.linspace(-1, 1, most + 1, dtype=torch.float64)
    points = start + steps[:, None] * direction
    with torch.no_grad():
        values = model.network(points.flatten(0, 1)).view(10, most + 1)
    orders = [values.diff(order, dim=1).abs().max() / values.abs().max() for order in range(most + 1)]
    return max(order for order, size in enumerate(orders) if size > 1e-9)
