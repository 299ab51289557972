"""Numbers as weighted features: knots, interpolation between them, and standardized numbers."""

from __future__ import annotations

import bisect
import math

import numpy as np
import polars as pl
import pytest
from tests.helpers.lists import values_of

from fm2 import Dataset, Field, Fm2Error, Schema, prepare
from fm2.data.encoder import Encoder
from fm2.data.sources import open_sources

SCHEMA = Schema(
    [
        Field("at_quantiles", "numeric", column="n", transform="interpolate", knots=6),
        Field("site"),
        Field("on_log_scale", "numeric", column="n", transform="interpolate", knots=5, spacing="log"),
        Field("linear", "numeric", column="n", transform="linear"),
        Field("buckets", "numeric", column="n", transform="quantiles", buckets=4),
        Field("log_square", "numeric", column="n"),
    ],
    label="y",
)


def table_of(rows: int = 2000, seed: int = 0) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    numbers = np.where(random.random(rows) < 0.4, 0.0, np.round(random.lognormal(2, 2, rows) - 3, 2))
    present = [None if random.random() < 0.1 else number for number in numbers.tolist()]
    return pl.DataFrame({"y": random.integers(0, 2, rows), "n": present, "site": random.choice(["a", "b"], rows)})


def log_scale(x: float) -> float:
    return math.copysign(math.log(1 + abs(x)), x)


def interpolated(x: float | None, knots: list[float]) -> dict[str | None, float]:
    """Return the weights of the knots next to a number, by the text of the knot."""
    if x is None:
        return {None: 1.0}
    x = float(np.float32(x))
    if x <= knots[0] or x >= knots[-1]:
        return {text(knots[0] if x <= knots[0] else knots[-1]): 1.0}
    above = bisect.bisect_right(knots, x)
    low, high = knots[above - 1], knots[above]
    share = (log_scale(x) - log_scale(low)) / (log_scale(high) - log_scale(low))
    return {text(knot): weight for knot, weight in ((low, 1 - share), (high, share)) if weight}


def text(knot: float) -> str:
    return str(int(knot)) if knot == int(knot) else str(np.float32(knot))


def decoded(dataset: Dataset | Encoder, rows, field: str) -> list[dict[str | None, float]]:
    """Return the weight of each value of a field, by row."""
    index = dataset.schema.names.index(field)
    vocabulary = dataset.vocabularies[index]
    return [{vocabulary.value(id): weight for id, weight in row} for row in values_of(rows, index)]


def assert_equal(rows: list[dict[str | None, float]], expected: list[dict[str | None, float]]) -> None:
    for row, values in zip(rows, expected, strict=True):
        assert row == pytest.approx(values, abs=1e-6)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Dataset:
    return prepare(table_of(), SCHEMA, tmp_path_factory.mktemp("numbers") / "data")


def test_a_number_is_interpolated_between_knots(dataset):
    for field in ("at_quantiles", "on_log_scale"):
        knots = dataset.vocabularies[SCHEMA.names.index(field)].boundaries.tolist()
        for split in (dataset.train, dataset.validation, dataset.test):
            numbers = table_of()["n"][split.rows.tolist()].to_list()
            assert_equal(decoded(dataset, split.encoded, field), [interpolated(x, knots) for x in numbers])


def test_knots_follow_the_training_rows(dataset):
    numbers = table_of()["n"][dataset.train.rows.tolist()].drop_nulls().to_numpy().astype(np.float32)
    at_quantiles, on_log_scale = (dataset.vocabularies[index].boundaries for index in (0, 2))
    assert at_quantiles[[0, -1]].tolist() == [numbers.min(), numbers.max()]
    assert 0.0 in at_quantiles  # the frequent value
    assert len(at_quantiles) in (5, 6, 7)
    ends = [log_scale(float(numbers.min())), log_scale(float(numbers.max()))]
    np.testing.assert_allclose([log_scale(float(knot)) for knot in on_log_scale], np.linspace(*ends, 5), rtol=1e-6)


def test_a_linear_number_is_standardized_and_clipped(dataset):
    numbers = table_of()["n"][dataset.train.rows.tolist()].to_list()
    present = np.array([x for x in numbers if x is not None])
    deviations = [None if x is None else (x - present.mean()) / present.std() for x in numbers]
    expected = [{None: 1.0} if z is None else {"standardized": min(max(z, -5.0), 5.0)} for z in deviations]
    rows = decoded(dataset, dataset.train.encoded, "linear")
    for row, values in zip(rows, expected, strict=True):
        assert row == pytest.approx(values, rel=1e-4, abs=1e-4)
    assert {5.0} < {weight for row in rows for weight in row.values()}


