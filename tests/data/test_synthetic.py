"""Synthetic logs: their format, their distribution and their true probabilities."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fm2
from fm2.data.synthetic.columns import NUMERIC_LIMIT, Column, field_sizes, hex_codes, integers
from fm2.data.synthetic.generate import GeneratedLog
from fm2.data.synthetic.planted import DIM, Planted, plant

ROWS = 100_000


def auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the AUC of scores without ties."""
    ranks = np.argsort(np.argsort(scores)) + 1.0
    clicks = int(labels.sum())
    return float((ranks[labels == 1].sum() - clicks * (clicks + 1) / 2) / (clicks * (len(labels) - clicks)))


def read(path: str | Path | GeneratedLog, fields: int = 39) -> pl.DataFrame:
    numeric = fields // 3
    names = [f"I{i}" for i in range(1, numeric + 1)] + [f"C{i}" for i in range(1, fields - numeric + 1)]
    types = {name: pl.Int32 if name.startswith("I") else pl.String for name in names}
    return pl.read_csv(os.fspath(path), separator="\t", has_header=False, schema={"label": pl.UInt8, **types})


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> GeneratedLog:
    return fm2.generate(tmp_path_factory.mktemp("log") / "log.tsv", ROWS, features=20_000, seed=3)


@pytest.fixture(scope="module")
def table(log: GeneratedLog) -> pl.DataFrame:
    return read(log)


@pytest.fixture(scope="module")
def labels(table: pl.DataFrame) -> np.ndarray:
    return table["label"].to_numpy()


@pytest.fixture(scope="module")
def truth(log: GeneratedLog) -> np.ndarray:
    return np.load(log.truth)


@pytest.fixture(scope="module")
def planted() -> Planted:
    return plant(39, 20_000, np.random.default_rng(5))


def test_a_log_has_the_format_of_criteo(log: GeneratedLog, table: pl.DataFrame) -> None:
    lines = log.path.read_text().splitlines()
    assert len(lines) == log.rows == ROWS
    for line in lines[:1000]:
        label, *cells = line.split("\t")
        assert label in {"0", "1"}
        assert len(cells) == 39
        assert all(cell == "" or int(cell) >= 0 for cell in cells[:13])
        assert all(cell == "" or (len(cell) == 8 and int(cell, 16) >= 0) for cell in cells[13:])
    assert table["I1"].dtype == pl.Int32


def test_half_of_the_columns_have_missing_cells(table: pl.DataFrame) -> None:
    missing = np.array([table[name].null_count() for name in table.columns[1:]]) / ROWS
    assert 15 <= (missing == 0).sum() <= 25
    assert missing[missing > 0].min() > 0.01
    assert 0.3 < missing.max() < 0.5
    assert table["label"].null_count() == 0


def test_values_follow_a_power_law_and_sizes_are_skewed(table: pl.DataFrame) -> None:
    counts = [np.sort(table[f"C{i}"].drop_nulls().value_counts()["count"].to_numpy())[::-1] for i in range(1, 27)]
    largest = max(counts, key=len)
    assert len(largest) > 2_000
    assert min(len(column) for column in counts) == 2
    assert 0.05 < largest[0] / largest.sum() < 0.3
    ranks = np.arange(5, 200)  # the share of rank r is about r^-s; small ranks are rounded, large ranks are noisy
    slope = np.polyfit(np.log(ranks), np.log(largest[ranks - 1]), 1)[0]
    assert -1.35 < slope < -0.95


def test_a_quarter_of_the_rows_are_clicks(log: GeneratedLog, labels: np.ndarray) -> None:
    assert 0.24 < labels.mean() < 0.26
    assert log.click_rate == pytest.approx(labels.mean())


