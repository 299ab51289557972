"""AutoInt and AutoInt+: their equations, and the native attention layer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.helpers.equations import assert_follows, perceptron, random_model
from tests.helpers.networks import SIZES, random_rows

import fm2
from fm2 import _native
from fm2.models.deep.attention import FieldAttention

SMALL = {"attention_layers": 2, "attention_heads": 2, "attention_dim": 3}


def head(weight, vectors, start):
    """Return the outputs of a head for all fields; W_Q, W_K and W_V are three of a layer's matrices, split by head."""
    query, key, value = (weight[kind, start : start + 3] for kind in range(3))
    outputs = []
    for m in range(len(vectors)):
        scores = torch.stack([(query @ vectors[m]) @ (key @ vectors[k]) for k in range(len(vectors))])
        shares = scores.exp() / scores.exp().sum()
        outputs.append(sum(shares[k] * (value @ vectors[k]) for k in range(len(vectors))))
    return outputs


def equation(model, parameters, vectors):
    deep = perceptron(parameters, torch.cat(vectors)) if model.name == "autointplus" else 0
    for layer in range(2):
        weight = parameters[f"attention.{layer}.weight"]
        heads = zip(*(head(weight, vectors, start) for start in (0, 3)), strict=True)
        vectors = [torch.relu(torch.cat(both) + weight[3] @ e) for both, e in zip(heads, vectors, strict=True)]
    return parameters["last.weight"][0] @ torch.cat(vectors) + deep


@pytest.mark.parametrize(("name", "wide"), [("autoint", {}), ("autoint", {"wide": True}), ("autointplus", {})])
def test_logits_and_gradients_follow_the_equation(name, wide):
    model = random_model(name, **SMALL, **wide)
    assert ("linear" in model.tables) == bool(wide)
    model.attention[1].weight.data *= 0.2  # otherwise the second layer would attend to a single field
    assert_follows(model, equation)


def test_dropout_applies_to_the_output_of_the_last_layer():
    model = random_model("autoint", **SMALL, network_dropout=0.5)
    embedding = torch.ones(2000, model.embedding.width, dtype=torch.float64)
    expected = model.eval().network(embedding)
    dropped = model.train().network(embedding)
    assert len(set(dropped.tolist())) > 1000
    assert dropped.mean().item() == pytest.approx(expected[0].item(), abs=4 * dropped.std().item() / 2000**0.5)


@pytest.mark.parametrize(
    ("fields", "inputs", "heads", "dim"), [(1, 1, 1, 1), (4, 5, 2, 3), (8, 8, 1, 8), (39, 16, 2, 8), (23, 9, 3, 20)]
)
@pytest.mark.parametrize("level", fm2.cpu_info()["levels"])
def test_the_native_layer_agrees_with_torch_in_float64(fields, inputs, heads, dim, level):
    generator = torch.Generator().manual_seed(fields)
    layer = FieldAttention(fields, inputs, heads, dim)
    layer.weight.data.normal_(0, 0.5, generator=generator)
    x = torch.randn(70, fields, inputs, generator=generator)
    x[0] *= 5  # attention to a single field
    out_grad = torch.randn(70, fields, heads * dim, generator=generator)
    weights, exact = layer.weight.detach().numpy(), layer.double()
    rows = x.double().requires_grad_()
    expected = exact(rows)
    expected.backward(out_grad.double())
    for threads in (1, 3):
        out, x_grad = np.empty(out_grad.shape, np.float32), np.empty(x.shape, np.float32)
        weights_grad = np.empty_like(weights)
        _native.attend(weights, x.numpy(), heads, out, threads, level)
        _native.follow_attention(weights, x.numpy(), heads, out, out_grad.numpy(), x_grad, weights_grad, threads, level)
        for actual, wanted in (
            (out, expected.detach()),
            (x_grad, rows.grad),
            (weights_grad, exact.weight.grad),
        ):
            np.testing.assert_allclose(actual, wanted, rtol=1e-3, atol=1e-4 * float(wanted.abs().max()))


def test_the_native_layer_rejects_wrong_shapes():
    weights, rows, out = np.ones((4, 6, 3), np.float32), np.ones((2, 5, 3), np.float32), np.ones((2, 5, 6), np.float32)
    for wrong, message in (
        ((weights, rows, 0, out), "a multiple of heads, got 6 and 0"),
        ((weights, rows, 4, out), "a multiple of heads, got 6 and 4"),
        ((weights[:3], rows, 2, out), r"weights must be \[4, heads \* dim, inputs\]"),
        ((weights, rows[..., :2].copy(), 2, out), r"weights must be \[4, heads \* dim, inputs\]"),
        ((weights, rows, 2, out[:1]), r"expected an array of shape \[2, 5, 6\], got \[1, 5, 6\]"),
    ):
        with pytest.raises(ValueError, match=message):
            _native.attend(*wrong)


def test_native_gradients_in_float32_agree_with_torch_in_float64():
    exact = random_model("autointplus", **SMALL)
    model = random_model("autointplus", **SMALL).float()
    ids = torch.from_numpy(random_rows(50)[0])
    for network in (exact, model):
        network(ids).sum().backward()
    for name, parameter in model.named_parameters():
        expected_gradient = dict(exact.named_parameters())[name].grad
        torch.testing.assert_close(
            parameter.grad.double(), expected_gradient, rtol=1e-3, atol=1e-4 * float(expected_gradient.abs().max() + 1)
        )


@pytest.fixture
def layer_and_rows():
    layer = random_model("autoint", **SMALL).attention[0]
    return layer, torch.randn(5, len(SIZES), 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def test_attention_weights_sum_to_one(layer_and_rows):
    layer, rows = layer_and_rows
    shares = layer.attention(rows)
    assert shares.shape == (5, 2, len(SIZES), len(SIZES))
    assert (shares > 0).all()
    torch.testing.assert_close(shares.sum(3), torch.ones_like(shares[..., 0]))
    assert shares.std() > 0.1


def test_attention_is_equivariant_to_the_order_of_fields(layer_and_rows):
    """Permuted fields have permuted outputs; only the output weights depend on the position of a field."""
    layer, rows = layer_and_rows
    order = [2, 0, 3, 1]
    torch.testing.assert_close(layer(rows[:, order]), layer(rows)[:, order])
    model = random_model("autoint", **SMALL)
    expected = model.network(rows.flatten(1))
    assert not torch.allclose(model.network(rows[:, order].flatten(1)), expected)
    model.last.weight.data = model.last.weight.view(len(SIZES), -1)[order].view(1, -1)
    torch.testing.assert_close(model.network(rows[:, order].flatten(1)), expected)


def test_equal_fields_have_uniform_attention(layer_and_rows):
    layer, rows = layer_and_rows
    shares = layer.attention(rows[:, :1].expand(-1, len(SIZES), -1))
    torch.testing.assert_close(shares, torch.full_like(shares, 1 / len(SIZES)))
