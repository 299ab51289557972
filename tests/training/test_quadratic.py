"""The native quadratic form and its gradients against the paper's equation 7, written as loops."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import fm2
from fm2._native import QuadraticForm

levels = pytest.mark.parametrize("level", fm2.cpu_info()["levels"])
dims = pytest.mark.parametrize("dims", [[1, 1], [2, 3, 1], [4] * 5, [16, 16], [5, 1, 17, 3, 9, 2], [8] * 13])


class Case:
    """Random rows, field matrices and a linear part; what they are worth, in float64."""

    def __init__(self, dims: list[int], rows: int, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.dims, self.ends = dims, np.cumsum(dims)
        self.begins = self.ends - dims
        self.form = QuadraticForm(np.array(dims, np.int32))
        self.weights = random.normal(size=self.form.weights).astype(np.float32)
        self.linear = random.normal(size=sum(dims)).astype(np.float32)
        self.rows = random.normal(size=(rows, sum(dims))).astype(np.float32)
        self.slopes = random.normal(size=rows).astype(np.float32)

    def entry(self, i: int, j: int, a: int, b: int) -> int:
        """Find M[i,j][a,b], i < j, among the weights: field by field, its matrices with later fields side by side."""
        width = int(self.ends[-1])
        before = sum(int(dim) * (width - int(end)) for dim, end in zip(self.dims[:i], self.ends[:i], strict=True))
        return before + a * (width - int(self.ends[i])) + int(self.begins[j] - self.ends[i]) + b

    def literal(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Give the terms, and the gradients of their sum, weighted by the slopes: in rows, weights, linear part."""
        V, w = self.rows.astype(np.float64), self.linear.astype(np.float64)
        terms, in_rows = V @ w, np.tile(w, (len(V), 1))
        in_weights = np.zeros(len(self.weights))
        for i, j in combinations(range(len(self.dims)), 2):
            for a in range(self.dims[i]):
                for b in range(self.dims[j]):
                    at, x, y = self.entry(i, j, a, b), V[:, self.begins[i] + a], V[:, self.begins[j] + b]
                    m = float(self.weights[at])
                    terms += x * m * y
                    in_rows[:, self.begins[i] + a] += m * y
                    in_rows[:, self.begins[j] + b] += m * x
                    in_weights[at] = (self.slopes * x * y).sum()
        return terms, in_rows * self.slopes[:, None], in_weights, self.slopes @ V

    def native(self, **options: object) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        logits, products = np.zeros(len(self.rows), np.float32), np.empty_like(self.rows)
        self.form.score(self.weights, self.linear, self.rows, logits, products, **options)
        in_weights, in_linear = np.empty_like(self.weights), np.empty_like(self.linear)
        self.form.follow(self.rows, self.slopes, in_weights, in_linear, **options)
        return logits, self.slopes[:, None] * products, in_weights, in_linear


@levels
@dims
@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 50, 129])
def test_terms_and_gradients_follow_equation_7(level, dims, rows):
    case = Case(dims, rows)
    for found, expected in zip(case.native(level=level), case.literal(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


@levels
def test_results_do_not_depend_on_the_number_of_threads(level):
    case = Case([7] * 31, 333)
    found = {tuple(array.tobytes() for array in case.native(level=level, threads=threads)) for threads in (1, 2, 3, 8)}
    assert len(found) == 1


def test_a_rows_score_does_not_depend_on_its_position():
    case = Case([4] * 10, 100)
    whole = case.native()[0]
    for begin in (1, 47, 95):
        part = np.zeros(5, np.float32)
        case.form.score(case.weights, case.linear, case.rows[begin : begin + 5].copy(), part, np.empty((5, 40), "f"))
        np.testing.assert_array_equal(part, whole[begin : begin + 5])


def test_the_linear_part_is_optional():
    case = Case([3, 4], 10)
    case.linear[:] = 0
    logits, products = np.ones(10, np.float32), np.empty_like(case.rows)
    case.form.score(case.weights, None, case.rows, logits, products)
    np.testing.assert_allclose(logits, 1 + case.literal()[0], atol=1e-4)  # added to what is there
    in_weights = np.empty_like(case.weights)
    case.form.follow(case.rows, case.slopes, in_weights, None)
    np.testing.assert_allclose(in_weights, case.literal()[2], atol=1e-4)


def test_invalid_arguments_raise_errors():
    form, rows = QuadraticForm(np.array([2, 3], np.int32)), np.zeros((4, 5), np.float32)
    weights, linear, logits = (np.zeros(size, np.float32) for size in (6, 5, 4))
    form.score(weights, linear, rows, logits, rows.copy())
    for wrong, message in (
        ((weights[1:], linear, rows, logits, rows.copy()), "weights must have 6 entries, got 5"),
        ((weights, linear[1:], rows, logits, rows.copy()), "linear must have 5 entries, got 4"),
        (
            (weights, linear, rows[:, 1:].copy(), logits, rows.copy()),
            r"rows must have the shape \[4, 5\], got \[4, 4\]",
        ),
        ((weights, linear, rows, logits[1:], rows.copy()), "logits must have 4 entries, got 3"),
        ((weights, linear, rows, logits, rows[1:].copy()), r"products must have the shape \[4, 5\], got \[3, 5\]"),
    ):
        with pytest.raises(ValueError, match=message):
            form.score(*wrong)
    with pytest.raises(ValueError, match="dimension must be between 1 and 32768, got 0"):
        QuadraticForm(np.array([2, 0], np.int32))
    with pytest.raises(ValueError, match="must sum to at most 32768, got 65536"):
        QuadraticForm(np.full(4, 1 << 14, np.int32))