@pytest.mark.parametrize(("fields", "features", "seed"), [(39, 1_000_000, 0), (39, 500, 1), (10, 3_000, 2), (3, 50, 3)])
def test_the_click_rate_does_not_depend_on_the_size(fields: int, features: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = plant(fields, features, rng)
    assert 0.24 < model.probabilities(model.draw(30_000, rng)).mean() < 0.26


def test_the_true_probabilities_are_calibrated(truth: np.ndarray, labels: np.ndarray) -> None:
    assert truth.dtype == np.float32
    assert truth.shape == (ROWS,)
    for part in np.array_split(np.argsort(truth), 20):
        deviation = math.sqrt((truth[part] * (1 - truth[part])).sum()) / len(part)
        assert abs(labels[part].mean() - truth[part].mean()) < 4 * deviation


def test_the_reported_metrics_are_those_of_the_true_probabilities(
    log: GeneratedLog, truth: np.ndarray, labels: np.ndarray
) -> None:
    true_auc = auc(truth, labels)
    log_loss = -np.log(np.where(labels, truth, 1 - truth)).mean()
    assert 0.80 < true_auc < 0.82
    assert log.auc == pytest.approx(true_auc, abs=0.005)
    assert log.log_loss == pytest.approx(log_loss, abs=0.005)


def test_the_true_probability_depends_on_the_transformed_number(tmp_path: Path) -> None:
    log = fm2.generate(tmp_path / "log.tsv", 50_000, fields=4, features=100)
    table = read(log, fields=4).with_columns(truth=pl.Series(np.load(log.truth)))
    number = pl.col("I1")
    transformed = pl.when(number > 2).then((number.log().pow(2) + 1).ceil()).otherwise(number)
    spread = table.group_by(transformed.alias("I1"), "C1", "C2", "C3").agg(pl.col("truth").n_unique(), pl.len())
    assert spread["truth"].max() == 1
    assert spread["len"].max() > 100
    assert table["I1"].n_unique() > spread["I1"].n_unique()


def test_the_transform_maps_every_integer_back_to_its_value() -> None:
    values = np.repeat(np.arange(1, NUMERIC_LIMIT + 1), 50)
    numbers = integers(values, np.tile(np.linspace(0, 1, 50, endpoint=False), NUMERIC_LIMIT))
    expected = [x if x <= 2 else math.ceil(math.log(x) ** 2 + 1) for x in numbers.tolist()]
    assert np.array_equal(values - 1, expected)
    assert set(range(15)) < set(numbers.tolist())


def test_the_block_form_equals_the_sum_over_pairs_in_the_paper(planted: Planted) -> None:
    features = planted.draw(5, np.random.default_rng(0))
    for row, pairs, probability in zip(features, planted.pairs(features), planted.probabilities(features), strict=True):
        linear = sum(planted.linear_std * planted.weights[feature] for feature in row)
        score = 0.0
        for i, j in itertools.combinations(range(39), 2):
            for k, m in itertools.product(range(DIM), range(DIM)):
                field_matrix = planted.matrix[i * DIM : (i + 1) * DIM, j * DIM : (j + 1) * DIM]
                score += planted.embeddings[row[i], k] * field_matrix[k, m] * planted.embeddings[row[j], m]
        assert pairs == pytest.approx(planted.pair_scale * score, rel=1e-12)
        assert probability == pytest.approx(1 / (1 + math.exp(-planted.intercept - linear - pairs)), rel=1e-12)


def test_richer_interactions_explain_more(planted: Planted) -> None:
    """Reduce the field matrices to what LR, FM, FwFM and FvFM can represent, and compare the AUC."""
    rng = np.random.default_rng(1)
    features = planted.draw(60_000, rng)
    labels = rng.random(len(features)) < planted.probabilities(features)
    blocks = planted.matrix.reshape(39, DIM, 39, DIM)
    diagonals = np.einsum("ikjk->ijk", blocks)
    scalars = np.repeat(diagonals.mean(2, keepdims=True), DIM, axis=2)
    constant = np.broadcast_to(scalars[..., 0].sum() / (39 * 38) * (1 - np.eye(39))[..., None], scalars.shape)
    matrices = [np.zeros_like(constant), constant, scalars, diagonals]
    reduced = [np.einsum("ijk,kl->ikjl", diagonal, np.eye(DIM)).reshape(planted.matrix.shape) for diagonal in matrices]
    models = [replace(planted, matrix=matrix) for matrix in reduced] + [planted]
    lr, fm, fwfm, fvfm, fmfm = (auc(model.probabilities(features), labels) for model in models)
    assert lr + 0.002 < fm
    assert fm + 0.01 < fwfm
    assert fwfm + 0.005 < fvfm
    assert fvfm + 0.01 < fmfm


def test_most_pairs_are_weak(planted: Planted) -> None:
    blocks = planted.matrix.reshape(39, DIM, 39, DIM)
    strengths = np.sort(np.sqrt((blocks**2).sum((1, 3)))[np.triu_indices(39, 1)])
    assert strengths[len(strengths) // 2] < 0.1 * strengths[-1]
    assert not np.einsum("ikil->ikl", blocks).any()


def test_the_output_does_not_depend_on_the_number_of_threads(tmp_path: Path) -> None:
    names = ["log.tsv", "log.tsv.gz", "log.parquet"]
    program = "import sys, fm2\nfor out in sys.argv[1:]: fm2.generate(out, 40_000, features=3_000, seed=7)"
    outputs = []
    for threads in ("1", "3"):
        folder = tmp_path / threads
        folder.mkdir()
        limits = {"POLARS_MAX_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        command = [sys.executable, "-c", program, *(str(folder / name) for name in names)]
        subprocess.run(command, check=True, env=os.environ | limits)
        outputs.append({file.name: file.read_bytes() for file in folder.iterdir()})
    assert len(outputs[0]) == 6
    assert outputs[0] == outputs[1]


def test_another_seed_generates_another_log(tmp_path: Path) -> None:
    first, second = (fm2.generate(tmp_path / f"{seed}.tsv", 1000, features=500, seed=seed) for seed in (1, 2))
    assert first.path.read_bytes() != second.path.read_bytes()
    assert first.truth.read_bytes() != second.truth.read_bytes()


def test_all_formats_contain_the_same_rows(tmp_path: Path) -> None:
    logs = {
        name: fm2.generate(tmp_path / name, 35_000, fields=8, features=900)
        for name in ("log.tsv", "log.tsv.gz", "log.parquet")
    }
    text = read(logs["log.tsv"], fields=8)
    assert text.columns == ["label", "I1", "I2", "C1", "C2", "C3", "C4", "C5", "C6"]
    assert gzip.decompress(logs["log.tsv.gz"].path.read_bytes()) == logs["log.tsv"].path.read_bytes()
    assert pl.read_parquet(os.fspath(logs["log.parquet"])).equals(text)
    assert len({log.truth.read_bytes() for log in logs.values()}) == 1


def test_format_overrides_the_extension(tmp_path: Path) -> None:
    log = fm2.generate(tmp_path / "log", 10, fields=3, features=9, format="parquet")
    assert log.truth == tmp_path / "log.truth.npy"
    assert pl.read_parquet(log.path).shape == (10, 4)


def test_progress_reports_the_rows_written(tmp_path: Path) -> None:
    reported: list[int] = []
    fm2.generate(tmp_path / "log.tsv", 70_000, fields=2, features=10, progress=reported.append)
    assert reported == [32_768, 65_536, 70_000]


@pytest.mark.parametrize("name", ["log.tsv", "log.tsv.gz", "log.parquet"])
def test_an_interrupted_run_leaves_no_files(tmp_path: Path, name: str) -> None:
    def stop(rows: int) -> None:
        if rows > 40_000:
            raise KeyboardInterrupt

    arguments = {"rows": 100_000, "fields": 3, "features": 30}
    with pytest.raises(KeyboardInterrupt):
        fm2.generate(tmp_path / name, **arguments, progress=stop)
    assert list(tmp_path.iterdir()) == []
    complete = fm2.generate(tmp_path / name, **arguments)
    before = complete.path.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        fm2.generate(tmp_path / name, **arguments, seed=1, progress=stop)
    assert complete.path.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [complete.path, complete.truth]


def test_a_full_disk_leaves_no_files(tmp_path: Path) -> None:
    program = (
        "import resource, sys, fm2\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))\n"
        "try: fm2.generate(sys.argv[1], 100_000, fields=5, features=100)\n"
        "except fm2.Fm2Error as error: print(error)"
    )
    out = tmp_path / "log.tsv"
    run = subprocess.run([sys.executable, "-c", program, str(out)], check=True, capture_output=True, text=True)
    assert run.stdout.startswith(f"generate: {out}: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 0}, "generate: rows must be at least 1, got 0"),
        ({"fields": 1}, "generate: fields must be at least 2, got 1"),
        ({"fields": 301}, "generate: fields must be at most 300, got 301"),
        ({"features": 77}, "generate: features must be at least 78 (two per field), got 77"),
        ({"seed": -1}, "generate: seed must be at least 0, got -1"),
        ({"out": "log.csv"}, "generate: unknown extension of 'log.csv'; choose one of tsv, tsv.gz, parquet"),
        ({"format": "avro"}, "generate: unknown format 'avro'; choose one of tsv, tsv.gz, parquet"),
        ({"out": "nowhere/log.tsv"}, "generate: the directory 'nowhere' does not exist"),
    ],
)
def test_errors_name_the_invalid_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fm2.Fm2Error) as error:
        fm2.generate(**({"out": "log.tsv", "rows": 10} | changes))  # type: ignore[arg-type]
    assert str(error.value) == message


def test_draws_follow_the_probabilities_of_the_column() -> None:
    column = Column("C1", numeric=False, size=50, exponent=1.1, missing=0.2)
    uniform = (np.arange(1_000_000) + 0.5) / 1_000_000
    shares = np.bincount(column.draw(uniform), minlength=51) / len(uniform)
    assert column.probabilities().sum() == pytest.approx(1)
    assert np.abs(shares - column.probabilities()).max() < 3e-6


@pytest.mark.parametrize("features", [78, 1_000, 100_000, 1_327_180, 50_000_000])
def test_field_sizes_sum_to_the_features(features: int) -> None:
    sizes = field_sizes(13, 26, features)
    assert sizes.sum() == features
    assert sizes.min() >= 2
    assert sizes[:13].max() <= NUMERIC_LIMIT


def test_codes_are_distinct() -> None:
    assert len(set(hex_codes(np.arange(200_000), salt=12345))) == 200_000


LISTS = {"fields": 6, "features": 600, "multivalued": 3, "values": 4, "seed": 11}


@pytest.mark.parametrize("weighted", [False, True])
def test_the_truth_of_lists_is_the_pooled_sum_of_their_values(tmp_path: Path, weighted: bool) -> None:
    """Recompute the probabilities from the text of the cells, value by value and pair by pair."""
    log = fm2.generate(tmp_path / "log.tsv", 40, weighted=weighted, **LISTS)
    rng = np.random.default_rng(np.random.SeedSequence(LISTS["seed"], spawn_key=(0,)))
    model = plant(6, 600, rng, multivalued=3, values=4, weighted=weighted)
    salt = int(rng.integers(1 << 32))
    columns = [*model.columns, *(column.column for column in model.lists)]
    names = [
        dict(zip(hex_codes(start + np.arange(column.size), salt), range(1, column.size + 1), strict=True))
        for column, start in zip(columns, model.starts, strict=True)
    ]

    def features(field: int, cell: str) -> list[tuple[int, float]]:
        """Return the features of a cell with their pooled weights."""
        if not cell:
            return [(0, 1.0)]
        if columns[field].numeric:
            number = int(cell)
            return [(1 + (math.ceil(math.log(number) ** 2 + 1) if number > 2 else number), 1.0)]
        pairs = [(value.partition(":")[0], float(value.partition(":")[2] or 1)) for value in cell.split("|")]
        norm = math.sqrt(sum(weight**2 for _, weight in pairs))
        return [(names[field][code], weight / norm) for code, weight in pairs]

    def pooled(field: int, cell: str, table: np.ndarray) -> np.ndarray:
        return sum(weight * table[model.starts[field] + feature] for feature, weight in features(field, cell))

    truth = np.load(log.truth)
    for line, expected in zip(log.path.read_text().splitlines(), truth, strict=True):
        cells = line.split("\t")[1:]
        assert len(cells) == 9
        logit = model.intercept
        vectors = []
        for field, cell in enumerate(cells):
            logit += model.linear_std * pooled(field, cell, model.weights)
            vectors.append(pooled(field, cell, model.embeddings))
        for i, j in itertools.combinations(range(9), 2):
            block = model.matrix[i * DIM : (i + 1) * DIM, j * DIM : (j + 1) * DIM]
            logit += model.pair_scale * vectors[i] @ block @ vectors[j]
        assert 1 / (1 + math.exp(-logit)) == pytest.approx(expected, abs=0.01)  # pooled values are rounded to 1/256


def test_lists_have_the_declared_form(tmp_path: Path) -> None:
    log = fm2.generate(tmp_path / "log.tsv", 20_000, **LISTS)
    cells = [line.split("\t")[7:] for line in log.path.read_text().splitlines()]
    for column in zip(*cells, strict=True):
        lists = [cell.split("|") for cell in column if cell]
        assert 1 - len(lists) / 20_000 == pytest.approx(0.1, abs=0.01)
        assert np.mean([len(values) for values in lists]) == pytest.approx(4, abs=0.05)
        assert min(len(values) for values in lists) == 1
        counts = pl.Series(itertools.chain.from_iterable(lists)).value_counts(sort=True)
        assert counts[counts.columns[0]].str.contains("^[0-9a-f]{8}$").all()
        assert counts["count"][0] > 20 * counts["count"][len(counts) // 2]  # a few values are frequent
    schema = fm2.Schema.load(log.schema)
    assert schema.names == ("I1", "I2", "C1", "C2", "C3", "C4", "L1", "L2", "L3")
    assert [field.multivalued for field in schema.fields] == [False] * 6 + [True] * 3
    assert {field.pooling for field in schema.fields[6:]} == {"sqrt"}
    assert 0.24 < log.click_rate < 0.26
    assert log.auc == pytest.approx(0.81, abs=0.01)


def test_weighted_lists_have_weights(tmp_path: Path) -> None:
    log = fm2.generate(tmp_path / "log.tsv.gz", 500, weighted=True, **LISTS)
    lines = gzip.decompress(log.path.read_bytes()).decode().splitlines()
    values = [value for line in lines for cell in line.split("\t")[7:] if cell for value in cell.split("|")]
    assert {value.partition(":")[2] for value in values} == {"0.25", "0.5", "1", "1.5", "2"}
    assert all(field.weighted for field in fm2.Schema.load(log.schema).fields[6:])


def test_logs_with_lists_are_reproducible(tmp_path: Path) -> None:
    program = "import sys, fm2\nfm2.generate(sys.argv[1], 40_000, features=3_000, multivalued=2, weighted=True, seed=7)"
    outputs = []
    for threads in ("1", "3"):
        folder = tmp_path / threads
        folder.mkdir()
        limits = {"POLARS_MAX_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        command = [sys.executable, "-c", program, str(folder / "log.tsv")]
        subprocess.run(command, check=True, env=os.environ | limits)
        outputs.append({file.name: file.read_bytes() for file in folder.iterdir()})
    assert sorted(outputs[0]) == ["log.tsv", "log.tsv.schema.toml", "log.tsv.truth.npy"]
    assert outputs[0] == outputs[1]


def test_ignoring_the_lists_loses_information() -> None:
    """Without the lists, the best prediction is the mean probability over all lists that a row could have."""
    rng = np.random.default_rng(2)
    model = plant(39, 5_000, rng, multivalued=3)
    features = model.draw(4_000, rng)
    truth = model.probabilities(features, model.draw_lists(4_000, rng))
    without = np.mean([model.probabilities(features, model.draw_lists(4_000, rng)) for _ in range(100)], axis=0)

    def loss(predicted: np.ndarray) -> float:
        """Return the expected log loss."""
        return float(-(truth * np.log(predicted) + (1 - truth) * np.log1p(-predicted)).mean())

    base = loss(np.full(4_000, truth.mean()))
    assert loss(without) - loss(truth) > 0.1 * (base - loss(truth))
    assert loss(without) < base - 0.2 * (base - loss(truth))


def test_plain_logs_have_not_changed(tmp_path: Path) -> None:
    """Logs of the same seed are the same in every version."""
    log = fm2.generate(tmp_path / "log.tsv", 1000, features=500)
    digests = [hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in (log.path, log.truth)]
    assert digests == ["7a924332957dba9d", "b34e059cb6ef259c"]
    assert log.schema is None
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"multivalued": -1}, "generate: multivalued must be at least 0, got -1"),
        ({"values": 0}, "generate: values must be at least 1, got 0"),
        ({"values": 1001}, "generate: values must be at most 1000, got 1001"),
        ({"multivalued": 2, "features": 81}, "generate: features must be at least 82 (two per field), got 81"),
    ],
)
def test_errors_name_invalid_arguments_of_lists(tmp_path: Path, changes: dict[str, int], message: str) -> None:
    with pytest.raises(fm2.Fm2Error) as error:
        fm2.generate(tmp_path / "log.tsv", 10, **changes)
    assert str(error.value) == message
