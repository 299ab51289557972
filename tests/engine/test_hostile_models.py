"""A model file may come from a stranger: whatever it holds, it is refused or it scores; it never crashes or hangs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.hostile import LINE, Mutant
from tests.helpers.mixed import SCHEMA, mixed

import fm2
from fm2 import _native
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
    "fwfm pruned": ("fwfm", {"dim": 9, "keep": 0.5}, {"plan": "direct"}),
    "fmfm pruned": ("fmfm", {"dim": [3, 1, 9, 14, 2, 8], "keep": 0.5}, {"plan": "cached", "memory": 3000}),
}
MUTATIONS = 300


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Compile a model of every kind; the runs are trained, and pruned, once for each set of settings."""
    folder = tmp_path_factory.mktemp("models")
    dataset = fm2.prepare(mixed(600), SCHEMA, folder / "data")
    runs: dict[str, Path] = {}
    found = {}
    for kind, (name, settings, how) in KINDS.items():
        key = f"{name} {settings}"
        if key not in runs:
            own = {setting: value for setting, value in settings.items() if setting != "keep"}
            run = fm2.train(name, dataset, folder / f"run{len(runs)}", epochs=1, batch_size=64, **own)
            if "keep" in settings:
                run = fm2.prune(run, dataset, folder / f"{run.path.name}-pruned", keep=settings["keep"])
            runs[key] = run.path
        found[kind] = compile(runs[key], folder / f"{kind}.fm2", **how).path
    return found


def refuses(path: Path, *, verify: bool = True) -> str:
    with pytest.raises(fm2.Fm2Error) as raised:
        load(path, verify=verify)
    assert str(path) in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_changed_it_is_refused_or_it_scores(models, tmp_path, kind):
    worker, seed = Path(__file__).parents[1] / "helpers" / "hostile.py", str(list(KINDS).index(kind))
    done = subprocess.run(
        [sys.executable, worker, models[kind], tmp_path, seed, os.environ.get("FM2_MUTATIONS", str(MUTATIONS))],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
    refused, scored = map(int, done.stdout.split())
    assert refused > scored / 10  # both happen often
    assert scored > refused / 10


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_cut_off_is_refused(models, tmp_path, kind):
    whole, path = models[kind].read_bytes(), tmp_path / "model.fm2"
    lengths = np.unique(np.r_[0:130, np.linspace(130, len(whole) - 1, 40).astype(int), len(whole) - 1])
    for length in lengths:
        path.unlink(missing_ok=True)
        path.write_bytes(whole[:length])
        refuses(path, verify=bool(length % 2))
    path.write_bytes(whole + b"\0")
    refuses(path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_byte_that_has_changed_is_seen(models, tmp_path, kind):
    whole, path = models[kind].read_bytes(), tmp_path / "model.fm2"
    random = np.random.default_rng(0)
    for place in [*range(64), *random.integers(64, len(whole), 100)]:
        path.unlink(missing_ok=True)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ random.integers(1, 256)]) + whole[place + 1 :])
        refuses(path)


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
def test_other_files_are_refused(write, content):
    refuses(write("other.fm2", content))


def test_what_is_no_file_is_refused_at_once(tmp_path):
    assert "not a file" in refuses(tmp_path)
    assert "No such file" in refuses(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    code = "import sys, fm2\ntry: fm2.load(sys.argv[1])\nexcept fm2.Fm2Error as refused: print(refused)"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "pipe"], capture_output=True, text=True, check=False, timeout=60
    )
    assert "not a file" in done.stdout, done.stderr
    assert "not a file" in refuses(Path("/dev/null"))


def with_section(whole: bytes, name: bytes, content: bytes) -> bytes:
    """Give a model another section of that name, behind its last one."""
    mutant = Mutant(whole + content, np.random.default_rng(0))
    place = [row["name"] for row in mutant.index].index(name)
    mutant.index["offset"][place], mutant.index["bytes"][place] = len(whole), len(content)
    return _native.model_header(mutant.sections, mutant.bytes[LINE:], 1) + mutant.bytes[LINE:].tobytes()


@pytest.mark.parametrize("meta", [b"", b"{", b"[]", b"7", b"\xff", b"[" * 200_000, b'{"a":' * 200_000, b"9" * 10_000])
def test_a_description_that_is_none_is_refused(models, write, meta):
    refuses(write("model.fm2", with_section(models["lr"].read_bytes(), b"meta", meta)))


@pytest.mark.parametrize("name", [b"encoder.columns", b"encoder.formats", b"encoder.missing"])
def test_texts_without_end_are_refused(models, write, name):
    """A section of zeros is as many empty texts as it has bytes, and each would take memory."""
    refuses(write("model.fm2", with_section(models["lr"].read_bytes(), name, bytes(1 << 24))))


def test_the_name_of_a_column_that_is_no_text_is_refused(models, write):
    names = b"site\0user\0\xff\xfe\0visits\0time\0"
    refuses(write("model.fm2", with_section(models["lr"].read_bytes(), b"encoder.columns", names)))


@pytest.mark.parametrize("wrong", [-1, 2**31, 2**32, 2**63 - 1])
def test_ids_beyond_all_fields_are_refused(models, wrong):
    """As 32-bit numbers some of them would be ids that there are."""
    scorer = load(models["lr"])
    with pytest.raises(fm2.Fm2Error, match=f"predict: .*{wrong}"):
        scorer.predict(np.full((2, 6), wrong, np.int64))
