"""Several workers take the same steps as one process."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.exact_steps import AGAIN, CASES, GLOO, single
from tests.helpers.workers import run_workers

REPEATED = ["fm lists", "fmfm shared", "dropout"]
# The others, which differ from these by their model only, are those of scale_exact_steps.py.
USUAL = [name for name in CASES if name not in ("fwfm shared", "fvfm shared", "deepfm shared")]


def run(out, count, names, repeated=()):
    """Return the results of workers by case, and those of repeated cases by "CASE again" and "CASE gloo"."""
    again = [f"{name}{end}" for name in repeated for end in (AGAIN, GLOO)]
    for code, printed in run_workers(count, ["-m", "tests.helpers.exact_steps", str(out), *names, *again]):
        assert code == 0, printed
    return {name: dict(np.load(out / f"{name}.npz")) for name in [*names, *again]}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The results of two workers."""
    return run(tmp_path_factory.mktemp("workers"), 2, USUAL, REPEATED)


def check_close(actual, expected):
    assert actual.keys() == expected.keys()
    for key, values in expected.items():
        np.testing.assert_allclose(actual[key].reshape(np.shape(values)), values, rtol=0, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", USUAL)
def test_two_workers_match_one_process(results, name):
    check_close(results[name], single(**CASES[name]))


@pytest.mark.parametrize("end", [AGAIN, GLOO])
@pytest.mark.parametrize("name", REPEATED)
def test_two_workers_repeat_bit_for_bit(results, name, end):
    for key, values in results[name].items():
        np.testing.assert_array_equal(results[f"{name}{end}"][key], values, err_msg=key)
