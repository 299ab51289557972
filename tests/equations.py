"""How a network is compared with its paper's equations: row by row, by loops, in float64, logits and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tests.networks import random_rows, small
from torch import Tensor

from fm2.models import DeepModel

# From a model, its parameters by name and a row's embeddings, one per field, to a logit without bias and linear part.
Equation = Callable[[DeepModel, dict[str, Tensor], list[Tensor]], Tensor]


def random_model(name: str, **options: Any) -> DeepModel:
    """Build a small network in float64 whose parameters are all of order 1."""
    model = small(name, **options).double()
    source = torch.Generator().manual_seed(9)
    for parameter in model.parameters():
        parameter.data.normal_(generator=source)
    return model


def perceptron(parameters: dict[str, Tensor], x: Tensor, layers: int = 2) -> Tensor:
    """Give the output of the perceptron called ``mlp``, with hidden layers as ``small`` has them."""
    for layer in range(layers):
        x = torch.relu(parameters[f"mlp.layers.{layer}.weight"] @ x + parameters[f"mlp.layers.{layer}.bias"])
    return parameters["mlp.last.weight"][0] @ x + parameters["mlp.last.bias"][0]


def assert_follows(equation: Equation, model: DeepModel) -> None:
    """Compare logits and all gradients with those of the equation."""
    ids = torch.from_numpy(random_rows(6)[0])
    parameters = {key: value.detach().clone().requires_grad_() for key, value in model.named_parameters()}
    expected, logits = torch.stack([_logit(equation, model, parameters, row) for row in ids]), model(ids)
    torch.testing.assert_close(logits, expected, rtol=1e-11, atol=1e-11)
    g = torch.linspace(-1, 2, len(ids), dtype=torch.float64)
    expected.backward(g)
    logits.backward(g)
    for key, value in model.named_parameters():
        torch.testing.assert_close(value.grad, parameters[key].grad, rtol=1e-10, atol=1e-10, msg=key)


def _logit(equation: Equation, model: DeepModel, parameters: dict[str, Tensor], row: Tensor) -> Tensor:
    logit = parameters["bias"] + equation(
        model, parameters, _vectors(model.embedding, parameters["embedding.weight"], row)
    )
    if model.linear is None:
        return logit
    return logit + sum(_vectors(model.linear, parameters["linear.weight"], row))[0]


def _vectors(table: Any, weight: Tensor, row: Tensor) -> list[Tensor]:
    return [weight[table.offsets[f] + int(i) * table.dims[f] :][: table.dims[f]] for f, i in enumerate(row)]


def degree(model: DeepModel, most: int = 8) -> int:
    """Give the degree, below ``most``, of the polynomial that a network is along lines in the space of embeddings.

    The differences of order d of a polynomial at equal steps vanish where its degree is less than d, and only there.
    """
    source = torch.Generator().manual_seed(5)
    start, direction = torch.randn(2, 10, 1, model.embedding.width, generator=source, dtype=torch.float64)
    steps = torch.linspace(-1, 1, most + 1, dtype=torch.float64)
    points = start + steps[:, None] * direction
    with torch.no_grad():
        values = model.network(points.flatten(0, 1)).view(10, most + 1)
    orders = [values.diff(order, dim=1).abs().max() / values.abs().max() for order in range(most + 1)]
    return max(order for order, size in enumerate(orders) if size > 1e-9)
