"""The hash of Poly2's feature pairs: h(i, j) of the paper's equation 3. Trained weights depend on its every bit.

In C++, all of it modulo 2^64:

    key(field, id):  z = (field << 32 | id) + 0x9e3779b97f4a7c15
                     z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9
                     z = (z ^ z >> 27) * 0x94d049bb133111eb
                     key = (z ^ z >> 31) | 1
    slot of a pair:  key(i, id of i) * key(j, id of j) >> (64 - hash_bits)

A key is SplitMix64's output made odd, computed once per feature; then a pair costs one multiplication and one shift.
Multiplying by a random odd number and keeping the top bits spreads evenly (Dietzfelbinger's multiply-shift), and two
features that collide beside a third need not do so beside a fourth, as they would if keys were added.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fm2.errors import Fm2Error

MAX_HASH_BITS = 30


def _signed(constant: int) -> int:
    """Write an unsigned 64-bit constant as the int64 of the same bits."""
    return constant - (1 << 64) if constant >> 63 else constant


INCREMENT = _signed(0x9E3779B97F4A7C15)
FIRST = _signed(0xBF58476D1CE4E5B9)
SECOND = _signed(0x94D049BB133111EB)


def _shift_right(values: Tensor, bits: int) -> Tensor:
    """Shift as unsigned numbers are shifted: torch's own shift would repeat the sign."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)


def feature_keys(ids: Tensor) -> Tensor:
    """Give the key of every feature of ``ids`` [rows, fields], as int64 of the same bits.

    >>> [hex(key % 2**64) for key in feature_keys(torch.tensor([[0, 7]]))[0].tolist()]
    ['0xe220a8397b1dcdaf', '0x27cf1707c6e1d01f']
    """
    z = (torch.arange(ids.shape[1], device=ids.device) << 32 | ids.long()) + INCREMENT
    z = (z ^ _shift_right(z, 30)) * FIRST
    z = (z ^ _shift_right(z, 27)) * SECOND
    return (z ^ _shift_right(z, 31)) | 1


def pair_slots(keys: Tensor, others: Tensor, hash_bits: int) -> Tensor:
    """Give the slots, below 2^hash_bits, of the pairs of features with these keys (the two broadcast).

    >>> keys = feature_keys(torch.tensor([[3, 1, 4]]))
    >>> pair_slots(keys[:, :1], keys[:, 1:], hash_bits=10).tolist()
    [[686, 88]]
    """
    return _shift_right(keys * others, 64 - hash_bits)


def check_hash_bits(hash_bits: int) -> None:
    """Refuse a table that is empty or too large to address."""
    if not 1 <= hash_bits <= MAX_HASH_BITS:
        raise Fm2Error(f"poly2: hash_bits is {hash_bits}; 1 to {MAX_HASH_BITS} are possible")
