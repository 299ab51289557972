"""The unknown feature: in the saved model it lies between what training made of it and the mean of its field."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.planted import QUICK

from fm2.artifacts.arrays import open_arrays
from fm2.artifacts.run_directory import CHECKPOINT
from fm2.models import FlatEmbedding
from fm2.training.inputs import feature_counts
from fm2.training.train import train
from fm2.training.unknown import MEAN_ROWS, UnknownFeatures


@pytest.mark.parametrize("name", ["lr", "fmfm", "deepfm"])
def test_a_feature_that_training_never_sees_becomes_the_mean_of_its_field(dataset, tmp_path, name):
    counts = np.split(feature_counts(dataset, dataset.vocabularies), np.cumsum(dataset.field_sizes)[:-1])
    never_unknown = [field for field, count in enumerate(counts) if count[0] == 0]
    assert never_unknown
    run = train(name, dataset, tmp_path / "run", **QUICK)
    for table in run.model.tables.values():
        for field in never_unknown:
            rows = table.rows(field).numpy()
            np.testing.assert_allclose(rows[0], np.average(rows[1:], axis=0, weights=counts[field][1:]), rtol=1e-4)
    with open_arrays(tmp_path / "run" / CHECKPOINT) as (arrays, _):
        trained = arrays["table.linear.weights"]
    assert not trained[np.cumsum([0, *dataset.field_sizes])[never_unknown]].any()  # training goes on without it


def test_the_mean_counts_as_a_number_of_rows():
    table = FlatEmbedding([3, 2, 3, 2], [2, 1, 2, 1], owners=[0, 1, 0, 3])
    weights = np.arange(10, dtype=np.float32)
    counts = np.array([40, 1, 2, 0, 5, 60, 2, 1, 7, 0])  # fields 0 and 2 share their features
    UnknownFeatures(table, counts).shrink(weights)
    share = 100 / (100 + MEAN_ROWS)
    known = np.array([2, 3]) / 2 + np.array([4, 5]) / 2
    expected = [*(share * np.array([0, 1]) + (1 - share) * known), 2, 3, 4, 5, 7, 7, 8, 9]
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
