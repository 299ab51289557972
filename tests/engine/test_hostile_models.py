"""A model file may come from anyone: whatever it contains, it is rejected or it scores; it never crashes or hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.helpers import crosses, tree_lists, trees
from tests.helpers.hostile import with_section
from tests.helpers.list_models import compiled as compile_weights
from tests.helpers.list_models import make_weights
from tests.helpers.mixed import SCHEMA, mixed
from tests.helpers.networks import pruned_run, random_run
from tests.helpers.rejections import load_error

import fm2
from fm2.engine.compile import compile
from fm2.engine.scorer import load

KINDS = {
    "lr": ("lr", {}, {}),
    "poly2": ("poly2", {"hash_bits": 8}, {}),
    "fm": ("fm", {"dim": 5}, {}),
    "fm spectral": ("fm", {"dim": 5}, {"plan": "spectral", "rank": 3}),
    "ffm": ("ffm", {"dim": 3}, {}),
    "fwfm": ("fwfm", {"dim": 3}, {"plan": "direct"}),
    "fmfm direct": ("fmfm", {"dim": [3, 1, 9, 4, 2, 8]}, {"plan": "direct"}),
    "fmfm cached": ("fmfm", {"dim": [3, 1, 9, 4, 2, 8]}, {"plan": "cached"}),
    "fmfm some cached": ("fmfm", {"dim": 4}, {"plan": "cached", "memory": 1000}),
    "fmfm f16": ("fmfm", {"dim": 4}, {"plan": "cached", "dtype": "f16"}),
    "ffm f16": ("ffm", {"dim": 3}, {"dtype": "f16"}),
    "fm i8": ("fm", {"dim": 5}, {"dtype": "i8"}),
    "fmfm i8": ("fmfm", {"dim": 4}, {"plan": "cached", "dtype": "i8"}),
    "lr calibrated": ("lr", {"by": "user"}, {}),
    "fwfm pruned": ("fwfm", {"dim": 9, "keep": 0.5}, {"plan": "direct"}),
    "fmfm pruned": ("fmfm", {"dim": [3, 1, 9, 14, 2, 8], "keep": 0.5}, {"plan": "cached", "memory": 3000}),
}
LIST_KINDS = {
    "lr lists": ("lr", {}),
    "poly2 lists": ("poly2", {}),
    "fm lists": ("fm", {}),
    "ffm lists": ("ffm", {"dtype": "f16"}),
    "fmfm direct lists": ("fmfm", {"plan": "direct"}),
    "fmfm cached lists": ("fmfm", {"plan": "cached", "memory": 3000}),
    "fmfm spectral lists": ("fmfm", {"plan": "spectral", "dtype": "i8"}),
}
NETWORK_KINDS = ("deepfm", "fgcnn", "autoint", "deeplight")  # an MLP, several tables, many operations, sparse matrices
DERIVED_KINDS = {"lr crosses": crosses, "fmfm crosses": crosses, "lr trees": trees, "lr tree lists": tree_lists}
ALL_KINDS = (*KINDS, *LIST_KINDS, *DERIVED_KINDS, *NETWORK_KINDS)
MUTATIONS = 300


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Compile a model of every kind; train and prune one run per set of settings."""
    folder = tmp_path_factory.mktemp("models")
    dataset = fm2.prepare(mixed(600), SCHEMA, folder / "data")
    runs: dict[str, Path] = {}
    compiled = {}
    for kind, (name, settings, options) in KINDS.items():
        key = f"{name} {settings}"
        if key not in runs:
            trained = {setting: value for setting, value in settings.items() if setting not in ("keep", "by")}
            run = fm2.train(name, dataset, folder / f"run{len(runs)}", epochs=1, batch_size=64, **trained)
            if "keep" in settings:
                run = fm2.prune(run, dataset, folder / f"{run.path.name}-pruned", keep=settings["keep"])
            if "by" in settings:
                fm2.calibrate(run, dataset, by=settings["by"], split="train")
            runs[key] = run.path
        compiled[kind] = compile(runs[key], folder / f"{kind}.fm2", **options).path
    for kind, (name, options) in LIST_KINDS.items():
        (folder / kind).mkdir()
        weights = make_weights(name, [4] * 5, [7, 30, 5, 9, 12], [1, 4], weighted=True, max_values=6)
        compiled[kind] = compile_weights(weights, folder / kind, **{"plan": "auto", **options}).path
    for kind, log in DERIVED_KINDS.items():
        rows = log.log_of(600 if log is crosses else 3000)  # so many that trees read pairs
        derived = fm2.prepare(rows, log.SCHEMA, folder / f"{kind}-data")
        dims = {"dim": 3} if kind.startswith("fmfm") else {}
        run = fm2.train(kind.split()[0], derived, folder / f"{kind}-run", epochs=1, batch_size=64, **dims)
        compiled[kind] = compile(run.path, folder / f"{kind}.fm2").path
    for name in NETWORK_KINDS:
        run = (pruned_run if name == "deeplight" else random_run)(name, dataset, folder / name)
        compiled[name] = compile(run.path, folder / f"{name}.fm2").path
    return compiled


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_changed_models_are_rejected_or_score(models, tmp_path, kind):
    worker, seed = Path(__file__).parents[1] / "helpers" / "hostile.py", str(ALL_KINDS.index(kind))
    done = subprocess.run(
        [sys.executable, worker, models[kind], tmp_path, seed, os.environ.get("FM2_MUTATIONS", str(MUTATIONS))],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
    rejected, scored = map(int, done.stdout.split())
    assert rejected > scored / 10  # both are common
    assert scored > rejected / 10


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_truncated_files_are_rejected(models, tmp_path, kind):
    original, path = models[kind].read_bytes(), tmp_path / "model.fm2"
    lengths = np.unique(np.r_[0:130, np.linspace(130, len(original) - 1, 40).astype(int), len(original) - 1])
    for length in lengths:
        path.unlink(missing_ok=True)
        path.write_bytes(original[:length])
        load_error(path, verify=bool(length % 2))
    path.write_bytes(original + b"\0")
    load_error(path)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_every_changed_byte_is_detected(models, tmp_path, kind):
    original, path = models[kind].read_bytes(), tmp_path / "model.fm2"
    random = np.random.default_rng(0)
    for at in [*range(64), *random.integers(64, len(original), 100)]:
        path.unlink(missing_ok=True)
        path.write_bytes(original[:at] + bytes([original[at] ^ random.integers(1, 256)]) + original[at + 1 :])
        load_error(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a text\n" * 100,
        b"\x89PNG\r\n\x1a\n" + bytes(200),
        bytes(10_000),
        b"fm2model" + bytes(56),
        b"fm2model" * 99,
    ],
)
def test_other_files_are_rejected(write, content):
    load_error(write("other.fm2", content))


