"""Samples of the two public datasets of the paper."""

from __future__ import annotations

import gzip
import math
from collections import Counter

import numpy as np
import pytest

from fm2 import Schema, load, prepare, train
from fm2.data.presets import paper_schema
from fm2.engine.compile import compile


def rows_of(path, header: bool) -> list[list[str]]:
    with gzip.open(path, "rt") as file:
        separator = "," if header else "\t"
        return [line.rstrip("\n").split(separator) for line in file][int(header) :]


def header_of(path) -> list[str]:
    with gzip.open(path, "rt") as file:
        return file.readline().strip().split(",")


@pytest.fixture(scope="module")
def criteo(real_data, tmp_path_factory):
    source = real_data / "criteo.tsv.gz"
    out = tmp_path_factory.mktemp("criteo") / "data"
    return rows_of(source, header=False), prepare(source, paper_schema("criteo"), out)


@pytest.fixture(scope="module")
def avazu(real_data, tmp_path_factory):
    source = real_data / "avazu.csv.gz"
    out = tmp_path_factory.mktemp("avazu") / "data"
    return rows_of(source, header=True), prepare(source, paper_schema("avazu"), out)


def transformed(text: str) -> str | None:
    if not text:
        return None
    return str(math.ceil(math.log(int(text)) ** 2 + 1)) if int(text) > 2 else str(int(text))


def check_decoding(raw, dataset, expected) -> None:
    """Compare every decoded row with its raw row; exactly the rare values are unknown."""
    assert sum(len(dataset.split(name)) for name in ("train", "validation", "test")) == len(raw)
    thresholds = {field.name: field.min_count for field in dataset.schema.fields}
    counts = {field: Counter(expected(raw[row], field) for row in dataset.train.rows) for field in dataset.schema.names}
    for name in ("train", "validation", "test"):
        split = dataset.split(name)
        for field, values in dataset.decode(np.asarray(split.ids)).items():
            known = {value for value, count in counts[field].items() if count >= thresholds[field]}
            texts = (expected(raw[row], field) for row in split.rows)
            assert values == [text if text in known else "<unknown>" for text in texts], field


def test_the_criteo_sample_is_decoded_to_its_raw_values(criteo):
    raw, dataset = criteo
    assert len(raw) == 137_139
    assert len(dataset.schema.fields) == 39
    names = Schema.preset("criteo").columns

    def expected(row, field):
        text = row[names.index(field)]
        return transformed(text) if field.startswith("I") else text or None

    check_decoding(raw, dataset, expected)
    labels = np.array([int(row[0]) for row in raw])
    np.testing.assert_array_equal(labels[dataset.train.rows], dataset.train.labels)
    train = [raw[row][names.index("C4")] or None for row in dataset.train.rows]
    values, counts = np.unique([str(value) for value in train], return_counts=True)
    assert dataset.field_sizes[names.index("C4") - 1] == 1 + np.count_nonzero(counts >= 8)
    assert len(values) - np.count_nonzero(counts >= 8) == dataset.manifest["fields"][names.index("C4") - 1]["dropped"]


def test_the_avazu_sample_is_decoded_to_its_raw_values(avazu, real_data):
    raw, dataset = avazu
    assert len(raw) == 29_991
    assert len(dataset.schema.fields) == 23
    header = header_of(real_data / "avazu.csv.gz")

    def expected(row, field):
        if field == "weekday":  # October 2014 began on a Wednesday
            return str((int(row[2][4:6]) + 1) % 7)
        if field == "hour":
            return str(int(row[2][6:]))
        return row[header.index(field)]

    check_decoding(raw, dataset, expected)


def test_the_avazu_sample_is_split_by_time(real_data, tmp_path):
    source = real_data / "avazu.csv.gz"
    hours = np.array([int(row[2]) for row in rows_of(source, header=True)])
    dataset = prepare(source, "avazu", tmp_path / "data", split="time")
    train, validation, test = (hours[dataset.split(name).rows] for name in ("train", "validation", "test"))
    assert train.max() < validation.min() <= validation.max() < test.min()
    assert abs(len(train) / len(hours) - 0.8) < 0.05


@pytest.mark.parametrize("name", ["criteo", "avazu"])
def test_compiled_models_agree_with_torch_on_real_rows(request, real_data, tmp_path, name):
    """All exact plans, and the spectral plan at full rank, on ids and on raw values."""
    raw, dataset = request.getfixturevalue(name)
    run = train("fmfm", dataset, tmp_path / "run", dim=4, epochs=2, batch_size=512)
    expected = run.probabilities(dataset.test.ids)
    assert expected.std() > 0.05
    for plan, rank in (("direct", None), ("cached", None), ("spectral", 4 * len(dataset.field_sizes))):
        compile(run.path, tmp_path / "model.fm2", plan=plan, rank=rank, data=dataset if plan == "spectral" else None)
        probabilities = load(tmp_path / "model.fm2").predict(np.asarray(dataset.test.ids))
        np.testing.assert_allclose(probabilities, expected, atol=1e-5, err_msg=plan)
    scorer = load(tmp_path / "model.fm2")
    columns = Schema.preset(name).columns or header_of(real_data / "avazu.csv.gz")
    rows = [dict(zip(columns, raw[row], strict=False)) for row in dataset.test.rows[:2000]]
    np.testing.assert_allclose(scorer.predict(rows), expected[:2000], atol=1e-5)
