"""The paper's equations, literally: sums over all m features and all their pairs, one number at a time.

``x`` is 1 for the features of a row and 0 for all others, and ``F[i]`` is the field of feature i; the other names are
those of the equations. In a multi-valued field, ``x`` is the sum of the weights of a feature's values. With float64
tensors that require a gradient, autograd returns the gradients of the equations.
"""

from __future__ import annotations

from itertools import accumulate

MASK = (1 << 64) - 1


def linear(x, w0, w):
    """Equation 2."""
    total = w0
    for i in range(len(x)):
        total = total + x[i] * w[i]
    return total


def field_linear(x, F, w0, v, w):
    """Section 4.5: <v_i, w_F(i)> instead of w_i."""
    total = w0
    for i in range(len(x)):
        total = total + x[i] * dot(v[i], w[F[i]])
    return total


def poly2_pairs(x, F, w, h):
    """The pair terms of equation 3."""
    return sum(x[i] * x[j] * w[h(i, j)] for i, j in active_pairs(x, F))


def fm_pairs(x, F, v, signs=None):
    """The pair terms of equation 4, with an optional sign per coordinate."""
    signed = [v[i] if signs is None else [v[i][k] * signs[k] for k in range(len(signs))] for i in range(len(v))]
    return sum(x[i] * x[j] * dot(signed[i], v[j]) for i, j in active_pairs(x, F))


def ffm_pairs(x, F, v):
    """The pair terms of equation 5; v[i][f] is the vector of feature i for field f."""
    return sum(x[i] * x[j] * dot(v[i][F[j]], v[j][F[i]]) for i, j in active_pairs(x, F))


def fwfm_pairs(x, F, v, r):
    """The pair terms of equation 6."""
    return sum(x[i] * x[j] * dot(v[i], v[j]) * r[F[i], F[j]] for i, j in active_pairs(x, F))


def fvfm_pairs(x, F, v, d):
    """The pair terms of section 3.1.3."""
    total = 0.0
    for i, j in active_pairs(x, F):
        intermediate = [v[i][k] * d[F[i], F[j]][k] for k in range(len(v[i]))]
        total = total + x[i] * x[j] * dot(intermediate, v[j])
    return total


def fmfm_pairs(x, F, v, M):
    """The pair terms of equation 7; M[f, g] is D_f × D_g."""
    total = 0.0
    for i, j in active_pairs(x, F):
        matrix = M[F[i], F[j]]
        intermediate = [sum(v[i][k] * matrix[k][c] for k in range(len(v[i]))) for c in range(len(v[j]))]
        total = total + x[i] * x[j] * dot(intermediate, v[j])
    return total


def dot(a, b):
    total = 0.0
    for k in range(len(a)):
        total = total + a[k] * b[k]
    return total


def active_pairs(x, F):
    """All pairs i < j of features of different fields with x[i] x[j] != 0."""
    active = [i for i in range(len(x)) if x[i]]
    return [(i, j) for i in active for j in active if i < j and F[i] != F[j]]


def features(field_sizes):
    """The field of every feature and the first feature of every field; features are numbered field by field."""
    fields = [field for field, size in enumerate(field_sizes) for _ in range(size)]
    return fields, list(accumulate(field_sizes, initial=0))


def one_hot(row, field_sizes):
    """The vector x of a row: for each field an id, which is local to the field, or a list of (id, weight)."""
    x = [0] * sum(field_sizes)
    for field, first in zip(range(len(field_sizes)), features(field_sizes)[1], strict=False):
        for id, weight in row[field] if isinstance(row[field], list) else [(int(row[field]), 1)]:
            x[first + id] += weight
    return x


def pair_hash(first, second, hash_bits):
    """The hash of Poly2 in Python integers; a feature is (field, id)."""
    keys = []
    for field, number in (first, second):
        z = ((field << 32 | number) + 0x9E3779B97F4A7C15) & MASK
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        keys.append((z ^ z >> 31) | 1)
    return (keys[0] * keys[1] & MASK) >> (64 - hash_bits)
