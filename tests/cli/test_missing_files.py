"""Every command reports a missing file in the same form: what it is, that it was not found, its name."""

from __future__ import annotations

import pytest
from tests.helpers.planted import QUICK, planted

from fm2.cli.main import main
from fm2.engine.compile import compile
from fm2.training.train import train

MODEL = "model: file not found: no; fm2 train writes a run, fm2 compile a compiled model"
COMPILED = "compiled model: file not found: no; fm2 compile writes one"
DATASET = "dataset: directory not found: no; fm2 prepare creates one"
RUN = "run: directory not found: no; fm2 train writes one"


@pytest.fixture(scope="module")
def folder(dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("missing")
    (folder / "data").symlink_to(dataset.path)
    train("fmfm", dataset, folder / "run", dim=2, **{**QUICK, "epochs": 1}, progress=False)
    compile(folder / "run", folder / "model.fm2")
    planted(20).write_csv(folder / "log.csv")
    return folder


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("prepare no --label click --out out", "file not found: no"),
        ("prepare log.csv --schema no.toml --out out", "schema: file not found: no.toml"),
        ("prepare log.csv --like no --out out", DATASET),
        ("prepare log.csv --label click --validation no --out out", "file not found: no"),
        ("describe no", DATASET),
        ("train fmfm no --out out", DATASET),
        ("train fmfm data --out out --settings no", "train: settings: file not found: no"),
        ("train fmfm data --out out --row-weights no", "train: row weights: file not found: no"),
        ("train fmfm data --out out --from no", RUN),
        ("train fmfm data --out out --dim no.json", "train: dim: file not found: no.json"),
        ("compare data --models lr --out out --settings no", "compare: settings: file not found: no"),
        ("tune fmfm data --out out --space no", "tune: space: file not found: no"),
        ("calibrate no data", RUN),
        ("evaluate no data", f"evaluate: {MODEL}"),
        ("evaluate run no", DATASET),
        ("predict no log.csv --out out", f"predict: {MODEL}"),
        ("predict run no --out out", "file not found: no"),
        ("compile no --out out", RUN),
        ("export no --out out", RUN),
        ("shrink no data --out out", RUN),
        ("inspect no", f"inspect: {MODEL}"),
        ("verify no", "verify: file not found: no"),
        ("rank no {} no", f"load: {COMPILED}"),
        (
            "rank model.fm2 no no",
            "rank: context: file not found: no; expected a JSON object or a file with one",
        ),
        ('rank model.fm2 {"c0":"v1"} no', "rank: candidates: file not found: no"),
        (
            "explain model.fm2 no",
            "explain: row: file not found: no; expected a JSON object or a file with one",
        ),
        ("report no --out out", RUN),
        ("serve no", f"serve: {COMPILED}"),
    ],
)
def test_a_missing_file_is_reported_in_one_form(folder, monkeypatch, capsys, words, message):
    monkeypatch.chdir(folder)
    assert main(words.split()) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"fm2: {message}"
    assert not (folder / "out").exists()
