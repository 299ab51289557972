"""Prediction files: formats, kept columns, and what happens to existing files."""

from __future__ import annotations

import csv
import gzip
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from tests.helpers.planted import QUICK, planted

import fm2
from fm2 import Fm2Error
from fm2.cli.main import main
from fm2.evaluation.prediction import predict_files

STRANGE = ["plain", "Zürich ☕", "a,b", 'say "hi"', "two\nlines", ""]


@pytest.fixture(scope="module")
def run(dataset, tmp_path_factory):
    return fm2.train("fmfm", dataset, tmp_path_factory.mktemp("prediction") / "run", **QUICK)


@pytest.fixture
def rows():
    """Rows with an id, and a column of cells that CSV has to quote."""
    table = planted(600, seed=3).with_columns(pl.col("click").cast(pl.Int64))
    note = [STRANGE[i % len(STRANGE)] for i in range(600)]
    return table.with_columns(pl.Series("id", [f"r{i}" for i in range(600)]), pl.Series("note", note))


def read_csv(path):
    with (
        gzip.open(path, "rt", encoding="utf-8", newline="")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8", newline="") as file
    ):
        header, *lines = csv.reader(file)
    return header, lines


def predict(run, *words):
    return main(["predict", str(run.path), *map(str, words)])


@pytest.mark.parametrize("extension", ["txt", "npy", "csv", "csv.gz", "parquet"])
def test_every_format_has_the_same_probabilities_in_the_order_of_the_rows(run, rows, tmp_path, capsys, extension):
    out = tmp_path / f"p.{extension}"
    rows[:250].write_csv(tmp_path / "a.csv")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(rows[250:400].write_csv().encode()))
    rows[400:].write_parquet(tmp_path / "c.parquet")
    assert predict(run, *(tmp_path / name for name in ("a.csv", "b.csv.gz", "c.parquet")), "--out", out) == 0
    assert capsys.readouterr().out == f"wrote 600 probabilities to {out}\n"
    read = {
        "txt": np.loadtxt,
        "npy": np.load,
        "csv": lambda path: pl.read_csv(path)["probability"].to_numpy(),
        "csv.gz": lambda path: pl.read_csv(path)["probability"].to_numpy(),
        "parquet": lambda path: pl.read_parquet(path)["probability"].to_numpy(),
    }
    np.testing.assert_allclose(read[extension](out), run.predict(rows), atol=1e-6)


@pytest.mark.parametrize("extension", ["xlsx", "JSON", "feather", "tsv", "txt.gz", "parquet.zst"])
def test_extensions_of_other_formats_are_refused(run, rows, tmp_path, capsys, extension):
    rows.write_csv(tmp_path / "rows.csv")
    out, last = tmp_path / f"p.{extension}", extension.lower().rpartition(".")[2]
    message = f"fm2 does not write .{last} files; use .csv, .csv.gz, .parquet, .npy, or .txt or no extension"
    assert predict(run, tmp_path / "rows.csv", "--out", out) == 1
    assert message in capsys.readouterr().err
    with pytest.raises(Fm2Error, match="fm2 does not write"):
        predict_files(run, rows, out)
    assert not out.exists()


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.tsv", "rows.parquet"])
@pytest.mark.parametrize("extension", ["csv", "csv.gz", "parquet"])
def test_kept_columns_are_copied_unchanged(run, rows, tmp_path, name, extension):
    if name == "rows.parquet":
        rows.write_parquet(tmp_path / name)
    elif name == "rows.tsv":
        rows = rows.with_columns(note=pl.col("note").str.replace_all(r"[\n\"]", "_"))
        rows.write_csv(tmp_path / name, separator="\t", quote_style="never")
    else:
        text = rows.write_csv().encode()
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    out = tmp_path / f"p.{extension}"
    assert predict(run, tmp_path / name, "--out", out, "--keep", "note,id,click,c1") == 0
    expected = run.predict(rows)
    if extension == "parquet":
        table = pl.read_parquet(out)
        assert table.columns == ["note", "id", "click", "c1", "probability"]
        assert table.schema["probability"] == pl.Float32
        assert table["note"].fill_null("").to_list() == rows["note"].to_list()
        assert table["click"].cast(pl.Int64).to_list() == rows["click"].to_list()
        np.testing.assert_allclose(table["probability"], expected, atol=1e-6)
    else:
        header, lines = read_csv(out)
        assert header == ["note", "id", "click", "c1", "probability"]
        assert [line[0] for line in lines] == rows["note"].to_list()
        assert [line[1] for line in lines] == rows["id"].to_list()
        assert [int(line[2]) for line in lines] == rows["click"].to_list()
        assert [line[3] for line in lines] == rows["c1"].to_list()
        np.testing.assert_allclose([float(line[4]) for line in lines], expected, atol=1e-6)


