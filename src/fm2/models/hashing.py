"""The hash h(i, j) of a pair of features in Poly2 (equation 3 of the paper). Trained weights depend on every bit of it.

The definition, with all arithmetic modulo 2^64:

    key(field, id):  z = (field << 32 | id) + 0x9e3779b97f4a7c15
                     z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9
                     z = (z ^ z >> 27) * 0x94d049bb133111eb
                     key = (z ^ z >> 31) | 1
    slot of a pair:  key(i, id of i) * key(j, id of j) >> (64 - hash_bits)

A key is the output of SplitMix64 with its lowest bit set, computed once per feature. A pair then costs one
multiplication and one shift. Multiplying by a random odd number and keeping the top bits distributes pairs evenly
(Dietzfelbinger's multiply-shift). Two features that collide when paired with a third need not collide when paired with
a fourth, as they would if keys were added.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _signed(constant: int) -> int:
    """Return the int64 with the same bits as an unsigned 64-bit constant."""
    return constant - (1 << 64) if constant >> 63 else constant


INCREMENT = _signed(0x9E3779B97F4A7C15)
FIRST = _signed(0xBF58476D1CE4E5B9)
SECOND = _signed(0x94D049BB133111EB)


def _shift_right(values: Tensor, bits: int) -> Tensor:
    """Shift int64 values to the right as unsigned numbers; torch's own shift extends the sign."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)


def feature_keys(ids: Tensor, fields: Tensor | None = None) -> Tensor:
    """Return the key of every feature of ``ids`` [rows, fields], as an int64 with the same bits.

    With ``fields``, these are the fields of the ids, which then have any shape.
    """
    if fields is None:
        fields = torch.arange(ids.shape[1], device=ids.device)
    z = (fields << 32 | ids.long()) + INCREMENT
    z = (z ^ _shift_right(z, 30)) * FIRST
    z = (z ^ _shift_right(z, 27)) * SECOND
    return (z ^ _shift_right(z, 31)) | 1


def pair_slots(keys: Tensor, others: Tensor, hash_bits: int) -> Tensor:
    """Return the slots, below 2^hash_bits, of pairs of features from their keys, which are broadcast."""
    return _shift_right(keys * others, 64 - hash_bits)
