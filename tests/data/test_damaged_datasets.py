"""Damaged files of a dataset: each is reported in one line, and nothing is allocated before it is checked."""

from __future__ import annotations

import dataclasses
import json
import shutil
import zipfile

import numpy as np
import pytest

from fm2 import Dataset, Fm2Error
from fm2.cli.main import main
from fm2.data.npy import open_array
from fm2.data.vocabulary import Vocabulary, save_vocabularies
from fm2.training.train import train


@pytest.fixture
def damaged(dataset, tmp_path):
    """Return a copy of a dataset that a test may damage."""
    return shutil.copytree(dataset.path, tmp_path / "data")


def change(file, edit):
    """Replace the content of a .npy file; its size stays the same."""
    array = np.load(file)
    edit(array)
    np.save(file, array)


def set_manifest(path, *keys, value):
    manifest = json.loads((path / "manifest.json").read_text())
    entry = manifest
    for key in keys[:-1]:
        entry = entry[key]
    if value is None:
        del entry[keys[-1]]
    else:
        entry[keys[-1]] = value
    (path / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("id", [-3, 10**6])
@pytest.mark.parametrize("model", ["lr", "ffm"])
def test_ids_out_of_range_are_damage(damaged, tmp_path, split, id, model):
    change(
        damaged / split / "ids.npy", lambda ids: ids.itemset((3, 1), id) if hasattr(ids, "itemset") else ids.put(13, id)
    )
    with pytest.raises(Fm2Error, match=rf"^train: .*data is damaged in the split '{split}': .* got {id}$"):
        train(model, damaged, tmp_path / "run", threads=1, epochs=1, verify=False)


def test_labels_out_of_range_are_damage(damaged):
    change(damaged / "train" / "labels.npy", lambda labels: labels.put(5, 7))
    with pytest.raises(Fm2Error, match=r"is damaged: the split 'train' has labels that are not between 0 and 1$"):
        _ = Dataset.open(damaged).train


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("fields", 0, "features"), None),
        (("fields", 0, "features"), "x"),
        (("fields", 0, "features"), 10**12),
        (("fields", 0, "unknown"), None),
        (("fields", 0, "dropped"), -1),
        (("fields", 0), 5),
        (("fields",), []),
        (("settings",), []),
        (("settings", "vocabulary"), None),
        (("settings", "negative_rate"), float("nan")),
        (("bad_rows",), 3),
        (("bad_rows", "count"), 1.5),
        (("splits", "train", "rows"), "x"),
        (("splits", "test", "clicks"), None),
        (("files", "schema.toml"), 3),
        (("files", "../schema.toml"), {"bytes": 1, "sha256": ""}),
    ],
)
def test_an_odd_manifest_is_damage(damaged, keys, value, capsys):
    set_manifest(damaged, *keys, value=value)
    assert main(["describe", str(damaged), "--json"]) == 1
    assert "is damaged: manifest.json: invalid or missing " in capsys.readouterr().err


def test_a_manifest_that_contradicts_the_other_files_is_damage(damaged):
    set_manifest(damaged, "fields", 0, "features", value=77)
    with pytest.raises(Fm2Error, match=r"manifest.json and vocabularies.npz have different numbers of features$"):
        _ = Dataset.open(damaged).vocabularies
    set_manifest(damaged, "fields", 0, "name", value="other")
    with pytest.raises(Fm2Error, match=r"manifest.json and schema.toml have different fields$"):
        Dataset.open(damaged)


def test_a_manifest_without_training_rows_is_described(damaged, capsys):
    set_manifest(damaged, "splits", "train", "rows", value=0)
    assert main(["describe", str(damaged), "--json"]) == 0
    assert '"most_frequent"' in capsys.readouterr().out


def replace_vocabularies(path, write):
    write(path / "vocabularies.npz")
    set_manifest(path, "files", "vocabularies.npz", "bytes", value=(path / "vocabularies.npz").stat().st_size)
    return Dataset.open(path)


def test_a_vocabulary_cannot_claim_hashes_that_the_schema_does_not_have(damaged, dataset):
    empty = Vocabulary.of([])
    vocabularies = [dataclasses.replace(empty, hashed=1 << 32) for _ in dataset.vocabularies]
    hostile = replace_vocabularies(damaged, lambda path: save_vocabularies(path, vocabularies))
    with pytest.raises(Fm2Error, match=r"contradicts its schema$"):
        _ = hostile.vocabularies


def test_a_compressed_vocabulary_is_refused_before_it_is_expanded(damaged):
    def bomb(path):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("0.data.npy", bytes(10_000_000))

    with pytest.raises(Fm2Error, match=r"its entries are larger than the file$"):
        _ = replace_vocabularies(damaged, bomb).vocabularies


def test_an_array_larger_than_its_file_is_not_allocated(tmp_path):
    header = {"descr": "<i8", "fortran_order": False, "shape": (10**13,)}
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(ValueError, match=r"a file of 128 bytes cannot contain int64"):
        open_array(tmp_path / "a.npy")
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes().replace(b"}", b" "))
    with pytest.raises(ValueError, match=r"the header is damaged"):
        open_array(tmp_path / "a.npy")


def test_describe_points_from_a_run_to_inspect(dataset, tmp_path, capsys):
    run = train("lr", dataset, tmp_path / "run", threads=1, epochs=1)
    assert main(["describe", str(run.path)]) == 1
    assert "is a run, not a prepared dataset; fm2 inspect describes runs" in capsys.readouterr().err