def test_rows_stay_in_order_when_a_file_has_several_chunks(run, rows, tmp_path, monkeypatch):
    monkeypatch.setattr("fm2.data.text_files.CHUNK_BYTES", 2048)
    monkeypatch.setattr("fm2.data.sources.BATCH_ROWS", 64)
    rows[:300].write_csv(tmp_path / "a.csv")
    rows[300:].write_parquet(tmp_path / "b.parquet")
    sources = [tmp_path / "a.csv", tmp_path / "b.parquet"]
    predictions = predict_files(run, sources, tmp_path / "p.csv", keep=["id", "note"])
    assert predictions.rows == 600
    _, lines = read_csv(tmp_path / "p.csv")
    assert [line[0] for line in lines] == rows["id"].to_list()
    assert [line[1] for line in lines] == rows["note"].to_list()
    predict_files(run, sources, tmp_path / "p.parquet", keep=["id", "note"])
    assert pl.read_parquet(tmp_path / "p.parquet")["id"].to_list() == rows["id"].to_list()
    np.testing.assert_allclose([float(line[2]) for line in lines], run.predict(rows), atol=1e-6)


def test_types_of_parquet_columns_are_kept(run, rows, tmp_path):
    typed = rows.with_columns(
        day=pl.date(2026, 1, 1) + pl.duration(days=pl.int_range(600)), price=pl.lit(1.5), no=pl.lit(None)
    )
    typed.write_parquet(tmp_path / "rows.parquet")
    predict_files(run, tmp_path / "rows.parquet", tmp_path / "p.parquet", keep=["day", "price", "click"])
    table = pl.read_parquet(tmp_path / "p.parquet")
    assert table.drop("probability").equals(typed.select("day", "price", "click"))
    predict_files(run, tmp_path / "rows.parquet", tmp_path / "p.csv", keep=["day", "price"])
    assert read_csv(tmp_path / "p.csv")[1][31][:2] == ["2026-02-01", "1.5"]


def test_tables_in_memory_are_sources_too(run, rows, tmp_path):
    arrow = rows.to_arrow()
    for source in (rows, arrow, [rows[:100], arrow.slice(100)]):
        predict_files(run, source, tmp_path / "p.csv", keep=["id"])
        _, lines = read_csv(tmp_path / "p.csv")
        assert [line[0] for line in lines] == rows["id"].to_list()
        np.testing.assert_allclose([float(line[1]) for line in lines], run.predict(rows), atol=1e-6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "p.csv", "--keep", "idd"], "rows.csv has no column 'idd'; did you mean 'id'?"),
        (["--out", "p.parquet", "--keep", "idd"], "rows.csv has no column 'idd'; did you mean 'id'?"),
        (["--out", "p.txt", "--keep", "id"], "cannot keep columns in p.txt; write to a .csv, .csv.gz or .parquet file"),
        (["--out", "p.npy", "--keep", "id"], "cannot keep columns in p.npy"),
        (["--out", "-", "--keep", "id,id"], "cannot keep column 'id': expected different column names"),
        (["--out", "p.csv", "--keep", "id,id"], "cannot keep column 'id': expected different column names"),
        (["--out", "p.csv", "--keep", "id,"], "cannot keep column '': expected different column names"),
        (["--out", "p.csv", "--keep", "probability"], "cannot keep column 'probability': the prediction has this name"),
    ],
)
def test_impossible_columns_are_errors_and_nothing_is_written(run, rows, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    rows.write_csv("rows.csv")
    assert predict(run, "rows.csv", *words) == 1
    error = capsys.readouterr().err
    assert error.startswith("fm2: ")
    assert message in error
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_an_error_in_the_second_file_leaves_the_old_predictions(run, rows, tmp_path):
    rows.write_csv(tmp_path / "good.csv")
    (tmp_path / "bad.csv").write_text("c0,c1,c2,c3,id\na,b,c,d,1\na,b\n")
    for name in ("p.csv", "p.csv.gz", "p.parquet"):
        out = tmp_path / name
        predict_files(run, tmp_path / "good.csv", out, keep=["id"])
        before = out.read_bytes()
        with pytest.raises(Fm2Error, match=r"predict: .*bad.csv line 3: expected 5 columns, got 2"):
            predict_files(run, [tmp_path / "good.csv", tmp_path / "bad.csv"], out, keep=["id"])
        assert out.read_bytes() == before
    with pytest.raises(Fm2Error, match=r"other.csv has no column 'note'"):
        rows.drop("note").write_csv(tmp_path / "other.csv")
        predict_files(run, [tmp_path / "good.csv", tmp_path / "other.csv"], tmp_path / "q.csv", keep=["note"])
    assert not list(tmp_path.glob(".*"))
    assert not (tmp_path / "q.csv").exists()


def test_only_predictions_are_replaced(run, rows, tmp_path):
    rows.write_csv(tmp_path / "rows.csv")
    rows.write_csv(tmp_path / "log.csv")
    rows.write_parquet(tmp_path / "log.parquet")
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(rows.write_csv().encode()))
    for name in ("log.csv", "log.parquet", "log.csv.gz"):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(Fm2Error, match=f"{name} already exists and has no column 'probability'"):
            predict_files(run, tmp_path / "rows.csv", tmp_path / name)
        assert (tmp_path / name).read_bytes() == before
    for name in ("p.csv", "p.parquet", "p.csv.gz"):
        for keep in ([], ["id"]):
            predict_files(run, tmp_path / "rows.csv", tmp_path / name, keep=keep)
        assert pl.scan_csv(tmp_path / "p.csv").collect_schema().names() == ["id", "probability"]