def test_paths_that_are_not_files_are_rejected_without_blocking(tmp_path):
    assert "not a file" in load_error(tmp_path)
    assert "load: compiled model: file not found: " in load_error(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    code = "import sys, fm2\ntry: fm2.load(sys.argv[1])\nexcept fm2.Fm2Error as error: print(error)"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "pipe"], capture_output=True, text=True, check=False, timeout=60
    )
    assert "not a file" in done.stdout, done.stderr
    assert "not a file" in load_error(Path("/dev/null"))


@pytest.mark.parametrize("meta", [b"", b"{", b"[]", b"7", b"\xff", b"[" * 200_000, b'{"a":' * 200_000, b"9" * 10_000])
def test_invalid_metadata_is_rejected(models, write, meta):
    load_error(write("model.fm2", with_section(models["lr"].read_bytes(), b"meta", meta)))


@pytest.mark.parametrize("name", [b"encoder.columns", b"encoder.formats", b"encoder.missing"])
def test_sections_of_millions_of_texts_are_rejected(models, write, name):
    """Each zero byte ends a text, and each text would take memory."""
    load_error(write("model.fm2", with_section(models["lr"].read_bytes(), name, bytes(1 << 24))))


def test_column_names_that_are_not_utf8_are_rejected(models, write):
    names = b"site\0user\0\xff\xfe\0visits\0time\0"
    load_error(write("model.fm2", with_section(models["lr"].read_bytes(), b"encoder.columns", names)))


@pytest.mark.parametrize("wrong", [-1, 2**31, 2**32, 2**63 - 1])
def test_ids_beyond_32_bits_are_rejected(models, wrong):
    """Truncated to 32 bits, some of them would be valid ids."""
    scorer = load(models["lr"])
    with pytest.raises(fm2.Fm2Error, match=f"predict: .*{wrong}"):
        scorer.predict(np.full((2, 6), wrong, np.int64))


