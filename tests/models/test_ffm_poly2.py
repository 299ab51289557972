"""FFM and Poly2: their memory, and the hash of Poly2."""

from __future__ import annotations

import pytest
import torch
from tests.helpers import literal
from torch.utils._python_dispatch import TorchDispatchMode

from fm2.errors import Fm2Error
from fm2.models import FFM, FM, Poly2
from fm2.models.hashing import feature_keys, pair_slots


class LargestTensor(TorchDispatchMode):
    """Records the number of elements of the largest tensor that an operation returns."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


@pytest.mark.parametrize(
    ("model", "limit_per_row"),
    [(FFM([3] * 30, dim=8), 30 * 8), (Poly2([3] * 30, hash_bits=8), 30 * 29 // 2), (FM([3] * 30, 8), 30 * 8)],
    ids=["ffm", "poly2", "fm"],
)
def test_no_tensor_holds_the_vectors_of_all_pairs(model, limit_per_row):
    rows = 1000
    ids = torch.randint(0, 3, (rows, 30))
    with LargestTensor() as largest:
        model(ids).sum().backward()
    assert largest.elements <= limit_per_row * rows


def test_the_hash_follows_its_specification():
    ids = torch.randint(0, 2**31 - 1, (50, 3), generator=torch.Generator().manual_seed(0))
    keys = feature_keys(ids)
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        for hash_bits in (1, 22, 30):
            slots = pair_slots(keys[:, i], keys[:, j], hash_bits).tolist()
            expected = [literal.pair_hash((i, row[i]), (j, row[j]), hash_bits) for row in ids.tolist()]
            assert slots == expected


def test_pairs_are_distributed_evenly():
    first, second = torch.meshgrid(torch.arange(300), torch.arange(300), indexing="ij")
    keys = feature_keys(torch.stack([first.reshape(-1), second.reshape(-1)], 1))
    slots = pair_slots(keys[:, 0], keys[:, 1], hash_bits=10)
    counts = torch.bincount(slots, minlength=1024).double()
    expected = counts.mean()
    chi_square = ((counts - expected) ** 2 / expected).sum().item()
    assert abs(chi_square - 1023) < 5 * (2 * 1023) ** 0.5


def test_features_that_collide_once_do_not_always_collide():
    ids = torch.arange(2000)
    keys = feature_keys(torch.stack([ids, ids, ids], 1))
    with_first = pair_slots(keys[0, 0], keys[:, 1], hash_bits=8)
    with_second = pair_slots(keys[1, 0], keys[:, 1], hash_bits=8)
    collide = with_first[:, None] == with_first
    still = (with_second[:, None] == with_second)[collide & ~torch.eye(2000, dtype=torch.bool)]
    assert still.double().mean() < 3 / 256


def test_invalid_settings_raise_an_error():
    with pytest.raises(Fm2Error, match="poly2: hash_bits must be between 1 and 30, got 31"):
        Poly2([3, 3], hash_bits=31)
    with pytest.raises(Fm2Error, match="ffm: expected at least 2 fields, got 1"):
        FFM([3])
    with pytest.raises(Fm2Error, match="ffm: dim must be at least 1, got 0"):
        FFM([3, 3], dim=0)
