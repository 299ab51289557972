"""Three workers take the same steps as one process, and two repeat theirs in new processes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.distributed.test_exact_steps import REPEATED, check_close, run
from tests.helpers.exact_steps import CASES, single


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The results of three workers."""
    return run(tmp_path_factory.mktemp("workers"), 3, list(CASES))


@pytest.mark.parametrize("name", CASES)
def test_three_workers_match_one_process(results, name):
    check_close(results[name], single(**CASES[name]))


def test_new_processes_repeat_bit_for_bit(tmp_path):
    first, second = run(tmp_path, 2, REPEATED), run(tmp_path, 2, REPEATED)
    for name in REPEATED:
        for key, values in first[name].items():
            np.testing.assert_array_equal(second[name][key], values, err_msg=f"{name} {key}")
