"""The files of a run without torch: the history, and the model file."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from tests.helpers.runs import load_arrays

from fm2 import Field, Fm2Error, Schema
from fm2.artifacts.arrays import ChunkedArray, save_arrays
from fm2.artifacts.model_file import MODEL, check_model, open_model, save_model
from fm2.artifacts.run_directory import RACE, append_history, read_history, write_history
from fm2.data.vocabulary import Vocabulary


class Tiny:
    """A model as far as its file is concerned."""

    def __init__(self, sizes) -> None:
        self.config = {"model": "lr", "field_sizes": sizes}
        self.n_parameters = sum(sizes)

    def flops(self) -> int:
        return 2


def save_tiny(directory, weights, values=("a", "b")):
    schema, vocabularies = Schema([Field("site")], label="click"), [Vocabulary.of(values, [2] * len(values))]
    save_model(directory / MODEL, Tiny([3]), weights, schema, vocabularies, {"auc": 0.7})


def test_the_history_grows_and_ignores_an_incomplete_last_line(tmp_path):
    path = tmp_path / "history.jsonl"
    first, second = ({"epoch": epoch, "best": True, "auc": 0.7, "log_loss": 0.5, "rig": 0.1} for epoch in (0.5, 1.0))
    assert read_history(path) == []
    write_history(path, [first])
    append_history(path, second)
    assert read_history(path) == [first, second]
    with path.open("a") as file:
        file.write('{"epoch": 1.5')
    assert read_history(path) == [first, second]
    with pytest.raises(Fm2Error, match=r"^train: cannot write to .*no/history.jsonl: No such file or directory$"):
        append_history(tmp_path / "no" / "history.jsonl", {})


def test_a_model_file_returns_what_was_saved(tmp_path):
    weights = np.arange(3, dtype=np.float32)
    save_tiny(tmp_path, {"linear.weight": ChunkedArray(3, lambda: (weights[:2], weights[2:]))})
    with open_model(tmp_path) as file:
        np.testing.assert_array_equal(file.weights("linear.weight", (3,)), weights)
        assert file.schema.names == ("site",)
        assert file.vocabularies[0].values() == [b"a", b"b"]
        assert (file.metrics, file.counts) == ({"auc": 0.7}, {"parameters": 3, "flops": 2})
    with (
        pytest.raises(Fm2Error, match=r"linear.weight is float32 \[3\], not float32 \[4\]"),
        open_model(tmp_path) as file,
    ):
        file.weights("linear.weight", (4,))


def test_mapped_weights_are_those_of_the_file_that_was_opened(tmp_path):
    save_tiny(tmp_path, {"linear.weight": np.arange(3, dtype=np.float32)})
    with open_model(tmp_path) as file:
        save_tiny(tmp_path, {"linear.weight": np.full(3, 9, np.float32)})  # a training saves a better model
        mapped = file.weights("linear.weight", mapped=True)
    mapped[0] = 5  # in memory only
    np.testing.assert_array_equal(mapped, np.float32([5, 1, 2]))
    with open_model(tmp_path) as file:
        np.testing.assert_array_equal(file.weights("linear.weight", mapped=True), np.full(3, 9))


def test_mapped_weights_of_another_type_are_an_error(tmp_path):
    save_tiny(tmp_path, {"linear.weight": np.zeros(3, np.uint32)})
    content = (tmp_path / MODEL).read_bytes()
    header = content.index(b'"dtype": "U32", "shape": [3]')
    (tmp_path / MODEL).write_bytes(content[:header] + content[header:].replace(b'"U32"', b'"I8" ', 1))
    for mapped in (False, True):
        with pytest.raises(Fm2Error, match="damaged"), open_model(tmp_path) as file:
            file.weights("linear.weight", mapped=mapped)
    save_tiny(tmp_path, {"linear.weight": np.zeros(3, np.uint32)})
    with pytest.raises(Fm2Error, match=r"linear\.weight is uint32"), open_model(tmp_path) as file:
        file.weights("linear.weight", mapped=True)


def test_parts_that_contradict_each_other_are_an_error(tmp_path):
    save_tiny(tmp_path, {"linear.weight": np.zeros(3, np.float32)}, values=("a",))
    with pytest.raises(Fm2Error, match="the sizes of the vocabularies differ from the model's field sizes"):
        open_model(tmp_path).__enter__()
    save_tiny(tmp_path, {"linear.weight": np.float32([1, np.inf, 0])})
    with pytest.raises(Fm2Error, match=r"linear.weight has values that are not finite"), open_model(tmp_path) as file:
        file.weights("linear.weight")
    arrays, values = load_arrays(tmp_path / MODEL)
    for rate in (0, 1.5, "0.1", None):
        save_arrays(tmp_path / MODEL, arrays, {**values, "negative_rate": rate})
        with pytest.raises(Fm2Error, match="the negative rate is"):
            open_model(tmp_path).__enter__()
    save_arrays(tmp_path / MODEL, arrays, {**values, "version": 9})
    with pytest.raises(Fm2Error, match=r"has the format 'fm2 model' 9; this version of fm2 reads 'fm2 model' 1"):
        open_model(tmp_path).__enter__()


def test_a_path_without_a_model_says_what_to_do(tmp_path):
    (tmp_path / "log.csv").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "race").mkdir()
    (tmp_path / "race" / RACE).write_text("{}")
    (tmp_path / "runs" / "fmfm-0").mkdir(parents=True)
    save_tiny(tmp_path / "runs" / "fmfm-0", {})
    for name, message in (
        ("nowhere", r"run: directory not found: .*nowhere; fm2 train writes one$"),
        ("log.csv", r"log.csv is a file; expected a run, the directory that fm2 train writes$"),
        ("empty", r"empty has no trained model \(model.safetensors\); fm2 train writes one$"),
        ("race", r"race has no trained model \(model.safetensors\); its training has not ended; .* --resume$"),
        ("runs", r"runs has no trained model \(model.safetensors\); did you mean .*runs/fmfm-0\?$"),
    ):
        with pytest.raises(Fm2Error, match=message):
            check_model(tmp_path / name)


@pytest.mark.parametrize("room", ["artifacts.run_directory", "artifacts.model_file", "evaluation.evaluate"])
def test_the_room_needs_no_torch(room):
    script = f"import sys; sys.modules['torch'] = None; import fm2.{room}"
    subprocess.run([sys.executable, "-c", script], check=True)
