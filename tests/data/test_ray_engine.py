"""``engine="ray"``: the tasks of a Ray cluster prepare the same dataset as one process."""

from __future__ import annotations

import sys

import pytest
from tests.data.test_parts import FILES, VARIANTS, log, write_files
from tests.helpers.parts import check_same_dataset
from tests.helpers.processes import run_python
from tests.helpers.ray_prepare import warned
from tests.helpers.workers import ROOT

import fm2
from fm2 import Fm2Error
from fm2.cli.main import main
from fm2.data import part_tasks

SCHEMA = VARIANTS["shared"][0]


@pytest.mark.filterwarnings("ignore")
def test_ray_prepares_the_same_dataset_shows_warnings_and_names_files_with_errors(tmp_path, monkeypatch, capsys):
    ray = pytest.importorskip("ray")  # not when pytest looks for doctests
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(part_tasks, "read_part", warned)
    paths = write_files(tmp_path, log(600))
    SCHEMA.save(tmp_path / "fields.toml")
    one = fm2.prepare("log-*.csv", SCHEMA, "one")
    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    try:
        command = "prepare log-0.csv log-1.csv log-2.csv --schema fields.toml --out parts --engine ray"
        capsys.readouterr()
        assert main(command.split()) == 0
        assert capsys.readouterr().err.count("prepare: the storage is slow") == 1
        paths[2].write_text(paths[2].read_text() + "7,,,,,,,,\n")
        with pytest.raises(
            Fm2Error, match=r"^prepare: log-2.csv line \d+: label 'click' is '7', not 0 or 1; .*; bad_rows="
        ):
            fm2.prepare("log-*.csv", SCHEMA, "failed", engine="ray")
    finally:
        ray.shutdown()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["one", "parts"]
    check_same_dataset(one, fm2.Dataset.open("parts"), FILES)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": "spark"}, r"^prepare: unknown engine 'spark'; choose from local, ray$"),
        ({"address": "auto"}, r'^prepare: address= is that of a Ray cluster and requires engine="ray"$'),
        ({"engine": "ray"}, r"^engine=\"ray\" requires the package 'ray'; install it in a clone .* '\.\[ray\]'$"),
    ],
)
def test_what_cannot_work_is_refused_before_the_log_is_read(tmp_path, monkeypatch, settings, message):
    monkeypatch.setitem(sys.modules, "ray", None)  # importing it fails
    with pytest.raises(Fm2Error, match=message):
        fm2.prepare("no such file", SCHEMA, tmp_path / "data", **settings)


def test_one_process_does_not_import_ray(tmp_path):
    write_files(tmp_path, log(100))
    SCHEMA.save(tmp_path / "fields.toml")
    script = (
        f"import os, sys, fm2; os.chdir({str(tmp_path)!r}); fm2.prepare('log-0.csv', 'fields.toml', 'data'); "
        "print([name for name in ('ray', 'fm2.data.parts_engine', 'fm2.data.ray_engine') if name in sys.modules])"
    )
    assert run_python(script).stdout.strip() == "[]"
