"""What a crash, a full disk, a signal or another process leaves behind. ``make torture`` tries many more points."""

from __future__ import annotations

import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from tests.helpers.changing_ids import changing_ids
from tests.helpers.planted import QUICK, SCHEMA, planted

import fm2
from fm2 import Fm2Error, files
from fm2.artifacts.arrays import CHECKSUM, verify_arrays
from fm2.artifacts.run_directory import RACE, SETTINGS
from fm2.cli.main import main
from fm2.errors import Terminated
from fm2.training import train as train_module
from fm2.training.race_record import Record

SETTINGS_OF = {**QUICK, "threads": 1}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return fm2.prepare(planted(600, values=6), SCHEMA, tmp_path_factory.mktemp("small") / "data")


@pytest.fixture(scope="module")
def run(small, tmp_path_factory):
    return fm2.train("fmfm", small, tmp_path_factory.mktemp("runs") / "run", dim=3, **SETTINGS_OF)


@pytest.fixture(scope="module")
def model(run, tmp_path_factory):
    return fm2.compile(run.path, tmp_path_factory.mktemp("models") / "model.fm2", plan="direct").path


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("marker", "others", "command"),
    [
        (SETTINGS, [RACE], lambda data, out, **policy: fm2.train("lr", data, out, **policy, **SETTINGS_OF)),
        ("compare.json", [], lambda data, out, **policy: fm2.compare(data, out, "lr", **policy, **SETTINGS_OF)),
        ("tune.json", ["space.toml"], lambda data, out, overwrite: fm2.tune("lr", data, out, trials=1, threads=1)),
    ],
)
def test_a_command_that_was_killed_at_its_first_file_can_be_repeated(
    small, tmp_path, marker, others, command, overwrite
):
    out = tmp_path / "out"
    out.mkdir()
    for name in (f".{marker}.partial-killed", *others):
        (out / name).write_text("half")
    command(small, out, overwrite=overwrite)
    assert marker in names(out)
    assert not [name for name in names(out) if ".partial-" in name]
    assert Record.read(out) is None


def test_a_killed_shrink_can_be_repeated_and_leaves_nothing(small, run, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / f".{SETTINGS}.partial-killed").write_text("half")
    (tmp_path / ".out.partial-killed").mkdir()  # the projected model
    fm2.shrink(run, small, tmp_path / "out", warm=True, overwrite=True, threads=1)
    assert names(tmp_path) == ["out"]


def test_a_race_has_its_record_from_the_beginning(small, tmp_path, monkeypatch):
    """Settings without a record would be an ordinary run, which cannot be resumed as a race."""
    monkeypatch.setattr(train_module.Race, "run", lambda race: pytest.exit("killed"))
    with pytest.raises(pytest.exit.Exception):
        fm2.train("lr", small, tmp_path / "run", effort=2, **SETTINGS_OF)
    assert names(tmp_path / "run") == [RACE, SETTINGS]
    monkeypatch.undo()
    assert fm2.train("lr", small, tmp_path / "run", effort=2, resume=True, **SETTINGS_OF).metrics


def test_a_run_that_appears_during_the_preparation_of_another_is_not_replaced(small, tmp_path, monkeypatch):
    make_backend = train_module._make_backend

    def be_slower_than_another_process(*arguments):
        monkeypatch.undo()
        fm2.train("lr", small, tmp_path / "run", seed=1, **SETTINGS_OF)
        return make_backend(*arguments)

    monkeypatch.setattr(train_module, "_make_backend", be_slower_than_another_process)
    with pytest.raises(Fm2Error, match="already exists; use resume=True to continue it or overwrite=True"):
        fm2.train("lr", small, tmp_path / "run", seed=2, **SETTINGS_OF)
    assert "seed = 1" in (tmp_path / "run" / SETTINGS).read_text()


def test_a_comparison_that_was_killed_while_it_replaced_another_can_be_resumed(small, tmp_path, monkeypatch):
    fm2.compare(small, tmp_path / "out", "lr", **SETTINGS_OF)
    monkeypatch.setattr("fm2.studies.comparison.compare.write_files", lambda *_: pytest.exit("killed"))
    with pytest.raises(pytest.exit.Exception):
        fm2.compare(small, tmp_path / "out", "lr", overwrite=True, **SETTINGS_OF)
    monkeypatch.undo()
    fm2.compare(small, tmp_path / "out", resume=True)
    assert names(tmp_path / "out") == ["compare.csv", "compare.json", "differences.csv", "lr-0", "predictions"]