def test_columns_of_different_types_cannot_share_a_parquet_file(run, rows, tmp_path):
    numbered = rows.with_columns(id=pl.int_range(600))
    numbered.write_csv(tmp_path / "a.csv")
    numbered.write_parquet(tmp_path / "b.parquet")
    sources = [tmp_path / "a.csv", tmp_path / "b.parquet"]
    with pytest.raises(Fm2Error, match=r"column 'id' is Int64 in .*b.parquet and String in .*a.csv; write CSV"):
        predict_files(run, sources, tmp_path / "p.parquet", keep=["id"])
    predict_files(run, sources, tmp_path / "p.csv", keep=["id"])
    assert pl.read_csv(tmp_path / "p.csv")["id"].to_list() == [*range(600)] * 2
    tags = numbered.with_columns(tags=pl.concat_list("c0", "c1"))
    tags.write_parquet(tmp_path / "tags.parquet")
    with pytest.raises(Fm2Error, match="predict: cannot write tags as CSV"):
        predict_files(run, tmp_path / "tags.parquet", tmp_path / "t.csv", keep=["tags"])
    predict_files(run, tmp_path / "tags.parquet", tmp_path / "t.parquet", keep=["tags"])
    assert pl.read_parquet(tmp_path / "t.parquet")["tags"].to_list() == tags["tags"].to_list()


def test_a_full_disk_is_an_error_for_every_format(run, rows, tmp_path, capsys):
    rows.write_csv(tmp_path / "rows.csv")
    for name in ("p.csv", "p.csv.gz", "p.parquet", "p.npy"):
        (tmp_path / name).symlink_to("/dev/full")
        assert predict(run, tmp_path / "rows.csv", "--out", tmp_path / name) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"fm2: predict: {tmp_path / name}: ")
        assert "No space left on device" in error
        assert error.count("\n") == 1


def test_a_compiled_model_writes_csv_with_numpy_alone(run, rows, tmp_path):
    fm2.compile(run.path, tmp_path / "model.fm2")
    rows.write_csv(tmp_path / "rows.csv")
    code = """
import sys
for name in ("torch", "polars", "rich", "pyarrow", "pandas"):
    sys.modules[name] = None
from fm2.cli.main import main
sys.exit(main(["predict", "model.fm2", "rows.csv", "--out", "p.csv", "--keep", "id"]))
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    header, lines = read_csv(tmp_path / "p.csv")
    assert header == ["id", "probability"]
    np.testing.assert_allclose([float(line[1]) for line in lines], run.predict(rows), atol=1e-5)
