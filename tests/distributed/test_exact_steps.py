"""Several workers take the same steps as one process."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.exact_steps import CASES, single
from tests.helpers.workers import run_workers

REPEATED = ["fm lists", "fmfm shared", "dropout"]


def run(out, count, names):
    for code, printed in run_workers(count, ["-m", "tests.helpers.exact_steps", str(out), *names]):
        assert code == 0, printed
    return {name: dict(np.load(out / f"{name}.npz")) for name in names}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The results of two workers."""
    return run(tmp_path_factory.mktemp("workers"), 2, list(CASES))


def check_close(actual, expected):
    assert actual.keys() == expected.keys()
    for key, values in expected.items():
        np.testing.assert_allclose(actual[key].reshape(np.shape(values)), values, rtol=0, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", CASES)
def test_two_workers_match_one_process(results, name):
    check_close(results[name], single(**CASES[name]))


def test_two_workers_repeat_bit_for_bit(results, tmp_path):
    for name, again in run(tmp_path, 2, REPEATED).items():
        for key, values in results[name].items():
            np.testing.assert_array_equal(again[key], values, err_msg=f"{name} {key}")


def test_three_workers_match_one_process(tmp_path):
    for name, actual in run(tmp_path, 3, ["dims", "dropout"]).items():
        check_close(actual, single(**CASES[name]))
