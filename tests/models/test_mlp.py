"""The multi-layer perceptron: activations, batch normalization and dropout."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch

from fm2.models.choices import Activation
from fm2.models.deep.layers import MLP, BatchNorm, Dropout, Noise

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
def test_a_layer_is_linear_then_normalized_then_activated(activation, batch_norm, training):
    mlp = random_mlp(activation=activation, batch_norm=batch_norm).train(training)
    x = rows()
    for index, layer in enumerate(mlp.layers):
        x = x @ layer.weight.T
        if batch_norm:
            norm = mlp.norms[index]
            statistics = (x.mean(0), x.var(0, correction=0)) if training else (norm.running_mean, norm.running_var)
            x = (x - statistics[0]) / torch.sqrt(statistics[1] + 1e-5) * norm.weight + norm.bias
        else:
            x = x + layer.bias
        x = LITERAL[activation](x)
    torch.testing.assert_close(mlp(rows()), (x @ mlp.last.weight.T + mlp.last.bias)[:, 0])


def test_running_statistics_have_momentum_one_tenth():
    norm, x = BatchNorm(5).double(), rows()
    norm(x)
    torch.testing.assert_close(norm.running_mean, x.mean(0) / 10)
    torch.testing.assert_close(norm.running_var, 0.9 + x.var(0) / 10)


def test_a_single_row_is_normalized_by_the_running_statistics_and_does_not_change_them():
    norm = BatchNorm(5).double()
    norm(rows())
    running_mean = norm.running_mean.clone()
    torch.testing.assert_close(norm(rows(1)), norm.eval()(rows(1)))
    torch.testing.assert_close(norm.running_mean, running_mean)


def test_dropout_depends_only_on_seed_and_step_and_scales_up_the_other_units():
    noise = Noise()
    drop, x = Dropout(0.3, noise), torch.ones(100, 100)

    def dropped(seed, step):
        noise.restart(seed, step)
        return drop(x)

    first = dropped(1, 2)
    assert (first == 0).double().mean().item() == pytest.approx(0.3, abs=0.02)
    torch.testing.assert_close(first[first != 0], torch.full_like(first[first != 0], 1 / 0.7))
    assert torch.equal(first, dropped(1, 2))
    assert not torch.equal(first, drop(x))  # the second dropout of the same step
    for other in (dropped(1, 3), dropped(2, 2)):
        assert 0.35 < (other == first).double().mean() < 0.65  # 0.3² + 0.7² agree by chance
    assert torch.equal(drop.eval()(x), x)


def test_units_of_every_hidden_layer_are_dropped_only_in_training():
    mlp = random_mlp(network_dropout=0.5)
    torch.testing.assert_close(mlp.eval()(rows()), random_mlp().eval()(rows()))
    # Dropping only the three units of the last hidden layer would yield at most 2³ results.
    assert len(set(mlp.train()(rows(1).expand(2000, -1)).tolist())) > 8
