"""``fm2.verify``: compare the checksums of a dataset, a run, a compiled model or a catalog."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fm2 import _native
from fm2.artifacts.arrays import verify_arrays
from fm2.artifacts.calibration import read_calibration
from fm2.artifacts.model_file import MODEL, open_model
from fm2.artifacts.run_directory import CALIBRATION, CHECKPOINT, HISTORY, RACE, SETTINGS
from fm2.artifacts.settings import read_settings
from fm2.data.dataset import Dataset
from fm2.data.manifest import MANIFEST
from fm2.data.splits import SPLITS
from fm2.engine.model_file import CATALOG_START, MODEL_START
from fm2.engine.scorer import load
from fm2.errors import Fm2Error, not_found
from fm2.remote.paths import local_path

Kind = Literal["dataset", "run", "compiled model", "catalog"]


@dataclass(frozen=True)
class Verified:
    """The result of :func:`verify`: what the path is, and the files that were read.

    ``unchecked`` are files that an older version of fm2 wrote without a checksum; they can be read.
    """

    kind: Kind
    files: int
    bytes: int
    seconds: float
    unchecked: tuple[str, ...] = ()


def verify(path: str | Path) -> Verified:
    """Read all files of a dataset, a run, a compiled model or a catalog, and compare their checksums.

    The first damaged file raises an error that names it.

    >>> import tempfile
    >>> from fm2 import Field, Schema, prepare
    >>> log = {"click": [0, 1] * 50, "site": ["a", "b", "b", "c"] * 25}
    >>> import polars
    >>> folder = tempfile.mkdtemp() + "/data"
    >>> dataset = prepare(polars.DataFrame(log), Schema([Field("site")], label="click"), folder)
    >>> verify(folder).kind
    'dataset'
    """
    path, began = local_path(path), time.perf_counter()
    kind, files, unchecked = _verify_file(path) if path.is_file() else _verify_directory(path)
    total = sum(file.stat().st_size for file in files)
    return Verified(kind, len(files), total, time.perf_counter() - began, tuple(unchecked))


def _verify_file(path: Path) -> tuple[Kind, list[Path], list[str]]:
    with path.open("rb") as file:
        start = file.read(128)
    if re.match(MODEL_START.encode(), start):
        load(path)
        return "compiled model", [path], []
    if re.match(CATALOG_START.encode(), start):
        try:
            _native.model_sections(str(path))
        except OSError as error:
            raise Fm2Error(f"verify: {error}") from error
        return "catalog", [path], []
    raise Fm2Error(f"verify: {path} is neither a compiled model nor a catalog")


def _verify_directory(path: Path) -> tuple[Kind, list[Path], list[str]]:
    if (path / MANIFEST).is_file():
        dataset = Dataset.open(path)
        dataset.verify()
        for split in SPLITS:
            dataset.split(split)
        return "dataset", [path / MANIFEST, *(path / name for name in dataset.manifest["files"])], []
    if (path / MODEL).is_file() or (path / SETTINGS).is_file():
        files, unchecked = _verify_run(path)
        return "run", files, unchecked
    if not path.exists():
        raise not_found("verify", path)
    raise Fm2Error(f"verify: {path} is neither a dataset ({MANIFEST}) nor a run ({MODEL}, {SETTINGS})")


def _verify_run(path: Path) -> tuple[list[Path], list[str]]:
    """Read the files of a run, also of an interrupted one, and those of the candidates of its race."""
    arrays = [path / name for name in (MODEL, CHECKPOINT, CALIBRATION) if (path / name).is_file()]
    unchecked = [str(file) for file in arrays if not verify_arrays(file)]
    if (path / MODEL).is_file():
        with open_model(path) as model:
            for name in model.arrays:
                model.arrays[name]
            fields, sizes = model.schema.fields, model.config["field_sizes"]
        read_calibration(path, sizes, fields)
    texts = [path / name for name in (SETTINGS, HISTORY, RACE) if (path / name).is_file()]
    for file in texts:
        _read_text(file)
    files = arrays + texts
    for candidate in sorted(file.parent for file in path.glob(f"race/*/{SETTINGS}")):
        more_files, more_unchecked = _verify_run(candidate)
        files, unchecked = files + more_files, unchecked + more_unchecked
    return files, unchecked


def _read_text(file: Path) -> None:
    """Raise an error if settings or results cannot be parsed. The last line of a history may be incomplete."""
    if file.name == SETTINGS:
        read_settings(file, "verify")
        return
    try:
        text = file.read_text(encoding="utf-8")
        for document in text.split("\n")[:-1] if file.name == HISTORY else [text]:
            json.loads(document)
    except (ValueError, RecursionError) as error:
        raise Fm2Error(f"verify: {file} is damaged: {error}") from error
