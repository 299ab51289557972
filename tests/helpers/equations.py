"""Compare a network with its equations, row by row in float64."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

import torch
from tests.helpers.networks import random_rows, small
from torch import Tensor

from fm2.models import DeepModel

Parameters = dict[str, Tensor]


def random_model(name: str, **options) -> DeepModel:
    """Return a small network in float64 with random weights and biases."""
    model = small(name, **options).double()
    generator = torch.Generator().manual_seed(9)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.5, generator=generator)
    return model


def vectors_of(model: DeepModel, parameters: Parameters, row: Tensor, table: str = "embedding") -> list[Tensor]:
    """Look up the weights of a row: a vector per field."""
    layout, weight = model.tables[table], parameters[f"{table}.weight"]
    return [weight[layout.offsets[f] + int(i) * layout.dims[f] :][: layout.dims[f]] for f, i in enumerate(row)]


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

    ``equation(model, parameters, embeddings, ids)`` returns a row's logit without bias and weights per feature; it can
    omit the last argument.
    """
    ids = torch.from_numpy(random_rows(6)[0])
    parameters = {key: value.detach().clone().requires_grad_() for key, value in model.named_parameters()}
    expected = []
    for row in ids:
        arguments = (model, parameters, vectors_of(model, parameters, row), row)
        logit = parameters["bias"] + equation(*arguments[: len(signature(equation).parameters)])
        if "linear" in model.tables:
            logit = logit + torch.stack(vectors_of(model, parameters, row, "linear")).sum()
        expected.append(logit)
    logits, expected = model(ids), torch.stack(expected)
    torch.testing.assert_close(logits, expected, rtol=1e-11, atol=1e-11)
    g = torch.linspace(-1, 2, len(ids), dtype=torch.float64)
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
