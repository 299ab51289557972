"""The multi-layer perceptron of all networks: its activations, normalization by batches, and dropout."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch

from fm2.models.choices import Activation
from fm2.models.deep.dropout import Dropout, Noise
from fm2.models.deep.layers import BatchNorm
from fm2.models.deep.mlp import MLP

LITERAL = {
    "relu": lambda x: x.clamp(min=0),
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "silu": lambda x: x / (1 + torch.exp(-x)),
    "tanh": lambda x: (torch.exp(x) - torch.exp(-x)) / (torch.exp(x) + torch.exp(-x)),
}


def random_mlp(**options) -> MLP:
    mlp = MLP(5, hidden=(4, 3), noise=Noise(), **options).double()
    source = torch.Generator().manual_seed(2)
    for value in mlp.state_dict().values():
        value.copy_(torch.rand(value.shape, generator=source, dtype=torch.float64) + 0.2)
    for layer in mlp.layers:
        layer.weight.data.normal_(generator=source)
    return mlp


def rows(count: int = 9) -> torch.Tensor:
    return torch.randn(count, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("activation", get_args(Activation))
def test_every_layer_is_linear_then_normalized_then_activated(activation, batch_norm, training):
    mlp = random_mlp(activation=activation, batch_norm=batch_norm).train(training)
    x = rows()
    for place, layer in enumerate(mlp.layers):
        x = x @ layer.weight.T
        if batch_norm:
            norm = mlp.norms[place]
            seen = (x.mean(0), x.var(0, correction=0)) if training else (norm.running_mean, norm.running_var)
            x = (x - seen[0]) / torch.sqrt(seen[1] + 1e-5) * norm.weight + norm.bias
        else:
            x = x + layer.bias
        x = LITERAL[activation](x)
    torch.testing.assert_close(mlp(rows()), (x @ mlp.last.weight.T + mlp.last.bias)[:, 0])


def test_a_normalization_remembers_a_tenth_of_every_batch():
    norm, x = BatchNorm(5).double(), rows()
    norm(x)
    torch.testing.assert_close(norm.running_mean, x.mean(0) / 10)
    torch.testing.assert_close(norm.running_var, 0.9 + x.var(0) / 10)


def test_a_single_row_is_normalized_by_what_was_seen_and_leaves_it_as_it_is():
    norm = BatchNorm(5).double()
    norm(rows())
    seen = norm.running_mean.clone()
    torch.testing.assert_close(norm(rows(1)), norm.eval()(rows(1)))
    torch.testing.assert_close(norm.running_mean, seen)


def test_dropout_scales_up_what_it_keeps_and_is_decided_by_seed_and_step():
    noise = Noise()
    drop, x = Dropout(0.3, noise), torch.ones(100, 100)

    def dropped(seed, step):
        noise.restart(seed, step)
        return drop(x)

    found = dropped(1, 2)
    assert (found == 0).double().mean().item() == pytest.approx(0.3, abs=0.02)
    torch.testing.assert_close(found[found != 0], torch.full_like(found[found != 0], 1 / 0.7))
    assert torch.equal(found, dropped(1, 2))
    assert not torch.equal(found, drop(x))  # a second dropout of a step
    for other in (dropped(1, 3), dropped(2, 2)):
        assert 0.35 < (other == found).double().mean() < 0.65  # 0.3² + 0.7² agree by chance
    assert torch.equal(drop.eval()(x), x)


def test_a_perceptron_drops_units_of_every_hidden_layer_in_training_alone():
    mlp = random_mlp(network_dropout=0.5)
    whole = mlp.eval()(rows())
    torch.testing.assert_close(whole, random_mlp().eval()(rows()))
    # If units of the last hidden layer alone were dropped, there would be 2³ results.
    assert len(set(mlp.train()(rows(1).expand(2000, -1)).tolist())) > 8
