"""FlatEmbedding: its layout, its checks, and its gradients in torch's optimizers."""

from __future__ import annotations

import pytest
import torch

from fm2.errors import Fm2Error
from fm2.models import FieldMatrixInteraction, FmFM
from fm2.models.embedding import FlatEmbedding

SIZES = [6, 3, 9]


@pytest.fixture(autouse=True)
def quiet_optimizers():
    """Turn off the checks of sparse tensors explicitly; otherwise torch's sparse optimizers warn."""
    with torch.sparse.check_sparse_tensor_invariants(False):
        yield


@pytest.mark.parametrize("dims", [[2, 4, 6], [1, 3, 2], [4, 4, 4]])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_rows_are_gathered_from_their_offsets(dims, dtype):
    table = FlatEmbedding(SIZES, dims)
    table.weight.data = torch.arange(float(len(table.weight)))
    ids = torch.tensor([[5, 0, 8], [0, 2, 3]], dtype=dtype)
    gathered = table(ids)
    assert gathered.shape == (2, sum(dims)) == (2, table.width)
    for row in range(2):
        for field, dim in enumerate(dims):
            begin = table.offsets[field] + ids[row, field] * dim
            columns = gathered[row, table.starts[field] : table.starts[field] + dim]
            assert torch.equal(columns, table.weight[begin : begin + dim])


@pytest.mark.parametrize("dims", [3, [2, 3, 1]])
@pytest.mark.parametrize("optimizer", [torch.optim.Adagrad, torch.optim.SGD])
def test_sparse_and_dense_gradients_train_the_same_weights(dims, optimizer):
    ids = torch.tensor([[5, 0, 8], [0, 2, 3], [5, 2, 8], [5, 1, 1]])
    trained = []
    for sparse in (False, True):
        model = FmFM(SIZES, dims, embedding_std=1.0)
        model.embedding.sparse = sparse
        rule = optimizer(model.parameters(), lr=0.1)
        for _ in range(3):
            rule.zero_grad()
            model(ids).square().sum().backward()
            rule.step()
        trained.append(model.embedding.weight.detach())
    torch.testing.assert_close(*trained)


def test_sparse_adam_changes_only_touched_rows():
    model = FmFM(SIZES, [2, 3, 1])
    model.embedding.sparse = True
    before = model.embedding.weight.detach().clone()
    optimizer = torch.optim.SparseAdam([model.embedding.weight], lr=0.1)
    model(torch.tensor([[1, 2, 0], [1, 0, 0]])).sum().backward()
    optimizer.step()
    changed = (model.embedding.weight != before).nonzero()[:, 0].tolist()
    assert changed == [2, 3, 12, 13, 14, 18, 19, 20, 21]


@pytest.mark.parametrize("sparse", [False, True])
def test_a_model_of_building_blocks_can_be_exported_with_any_number_of_rows(sparse):
    table = FlatEmbedding([10, 20, 5], dims=[4, 2, 3], sparse=sparse, scale=0.1)
    model = torch.nn.Sequential(table, FieldMatrixInteraction(table.dims, scale=0.1))
    rows = torch.randint(0, 5, (9, 3), generator=torch.Generator().manual_seed(0))
    exported = torch.export.export(model, (rows[:6],), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    for count in (1, 2, 9):
        torch.testing.assert_close(exported.module()(rows[:count]), model(rows[:count]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bool])
def test_ids_that_are_not_integers_raise_an_error(dtype):
    with pytest.raises(Fm2Error, match=f"FlatEmbedding: ids have type {dtype}; expected integers, such as torch.int64"):
        FlatEmbedding(SIZES, 2)(torch.ones(4, 3, dtype=dtype))


def test_ids_without_a_row_raise_an_error():
    table = FlatEmbedding(SIZES, 2)
    for wrong in (-1, 3):
        with pytest.raises(Fm2Error, match=f"FlatEmbedding: field 1 has id {wrong}; ids must be between 0 and 2"):
            table(torch.tensor([[0, 0, 0], [0, wrong, 0]]))
    with pytest.raises(Fm2Error, match=r"FlatEmbedding: ids have shape \[2, 2\]; expected \[rows, 3\]"):
        table(torch.zeros(2, 2, dtype=torch.int64))
