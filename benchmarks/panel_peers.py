"""The peers of the panel: LightGBM, CatBoost, scikit-learn and xLearn, each fitted in the environment of `make peers`.

A fit is cached: the file of its predictions is named after a hash of everything that the peer read.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars
from numpy.typing import NDArray

import fm2
import xlearn_peer
from fm2.data.dataset import Split
from fm2.data.splits import SPLITS
from fm2.evaluation import metrics
from panel_data import Log
from panel_fits import Fitted

DRIVER = Path(__file__).with_name("panel_driver.py")
TREES = ("LightGBM", "CatBoost")
LINEAR = "scikit-learn LR"
XLEARN = {"xLearn LR": "lr", "xLearn FM": "fm", "xLearn FFM": "ffm"}
PEERS = (*TREES, LINEAR, *XLEARN)
XLEARN_SETTINGS = {"k": 4, "epoch": 60, "opt": "adagrad", "lr": 0.1, "stop_window": 2}
XLEARN_LAMBDAS = (2e-6, 2e-5, 2e-4)  # selected on validation rows
LIMIT = 600  # seconds per fit


def fit_peer(
    name: str, log: Log, dataset: fm2.Dataset, cache: Path, threads: int, fresh: bool = False, limit: float = LIMIT
) -> Fitted:
    """Return a peer's predictions for a log: those in the directory ``cache`` unless ``fresh``, or of a new fit."""
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        request = _write_rows(name, log, dataset, Path(folder))
        if name not in XLEARN:  # which has no limit
            request["limit"] = limit
        path = cache / f"{name.replace(' ', '-')}-{_hash(Path(folder), request)}.npz"
        if fresh or not path.exists():
            result = Path(folder, "result.npz")
            if name in XLEARN:
                _fit_xlearn(XLEARN[name], dataset, Path(folder), result, threads)
            else:
                _fit(request | {"threads": threads}, Path(folder), result)
            result.replace(path)
    with np.load(path) as stored:
        figures = {key: stored[key].item() for key in ("seconds", "cpu_seconds", "threads")}
        note = f"{'trees' if name in TREES else 'lambda' if name in XLEARN else 'C'} {stored['selected'].item():g}"
        note += ", time limit" if stored.get("at_limit") else ""
        return Fitted(name, stored["validation"], stored["test"], **figures, note=note)


def _write_rows(name: str, log: Log, dataset: fm2.Dataset, folder: Path) -> dict[str, Any]:
    """Write what a peer reads into files; return what it needs to know about them."""
    if name in TREES:
        table, categories = log.peer_table(dataset)
        table.write_parquet(folder / "rows.parquet")
        return {"model": name, "rows": "rows.parquet", "categories": categories}
    splits = {split: _sparse_rows(dataset.split(split), dataset.field_sizes) for split in SPLITS}
    if name in XLEARN:
        for split, rows in splits.items():
            _write_libffm(rows, folder / f"{split}.ffm")
        return {"model": name}
    arrays: dict[str, Any] = {
        f"{split}_{part}": array for split, rows in splits.items() for part, array in rows.items()
    }
    np.savez(folder / "rows.npz", n_features=sum(dataset.field_sizes), **arrays)
    return {"model": name, "rows": "rows.npz"}


def _sparse_rows(split: Split, field_sizes: list[int]) -> dict[str, NDArray[Any]]:
    """Return the fields, features (numbered over all fields) and weights of rows; row r begins at ``offsets[r]``."""
    starts = np.cumsum([0, *field_sizes[:-1]])
    rows, fields, features, weights = [], [], [], []
    for field, start in enumerate(starts):
        numbers, ids = np.arange(len(split)), split.ids[:, field]
        weight = np.ones(len(split), np.float32)
        if field in split.lists:
            lists = split.lists[field].take(ids)
            numbers, ids, weight = np.repeat(numbers, lists.sizes), lists.ids, lists.value_weights()
        rows.append(numbers)
        fields.append(np.full(len(ids), field, np.int32))
        features.append((ids + start).astype(np.int32))
        weights.append(weight)
    row = np.concatenate(rows)
    order = np.argsort(row, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(split)))]).astype(np.int32)
    parts = {"fields": fields, "features": features, "weights": weights}
    flat = {name: np.concatenate(arrays)[order] for name, arrays in parts.items()}
    return {**flat, "offsets": offsets, "labels": np.asarray(split.labels)}


def _write_libffm(rows: dict[str, NDArray[Any]], path: Path) -> None:
    """Write rows in libffm's format, ``label field:feature:weight ...``."""
    numbers = np.repeat(np.arange(len(rows["labels"])), np.diff(rows["offsets"]))
    cells = polars.DataFrame({"row": numbers, **{name: rows[name] for name in ("fields", "features", "weights")}})
    cell = polars.format("{}:{}:{}", "fields", "features", polars.col("weights").round(6))
    lines = cells.select("row", cell=cell).group_by("row", maintain_order=True).agg(polars.col("cell").str.join(" "))
    table = lines.select(polars.Series("label", rows["labels"]), "cell")
    table.write_csv(path, include_header=False, separator=" ", quote_style="never")


def _hash(folder: Path, request: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(request).encode())
    for path in sorted(folder.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _fit(request: dict[str, Any], folder: Path, result: Path) -> None:
    (folder / "job.json").write_text(json.dumps(request))
    done = subprocess.run([xlearn_peer.PYTHON, DRIVER, "job.json", result], cwd=folder, check=False)
    if done.returncode:
        status = f"exit status {done.returncode}"
        raise fm2.Fm2Error(f"{request['model']} failed ({status}); see its output above, or run make peers")


def _fit_xlearn(model: str, dataset: fm2.Dataset, folder: Path, result: Path, threads: int) -> None:
    """Fit with each regularization; keep the predictions with the lowest log loss of the validation rows."""
    train, validation, test = (folder / f"{split}.ffm" for split in SPLITS)
    fits, best = [], (np.inf, 0.0, [np.empty(0)])
    for regularization in XLEARN_LAMBDAS:
        settings = {**XLEARN_SETTINGS, "lambda": regularization, "nthread": threads}
        fit, predictions = xlearn_peer.predict_xlearn(model, train, validation, settings, [validation, test])
        fits.append(fit)
        loss = metrics.log_loss(dataset.validation.labels, predictions[0])
        best = min(best, (loss, regularization, predictions), key=lambda entry: entry[0])
    figures: dict[str, Any] = {
        "seconds": sum(fit.seconds for fit in fits),
        "cpu_seconds": sum(fit.cpu_seconds for fit in fits),
    }
    np.savez(result, validation=best[2][0], test=best[2][1], selected=best[1], threads=threads, **figures)
