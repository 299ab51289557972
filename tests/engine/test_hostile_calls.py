"""Wrong arguments and damaged files: compiled and trained models raise Fm2Error and nothing else."""

from __future__ import annotations

import json
import pickle

import numpy as np
import polars as pl
import pytest
from tests.helpers.hostile import Mutant, with_section
from tests.helpers.mixed import SCHEMA, mixed

import fm2
from fm2 import Fm2Error
from fm2.cli.main import main
from fm2.data.row_inputs import library_errors


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Train and compile a model."""
    folder = tmp_path_factory.mktemp("hostile")
    dataset = fm2.prepare(mixed(400), SCHEMA, folder / "data")
    fm2.train("fm", dataset, folder / "run", epochs=1, threads=1, dim=2)
    fm2.compile(folder / "run", folder / "model.fm2", plan="direct")
    return folder


@pytest.fixture(scope="module")
def scorer(folder):
    return fm2.load(folder / "model.fm2", threads=1)


class Unreadable:
    """A table whose library fails."""

    def __init__(self, error):
        self.error = error

    def __arrow_c_stream__(self, requested_schema=None):
        raise self.error


@pytest.mark.parametrize(
    "error", [NotImplementedError("no such type\nin Arrow"), ValueError("object column"), OSError()]
)
def test_a_table_that_its_library_cannot_export_is_an_error(scorer, folder, error):
    reason = str(error).splitlines()[0] if str(error) else "OSError"
    with pytest.raises(Fm2Error, match=f"^predict: cannot read the table: .*{reason}"):
        scorer.predict(Unreadable(error))
    with pytest.raises(Fm2Error, match=f"^encode: cannot read the DataFrame: .*{reason}"):
        fm2.Run.open(folder / "run").predict(Unreadable(error))


def test_a_panic_of_a_library_is_an_error_but_an_interrupt_is_not():
    with pytest.raises(Fm2Error, match=r"^cannot read log: index out of bounds$"), library_errors("cannot read log"):
        raise type("PanicException", (BaseException,), {})("index out of bounds")
    with pytest.raises(KeyboardInterrupt), library_errors("cannot read log"):
        raise KeyboardInterrupt


@pytest.mark.parametrize("shape", [(2, 1), (2, 40)])
def test_a_run_checks_the_number_of_columns(folder, shape):
    fields = len(fm2.Run.open(folder / "run").encoder.schema.fields)
    with pytest.raises(Fm2Error, match=rf"^predict: ids must have the shape rows × {fields} fields, got \[2, "):
        fm2.Run.open(folder / "run").predict(np.zeros(shape, np.int32))


@pytest.mark.parametrize("count", [1.5, "3", True, -1, 1 << 70])
def test_the_number_of_candidates_is_an_integer(scorer, count):
    ranker = scorer.ranker(context=scorer.columns[:1])
    row = dict.fromkeys(scorer.columns, "1")
    context, candidate = {scorer.columns[0]: "1"}, {name: row[name] for name in scorer.columns[1:]}
    for call in (
        lambda: ranker.rank(context, [candidate] * 3, top=count),
        lambda: ranker.catalog([candidate] * 3).top(context, count),
    ):
        with pytest.raises(Fm2Error, match=r"^rank: the number of candidates must be an integer of 0 or more, got "):
            call()
    assert len(ranker.rank(context, [candidate] * 3, top=np.int64(2))) == 2


def test_a_scorer_is_pickled_by_path_and_checksum(scorer, folder, tmp_path, monkeypatch):
    pickled = pickle.dumps(scorer)
    assert len(pickled) < 1000
    monkeypatch.chdir(tmp_path)
    copy = pickle.loads(pickled)
    np.testing.assert_array_equal(copy.predict(mixed(20)), scorer.predict(mixed(20)))
    assert copy.threads == 1
    other = fm2.load(folder / "model.fm2")
    other.path = tmp_path / "model.fm2"
    pickled = pickle.dumps(other)
    fm2.compile(folder / "run", tmp_path / "model.fm2", plan="direct", dtype="f16")
    with pytest.raises(Fm2Error, match=r"model.fm2 is another model than the one that was pickled$"):
        pickle.loads(pickled)


def test_a_damaged_vocabulary_of_a_compiled_model_is_an_error(folder, tmp_path):
    model = (folder / "model.fm2").read_bytes()
    size = len(fm2.load(folder / "model.fm2").native.section("vocabulary.bytes"))
    (tmp_path / "model.fm2").write_bytes(with_section(model, b"vocabulary.bytes", b"\xff" * size))
    scorer = fm2.load(tmp_path / "model.fm2", verify=False)
    with pytest.raises(Fm2Error, match=r"not a valid compiled model: .*utf-8"):
        _ = scorer.encoder


def test_the_name_of_a_section_that_is_not_utf8_is_an_error(scorer, tmp_path):
    ranker = scorer.ranker(context=scorer.columns[:1])
    ranker.catalog([dict.fromkeys(scorer.columns[1:], "1")]).save(tmp_path / "catalog.fm2")
    mutant = Mutant((tmp_path / "catalog.fm2").read_bytes(), np.random.default_rng(0))
    mutant.index["name"][1] = b"\xff\xfe"
    (tmp_path / "catalog.fm2").write_bytes(mutant.sealed(mutant.sections))
    with pytest.raises(Fm2Error, match=r"^load: .*catalog.fm2: not a catalog: the name of a section is not UTF-8$"):
        ranker.load_catalog(tmp_path / "catalog.fm2")


def test_the_file_of_a_run_is_not_taken_for_a_compiled_model(folder, tmp_path, capsys):
    file = folder / "run" / "model.safetensors"
    with pytest.raises(
        Fm2Error, match=r"^load: .* is a file of a run; fm2 compile turns the run .*run into a model file$"
    ):
        fm2.load(file)
    mixed(5).write_parquet(tmp_path / "rows.parquet")
    assert main(["predict", str(file), str(tmp_path / "rows.parquet"), "--out", "-"]) == 1
    assert (
        f"expected a run, the directory that fm2 train writes; did you mean {folder / 'run'}?"
        in capsys.readouterr().err
    )


def test_names_and_values_cannot_control_the_terminal(tmp_path, capsys):
    name = "site\x1b[31m\u009b0m"
    log = pl.DataFrame({"y": [0, 1] * 100, name: ["a", "b", "c", "d"] * 50})
    dataset = fm2.prepare(log, fm2.Schema([fm2.Field(name)], label="y"), tmp_path / "data")
    run = fm2.train("lr", dataset, tmp_path / "run", epochs=1, threads=1)
    fm2.compile(run.path, tmp_path / "model.fm2")
    capsys.readouterr()
    model = str(tmp_path / "model.fm2")
    for words in (["describe", str(dataset.path)], ["inspect", model], ["explain", model, json.dumps({name: "a"})]):
        assert main(words) == 0
        shown = capsys.readouterr()
        assert "\x1b" not in shown.out + shown.err
        assert "\u009b" not in shown.out + shown.err
        assert r"site\x1b[31m\x9b0m" in shown.out
    assert main(["rank", model, '{"x": 1}', "-"]) == 1
    assert main(["train", "lr", str(tmp_path / f"no{name}"), "--out", "x"]) == 1
    assert "\x1b" not in capsys.readouterr().err
