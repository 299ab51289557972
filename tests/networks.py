"""What the tests of networks share: small ones, rows to learn by heart, and torch's own count of operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from fm2.models import DeepModel, FlatEmbedding, build
from fm2.networks import NETWORKS

SIZES = [12, 9, 12, 7]
OWN_DIMS = [3, 1, 4, 2]
SMALL = {"hidden": (16, 8), "second_hidden": (12, 8), "mask_blocks": (6, 4)}
PAPER = {"field_sizes": [2] * 39, "dims": 16}  # the paper's n and K; its perceptrons have three layers of 200


def options(name: str, **wanted: Any) -> dict[str, Any]:
    """Give those of the wanted options that a network has."""
    return {key: value for key, value in wanted.items() if key in NETWORKS[name].option_names}


def small(name: str, seed: int | None = 0, **changes: Any) -> DeepModel:
    """Build a small network with embeddings of order 1."""
    config = {"model": name, "field_sizes": SIZES, "dims": 4, "embedding_scale": 0.5, **options(name, **SMALL)}
    model = build({**config, **changes}, seed)
    assert isinstance(model, DeepModel)
    return model


def random_model(name: str, **changes: Any) -> DeepModel:
    """Build a small network in float64 whose parameters are all of order 1, those too that begin at zero."""
    model, source = small(name, **changes).double(), torch.Generator().manual_seed(9)
    for parameter in model.parameters():
        parameter.data.normal_(generator=source)
    return model


def random_rows(rows: int, sizes=SIZES, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw ids and labels that have nothing to do with each other."""
    random = np.random.default_rng(seed)
    ids = random.integers(0, sizes, (rows, len(sizes)), dtype=np.int32)
    return ids, random.integers(0, 2, rows).astype(np.float32)


def counted_flops(model: DeepModel, rows: int = 7) -> float:
    """Let torch count the operations of its matrix products, per row."""
    ids = torch.zeros(rows, len(model.field_sizes), dtype=torch.int64)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(ids)
    return counter.get_total_flops() / rows


def layer(parameters: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """Apply a linear layer to one row."""
    return parameters[f"{name}.weight"] @ x + parameters[f"{name}.bias"]


def perceptron(parameters: Mapping[str, Tensor], x: Tensor, layers: int = 2) -> Tensor:
    """Apply the model's ``mlp`` to one row."""
    for at in range(layers):
        x = torch.relu(layer(parameters, f"mlp.layers.{at}", x))
    return layer(parameters, "mlp.last", x)[0]


def rows_of(table: FlatEmbedding, weight: Tensor, ids: Tensor) -> list[list[Tensor]]:
    """Look embeddings up one by one: a list of vectors per row."""
    return [
        [weight[table.offsets[f] + int(i) * table.dims[f] :][: table.dims[f]] for f, i in enumerate(row)] for row in ids
    ]


def compare_with_literal(model: DeepModel, literal: Callable[..., Tensor]) -> None:
    """Compare logits and all gradients with ``literal(model, parameters, vectors)``, which gives one row's network."""
    ids = torch.from_numpy(random_rows(6)[0])
    parameters = {key: value.detach().clone().requires_grad_() for key, value in model.named_parameters()}
    found = []
    for row, vectors in zip(ids, rows_of(model.embedding, parameters["embedding.weight"], ids), strict=True):
        logit = parameters["bias"] + literal(model, parameters, vectors)
        if model.linear is not None:
            logit = logit + torch.stack(rows_of(model.linear, parameters["linear.weight"], row[None])[0]).sum()
        found.append(logit)
    expected, logits = torch.stack(found), model(ids)
    torch.testing.assert_close(logits, expected, rtol=1e-11, atol=1e-11)
    g = torch.linspace(-1, 2, len(ids), dtype=torch.float64)
    expected.backward(g)
    logits.backward(g)
    for key, value in model.named_parameters():
        torch.testing.assert_close(value.grad, parameters[key].grad, rtol=1e-9, atol=1e-9, msg=key)