def test_the_other_transforms_of_the_column_do_not_change(dataset, tmp_path):
    alone = prepare(table_of(), Schema(SCHEMA.fields[4:], "y"), tmp_path / "data")
    np.testing.assert_array_equal(alone.train.ids, np.asarray(dataset.train.ids)[:, 4:])


def test_prediction_encodes_numbers_like_prepare(dataset, tmp_path):
    table = table_of()[dataset.test.rows.tolist()]
    table.write_csv(tmp_path / "rows.csv")
    encoder = dataset.encoder
    chunks = [chunk.rows for chunk, _ in encoder.encode_text(open_sources(tmp_path / "rows.csv", SCHEMA)[0])]
    for rows in (encoder.encode_rows(table), encoder.encode_rows(table.to_dicts()), *chunks):
        for index in range(len(SCHEMA.fields)):
            assert values_of(rows, index) == values_of(dataset.test.encoded, index)


def test_text_that_is_not_a_number_is_unknown_or_a_bad_row(dataset, tmp_path):
    rows = dataset.encoder.encode_rows([{"n": "abc"}, {"n": ""}, {"site": "a"}])
    for field in ("at_quantiles", "on_log_scale", "linear"):
        assert decoded(dataset, rows, field) == [{"<unknown>": 1.0}, {None: 1.0}, {None: 1.0}]
    (tmp_path / "log.csv").write_text("y,n,site\n" + "0,1,a\n1,2,b\n" * 20 + "1,abc,a\n")
    with pytest.raises(Fm2Error, match="line 42: field 'at_quantiles' is 'abc', not a number"):
        prepare(tmp_path / "log.csv", SCHEMA, tmp_path / "bad")
    skipped = prepare(tmp_path / "log.csv", SCHEMA, tmp_path / "skipped", bad_rows="skip")
    assert sum(len(skipped.split(name)) for name in ("train", "validation", "test")) == 40


def test_another_log_keeps_the_knots(dataset, tmp_path):
    later = prepare(table_of(500, seed=1), dataset, tmp_path / "later", fractions=(0, 0, 1))
    for old, new in zip(dataset.vocabularies, later.vocabularies, strict=True):
        assert set(new.values()) == set(old.values())
        np.testing.assert_array_equal(new.boundaries, old.boundaries)
    knots = dataset.vocabularies[0].boundaries.tolist()
    numbers = table_of(500, seed=1)["n"].to_list()
    assert_equal(decoded(later, later.test.encoded, "at_quantiles"), [interpolated(x, knots) for x in numbers])


def test_a_column_without_numbers_has_only_the_missing_feature(tmp_path):
    table = pl.DataFrame({"y": [0, 1] * 20, "n": pl.Series([None] * 40, dtype=pl.Float64), "site": ["a", "b"] * 20})
    dataset = prepare(table, SCHEMA, tmp_path / "data")
    rows = dataset.encoder.encode_rows([{"n": 7}, {"site": "a"}])
    for field in ("at_quantiles", "on_log_scale", "linear"):
        assert decoded(dataset, rows, field) == [{"<unknown>": 1.0}, {None: 1.0}]


def test_few_distinct_integers_are_knots_of_their_own(tmp_path):
    table = pl.DataFrame({"y": [0, 1] * 50, "n": [1, 2, 5, 9] * 25})
    schema = Schema([Field("n", "numeric", transform="interpolate", knots=10)], "y")
    dataset = prepare(table, schema, tmp_path / "data", fractions=(1, 0, 0))
    assert decoded(dataset, dataset.train.encoded, "n") == [{str(x): 1.0} for x in table["n"]]
    assert_equal(decoded(dataset, dataset.encoder.encode_rows([{"n": 3}]), "n"), [interpolated(3, [1, 2, 5, 9])])


@pytest.mark.parametrize("threads", [1, 2])
def test_the_output_does_not_depend_on_the_number_of_threads(dataset, tmp_path, threads):
    again = prepare(table_of(), SCHEMA, tmp_path / "data", threads=threads)
    assert again.manifest["files"] == dataset.manifest["files"]