def test_models_and_catalogs_do_not_replace_each_other(model, run, tmp_path):
    catalog = fm2.load(model).ranker(candidate=["c3"]).catalog([{"c3": "v1"}, {"c3": "v2"}])
    before = model.read_bytes()
    with pytest.raises(Fm2Error, match=r"save: .*model.fm2 already exists and is not an earlier catalog"):
        catalog.save(model)
    assert model.read_bytes() == before
    catalog.save(tmp_path / "ads.fm2")
    catalog.save(tmp_path / "ads.fm2")
    with pytest.raises(Fm2Error, match=r"compile: .*ads.fm2 already exists and is not an earlier compiled model"):
        fm2.compile(run.path, tmp_path / "ads.fm2")
    assert fm2.verify(tmp_path / "ads.fm2").kind == "catalog"


def test_a_full_disk_is_an_error_and_not_a_crash(model, run, tmp_path):
    """The limit of a file's size stands for the end of the disk: writing beyond it fails."""
    catalog = fm2.load(model).ranker(candidate=["c3"]).catalog([{"c3": "v1"}] * 1000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(Fm2Error, match=r"^compile: cannot write to .*: File too large$"):
            fm2.compile(run.path, tmp_path / "model.fm2")
        with pytest.raises(Fm2Error, match=r"^save: cannot write to .*: File too large$"):
            catalog.save(tmp_path / "catalog.fm2")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not names(tmp_path)


def test_compile_removes_what_a_killed_compile_left(run, tmp_path):
    (tmp_path / ".model.fm2.partial-killed").mkdir()
    (tmp_path / ".model.fm2.partial-killed" / "0.fm2").write_text("large")
    fm2.compile(run.path, tmp_path / "model.fm2")
    assert names(tmp_path) == ["model.fm2"]


def terminate(arguments: list[object], is_ready) -> tuple[int, str]:
    """Start a command, send it SIGTERM when it is ready, and return its exit code and last message."""
    command = [sys.executable, "-m", "fm2", *map(str, arguments)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        deadline = time.monotonic() + 300
        while not is_ready() and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        child.send_signal(signal.SIGTERM)
        _, errors = child.communicate(timeout=300)
    return child.returncode, errors.strip().splitlines()[-1]


def test_sigterm_removes_temporary_files(tmp_path):
    arguments = ["generate", tmp_path / "log.tsv", "--rows", 50_000_000, "--fields", 4, "--features", 100]
    code, message = terminate(arguments, lambda: bool(names(tmp_path)))
    assert (code, message) == (143, "fm2: terminated; no output was written")
    assert not names(tmp_path)


@pytest.mark.parametrize("manager", [files.atomic_file, files.temporary_directory])
def test_a_signal_right_after_the_creation_leaves_no_temporary_file(tmp_path, monkeypatch, manager):
    def terminate_while_locking(lock, path):
        assert names(tmp_path)
        raise Terminated

    monkeypatch.setattr(files, "_lock_new", terminate_while_locking)
    with pytest.raises(Terminated), manager(tmp_path / "out"):
        pass
    assert not names(tmp_path)


def test_sigterm_writes_a_checkpoint(small, tmp_path):
    options = ["--epochs", 10_000, "--patience", 100_000, "--batch-size", 64, "--threads", 1]
    arguments = ["train", "lr", small.path, "--out", tmp_path / "run", *options]
    code, message = terminate(arguments, (tmp_path / "run" / "model.safetensors").exists)
    assert (code, message) == (143, "fm2: terminated; continue with --resume; the best model so far is kept")
    assert fm2.verify(tmp_path / "run").files == 4  # with the checkpoint


def test_ids_that_change_during_a_prediction_are_no_crash(model):
    """The ids are checked and used by threads without the GIL while another one writes to them."""
    scorer = fm2.load(model, threads=2)
    with changing_ids(20_000, 4) as ids:
        for _ in range(40):
            try:
                scorer.predict(ids)
            except Fm2Error as error:
                assert "has id 2147483647" in str(error)


def test_a_column_name_with_nul_is_an_error(tmp_path, model):
    log = pl.DataFrame({"click": [0, 1] * 50, "a\0b": ["x", "y"] * 50, "c0": ["x", "y"] * 50})
    log.write_parquet(tmp_path / "log.parquet")
    with pytest.raises(Fm2Error, match=r"field 'a\\x00b': the name contains NUL"):
        fm2.Schema.infer(tmp_path / "log.parquet", label="click")
    with pytest.raises(Fm2Error, match=r"the column name 'a\\x00b' contains NUL"):
        fm2.prepare(log, fm2.Schema([fm2.Field("c0")], label="click"), tmp_path / "data")
    with pytest.raises(Fm2Error, match=r"predict: the DataFrame: the column name 'a\\x00b' contains NUL"):
        fm2.load(model).predict(log)


def test_nul_in_names_missing_values_and_paths_is_an_error(model):
    """Texts in a compiled model end with NUL, and so do paths: the rest would be ignored."""
    field = fm2.Field("site")
    for changes in ({"missing": ["N\0A"]}, {"label": "cl\0ck"}, {"columns": ["click", "site", "a\0"]}):
        with pytest.raises(Fm2Error, match=r"schema: '.*\\x00.*' contains NUL"):
            fm2.Schema([field], **{"label": "click", **changes})
    with pytest.raises(Fm2Error, match="the format contains NUL"):
        fm2.Field("time", "timestamp", format="%Y\0%m")
    with pytest.raises(Fm2Error, match="the path continues after a NUL"):
        fm2.load(f"{model}\0.txt")


def flip(file: Path, at: int = -3) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def test_damaged_data_is_found_before_training(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fm2.cli.training.NOTICEABLE", 0.0)
    data = fm2.prepare(planted(600, values=6), SCHEMA, tmp_path / "data").path
    options = ["--out", str(tmp_path / "run"), "--epochs", "1", "--threads", "1"]
    assert main(["train", "lr", str(data), *options]) == 0
    assert "MB of" in capsys.readouterr().err
    flip(data / "train" / "ids.npy", -4)  # the last id is another one of the same field
    assert main(["train", "lr", str(data), "--overwrite", *options]) == 1
    assert "train/ids.npy does not match" in capsys.readouterr().err
    with pytest.raises(Fm2Error, match=r"the checksum of train/ids.npy does not match"):
        fm2.train("lr", data, tmp_path / "other", **SETTINGS_OF)
    assert main(["train", "lr", str(data), "--overwrite", "--no-verify", *options]) == 0
    assert "verified" not in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["dataset", "run", "compiled model", "catalog"])
def test_verify_finds_a_flipped_bit_in_every_file(small, run, model, tmp_path, capsys, kind):
    path = tmp_path / "copy"
    if kind == "catalog":
        fm2.load(model).ranker(candidate=["c3"]).catalog([{"c3": "v1"}]).save(path)
    elif kind == "compiled model":
        shutil.copy(model, path)
    else:
        shutil.copytree(small.path if kind == "dataset" else run.path, path)
    assert main(["verify", str(path)]) == 0
    assert f"{kind}, " in capsys.readouterr().out
    checked = [file for file in ([path] if path.is_file() else sorted(path.rglob("*"))) if file.is_file()]
    checked = [file for file in checked if file.suffix not in (".json", ".jsonl") and file.name != SETTINGS]
    assert checked
    for file in checked:
        for at in (20, file.stat().st_size // 2, -3):
            flip(file, at)
            assert main(["verify", str(path)]) == 1, (file, at)
            assert str(file.name) in capsys.readouterr().err
            flip(file, at)
    assert main(["verify", str(path)]) == 0


def test_verify_needs_something_to_verify(tmp_path, write):
    for path in (tmp_path, tmp_path / "missing", write("log.csv", "click,site\n")):
        with pytest.raises(Fm2Error, match=r"^verify: "):
            fm2.verify(path)


def test_older_files_without_a_checksum_can_be_verified(run, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(run.path, path)
    content = (path / "model.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    begin = content.index(f'"{CHECKSUM}"'.encode())
    header = content[8:begin] + content[content.index(b'"fm2"') : 8 + size].ljust(size - begin + 8)
    (path / "model.safetensors").write_bytes(content[:8] + header[:size].ljust(size) + content[8 + size :])
    assert not verify_arrays(path / "model.safetensors")
    assert fm2.verify(path).unchecked == (str(path / "model.safetensors"),)
