"""The click log of a shop, which the examples of the documentation use."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import polars as pl

from fm2.cli.main import main

SITES, USERS, ADS, SIZES = 40, 300, 60, ("300x250", "728x90", "160x600")
COLUMNS = ("click", "time", "user", "site", "ad", "size", "price")


def click_log(rows: int, seed: int = 0) -> pl.DataFrame:
    """Return rows whose clicks depend on the pair of site and ad, on the user and on the hour."""
    random, planted = np.random.default_rng(seed), np.random.default_rng(99)
    site, user, ad = ((random.random(rows) ** 2 * count).astype(int) for count in (SITES, USERS, ADS))
    hour, minute, size = random.integers(0, 24, rows), random.integers(0, 60, rows), random.integers(0, 3, rows)
    taste, offer = planted.normal(size=(SITES, 3)), planted.normal(size=(ADS, 3))
    logits = (taste[site] * offer[ad]).sum(1) + planted.normal(size=USERS)[user] + np.sin(hour / 4) - 1.5
    return pl.DataFrame(
        {
            "click": (random.random(rows) < 1 / (1 + np.exp(-logits))).astype(np.int8),
            "time": [f"2024-02-26 {h:02}:{m:02}:00" for h, m in zip(hour, minute, strict=True)],
            "user": [f"u{n}" for n in user],
            "site": [f"site{n}" for n in site],
            "ad": [f"ad{n}" for n in ad],
            "size": [SIZES[n] for n in size],
            "price": random.gamma(2, 20, rows).round(2),
        }
    )


def fill(room: Path) -> None:
    """Fill a directory with logs, a dataset, a trained and a compiled model, new rows and candidates."""
    clicks = click_log(8_000)
    clicks.write_csv(room / "clicks.csv")
    (room / "logs").mkdir()
    for day, rows in (("monday", clicks[:5_000]), ("tuesday", clicks[5_000:])):
        (room / "logs" / f"{day}.csv.gz").write_bytes(gzip.compress(rows.write_csv().encode(), 1))
        rows.write_csv(room / f"{day}.csv")
    new = click_log(500, seed=1).drop("click")
    new.write_csv(room / "new.csv")
    new.write_parquet(room / "new.parquet")
    candidates = [{"ad": f"ad{n}", "size": SIZES[n % 3], "price": n % 7 + 0.5} for n in range(ADS)]
    (room / "candidates.jsonl").write_text("".join(json.dumps(row) + "\n" for row in candidates), encoding="utf-8")
    for command in (
        f"generate {room}/log.tsv --rows 5000 --features 1000",
        f"prepare {room}/clicks.csv --label click --out {room}/data",
        f"train fmfm {room}/data --out {room}/run --threads 1",
        f"compile {room}/run --out {room}/model.fm2",
    ):
        assert main(command.split()) == 0, command
