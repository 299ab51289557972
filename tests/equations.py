"""How a network is compared with its equations: row by row, by loops in float64."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tests.networks import random_rows, small
from torch import Tensor

from fm2.models import DeepModel

Parameters = dict[str, Tensor]


def random_model(name: str, **options) -> DeepModel:
    """Build a small network with random weights everywhere, biases included, in float64."""
    model = small(name, **options).double()
    source = torch.Generator().manual_seed(9)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.5, generator=source)
    return model


def vectors_of(model: DeepModel, parameters: Parameters, row: Tensor, table: str = "embedding") -> list[Tensor]:
    """Look the weights of a row up one by one: a vector per field."""
    held, weight = model.tables[table], parameters[f"{table}.weight"]
    return [weight[held.offsets[f] + int(i) * held.dims[f] :][: held.dims[f]] for f, i in enumerate(row)]


def perceptron(parameters: Parameters, x: Tensor, name: str = "mlp", layers: int = 2) -> Tensor:
    """Apply hidden layers, and the last one if there is one."""
    for layer in range(layers):
        x = torch.relu(parameters[f"{name}.layers.{layer}.weight"] @ x + parameters[f"{name}.layers.{layer}.bias"])
    if f"{name}.last.weight" not in parameters:
        return x
    x = parameters[f"{name}.last.weight"] @ x + parameters[f"{name}.last.bias"]
    return x[0] if len(x) == 1 else x


def assert_follows(model: DeepModel, equation: Callable[[DeepModel, Parameters, list[Tensor], Tensor], Tensor]) -> None:
    """Compare logits and all gradients with an equation's: of the model, its parameters, a row's embeddings and ids."""
    ids = torch.from_numpy(random_rows(6)[0])
    parameters = {key: value.detach().clone().requires_grad_() for key, value in model.named_parameters()}
    expected = []
    for row in ids:
        logit = parameters["bias"] + equation(model, parameters, vectors_of(model, parameters, row), row)
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