def test_a_model_of_another_version_says_what_to_do(models, write):
    header = bytearray(models["lr"].read_bytes())
    header[8] = 2
    error = load_error(write("model.fm2", bytes(header)))
    assert "format version 2; this fm2 reads version 3. Compile the run again with fm2 compile" in error


def test_multi_valued_fields_must_agree_in_all_sections(models, write):
    single, several = models["fm"].read_bytes(), models["fm lists"].read_bytes()
    for model, lists, reason in (
        (single, bytes([0, 1, 0, 0, 0, 0]), "the plan and the encoder differ in multi-valued fields"),
        (single, bytes([0, 2, 0, 0, 0, 0]), "invalid section 'lists'"),
        (single, bytes(5), "section 'lists' has an unexpected size"),
        (several, bytes([0, 1, 0, 0, 0]), "the plan and the encoder differ in multi-valued fields"),
    ):
        assert reason in load_error(write("model.fm2", with_section(model, b"lists", lists)))
    meta = json.loads(load(models["fm lists"]).native.section("meta"))
    meta["schema"]["field"][1] = {"name": "f1"}
    assert "different multi-valued fields" in load_error(
        write("model.fm2", with_section(several, b"meta", json.dumps(meta).encode()))
    )


@pytest.mark.parametrize(
    ("place", "wrong"),
    [(4, 2), (5, 0), (5, 128), (6, 3), (6, -1), (7, -1), (8, 2), (9, -1), (10, 2), (11, 6), (11, -1), (1, 1)],
)
def test_invalid_list_settings_are_rejected(models, write, place, wrong):
    scorer = load(models["fm lists"])
    fields = np.frombuffer(scorer.native.section("encoder.fields"), np.int32).reshape(5, -1).copy()
    fields[1, place] = wrong
    content = with_section(models["fm lists"].read_bytes(), b"encoder.fields", fields.tobytes())
    assert "invalid" in load_error(write("model.fm2", content))


@pytest.mark.parametrize(
    ("row", "place", "wrong"),
    [
        (0, 0, 1),
        (0, 0, -1),
        (0, 0, 99),
        (0, 1, 2),
        (0, 1, 0),
        (0, 1, -1),
        (0, 2, 12),
        (0, 2, 99),
        (1, 0, 0),
        (2, 3, -2),
    ],
)
def test_invalid_parts_of_crosses_are_rejected(models, write, row, place, wrong):
    """A field that is not a cross, no field, the same part twice, a cross itself, a list."""
    parts = np.frombuffer(load(models["lr crosses"]).native.section("crosses"), np.int32).reshape(5, 4).copy()
    parts[row, place] = wrong
    load_error(write("model.fm2", with_section(models["lr crosses"].read_bytes(), b"crosses", parts.tobytes())))


def test_crosses_must_agree_in_all_sections(models, write):
    original = models["lr crosses"].read_bytes()
    scorer = load(models["lr crosses"])
    hashes = scorer.native.section("crosses.hashes")
    for wrong in (hashes[:-8], hashes + bytes(8)):
        load_error(write("model.fm2", with_section(original, b"crosses.hashes", wrong)))
    parts = np.frombuffer(scorer.native.section("crosses"), np.int32).reshape(5, 4).copy()
    parts[0, 1:3] = parts[0, 2:0:-1]
    swapped = write("swapped.fm2", with_section(original, b"crosses", parts.tobytes()))
    assert "its schema and its encoder have different crosses" in load_error(swapped)
    fields = np.frombuffer(scorer.native.section("encoder.fields"), np.int32).reshape(13, -1).copy()
    fields[0, 0] = 0
    with_column = write("column.fm2", with_section(original, b"encoder.fields", fields.tobytes()))
    assert "invalid description of a cross" in load_error(with_column)


def test_trees_must_agree_in_all_sections(models, write):
    original, scorer = models["lr trees"].read_bytes(), load(models["lr trees"])
    words, slots = scorer.native.section("trees"), scorer.native.section("trees.slots")
    assert len(slots)
    for wrong in (words[:-4], words + bytes(4), words[:8], words[4:], b""):
        load_error(write("model.fm2", with_section(original, b"trees", wrong)))
    for wrong in (slots[:-8], slots + bytes(64)):
        load_error(write("model.fm2", with_section(original, b"trees.slots", wrong)))
    other = np.frombuffer(words, np.uint32).copy()
    other[0] = 0  # the field that the trees belong to
    load_error(write("model.fm2", with_section(original, b"trees", other.tobytes())))
