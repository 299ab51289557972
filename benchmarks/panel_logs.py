"""Generated logs of the panel: five kinds that real logs of the panel do not cover, with known click probabilities.

Each function returns the rows of a log and the true probability of a click in every row. They are drawn from models
that no contender has: pair effects of random rank, steps and smooth curves in numbers, and effects of single pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Generated = tuple[polars.DataFrame, Floats]

LABEL = "click"


def user_item(seed: int) -> Generated:
    """Draw clicks of users on items, each with four sampled items that were not clicked.

    Users prefer items by latent factors, return to a few favorites, and prefer other categories on other devices. An
    item is clicked with p(item | user, device) and sampled with its popularity, so the probability that a row is a
    click is known from the two.
    """
    random = np.random.default_rng(seed)
    rows, users, items, negatives, rank = 200_000, 10_000, 3_000, 4, 6
    popularity = _zipf(items, 0.8, random)
    user_factors = random.normal(0, 1, (users, rank))
    item_factors = random.normal(0, 1, (items, rank))
    category = np.argmax(item_factors @ random.normal(0, 1, (rank, 24)) + random.gumbel(0, 1, (items, 24)), axis=1)
    favorites = random.choice(items, (users, 3), p=popularity)
    on_device = random.normal(0, 0.6, (5, 24))
    user = random.choice(users, rows, p=_zipf(users, 0.7, random))
    device = random.choice(5, rows, p=[0.4, 0.3, 0.15, 0.1, 0.05])
    clicked = random.random(rows) < 1 / (1 + negatives)
    item = random.choice(items, rows, p=popularity)
    odds = np.empty(rows)
    for begin in range(0, rows, 2_000):
        chunk = slice(begin, begin + 2_000)
        preference = 0.45 * user_factors[user[chunk]] @ item_factors.T + on_device[device[chunk]][:, category]
        np.put_along_axis(preference, favorites[user[chunk]], 6.0, axis=1)
        chosen = popularity * np.exp(preference)
        chosen /= chosen.sum(axis=1, keepdims=True)
        for row in np.flatnonzero(clicked[chunk]):
            item[begin + row] = np.searchsorted(np.cumsum(chosen[row]), random.random() * 0.999999)
        shown = item[chunk]
        odds[chunk] = chosen[np.arange(len(shown)), shown] / popularity[shown] / negatives
    table = {
        "user": _names("u", user),
        "item": _names("i", item),
        "category": _names("c", category[item]),
        "brand": _names("b", (category[item] * 7 + item % 11) % 90),
        "price": np.round(np.exp(item_factors[item, 0] + 3), 2),
        "device": _names("d", device),
        "country": _names("", _cluster(user_factors, 12, random)[user]),
        "age": (20 + 8 * np.abs(user_factors[user, 1]) + random.integers(0, 5, rows)).astype(int),
        "hour": random.integers(0, 24, rows),
        "page": _names("p", random.choice(40, rows, p=_zipf(40, 1, random))),
    }
    return polars.DataFrame({LABEL: clicked.astype(np.uint8), **table}), odds / (1 + odds)


def few_fields(seed: int) -> Generated:
    """Draw 100,000 rows of four fields: sites, ads, hours and devices, with effects of pairs and of a triple."""
    random = np.random.default_rng(seed)
    rows, sizes = 100_000, {"site": 800, "ad": 300, "hour": 24, "device": 6}
    ids = [random.choice(size, rows, p=_zipf(size, 0.9, random)) for size in sizes.values()]
    logits = sum((random.normal(0, 0.5, size)[column] for size, column in zip(sizes.values(), ids, strict=True)))
    for a, b, scale in ((0, 1, 0.7), (1, 2, 0.4), (0, 3, 0.4), (2, 3, 0.3)):
        logits += scale * _pair_effect(ids[a], ids[b], 4, random)
    kinds = [random.integers(0, 4, size)[column] for size, column in zip(sizes.values(), ids, strict=True)]
    logits += random.normal(0, 0.4, (4, 4, 4))[kinds[0], kinds[1], kinds[3]]
    columns = {name: _names(name[0], column) for name, column in zip(sizes, ids, strict=True)}
    return _clicks(columns, logits, 0.2, random)


def rare_clicks(seed: int) -> Generated:
    """Draw 500,000 rows of 20 fields with 0.5% clicks: 15 categories with 3 to 20,000 values, and 5 numbers."""
    random = np.random.default_rng(seed)
    rows = 500_000
    sizes = [3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 400, 800, 2_000, 6_000, 20_000]
    ids = [random.choice(size, rows, p=_zipf(size, 1.0, random)) for size in sizes]
    logits = sum((random.normal(0, 0.35, size)[column] for size, column in zip(sizes, ids, strict=True)))
    for _ in range(10):
        a, b = random.choice(len(sizes), 2, replace=False)
        logits += 0.3 * _pair_effect(ids[a], ids[b], 3, random)
    numbers = {f"n{i}": random.lognormal(0, 1.2, rows) for i in range(5)}
    for i, values in enumerate(numbers.values()):
        logits += 0.4 * np.tanh(np.log(values) + random.normal()) * (-1) ** i
    logits += 0.6 * (numbers["n0"] > 2) * (ids[3] % 3 == 0)
    columns: dict[str, Any] = {f"c{i}": _names(f"c{i}_", column) for i, column in enumerate(ids)}
    counts = {name: np.floor(10 * values).astype(int) for name, values in numbers.items()}
    return _clicks(columns | counts, logits, 0.005, random)


def numbers_only(seed: int) -> Generated:
    """Draw 100,000 rows of 15 numbers: counts, amounts with heavy tails, zeros, missing values; curves and products."""
    random = np.random.default_rng(seed)
    rows = 100_000
    normal = random.normal(0, 1, (rows, 15)) @ (np.eye(15) + 0.25 * random.normal(0, 1, (15, 15)))
    normal /= normal.std(axis=0)
    visits, clicks, orders = (random.poisson(np.exp(0.8 * normal[:, i] + i)) for i in range(3))
    spent = np.where(normal[:, 3] > 0.4, np.round(np.exp(1.5 * normal[:, 4] + 4), 2), 0)
    logits = 0.5 * np.log1p(visits) - 0.6 * np.log1p(clicks) + 0.4 * np.tanh(orders - 4)
    logits += np.where(spent > 0, 0.5 - 0.3 * np.log1p(spent) / 4, 0) + np.sin(2 * normal[:, 5])
    logits += -0.4 * (normal[:, 6] - 0.5) ** 2 + 0.7 * normal[:, 7] * normal[:, 8]
    logits += 0.8 * (normal[:, 9] > 0.7) * (normal[:, 5] < 0) + 0.5 * np.cos(1.5 * normal[:, 10]) * normal[:, 11]
    missing = random.random(rows) < 0.25
    logits += np.where(missing, 0.6, 0.5 * normal[:, 12])
    columns = {
        **{"visits": visits, "clicks": clicks, "orders": orders, "spent": spent},
        "phase": np.round(normal[:, 5], 4),
        "age": np.round(35 + 12 * normal[:, 6]).astype(int),
        **{f"x{i}": np.round(normal[:, i], 4) for i in (7, 8, 11, 13)},
        "income": np.round(np.exp(normal[:, 9] + 8)).astype(int),
        "duration": np.round(np.exp(1.3 * normal[:, 10]) * 60, 1),
        "score": np.round(100 / (1 + np.exp(-normal[:, 12])), 1),
        "bytes": np.floor(np.exp(2.5 * normal[:, 14] + 9)).astype(int),
        "rate": np.round(random.beta(0.5, 4, rows), 3),
    }
    table, truth = _clicks(columns, logits, 0.25, random)
    return table.with_columns(polars.when(~polars.Series(missing)).then("score")), truth


def drift(seed: int) -> Generated:
    """Draw 200,000 rows of 28 days in which ads and users come and go, so that many values of the last days are new.

    An ad's effect consists of those of its advertiser, category and size, which persist, and its own.
    """
    random = np.random.default_rng(seed)
    rows, days, ads, users, advertisers = 200_000, 28, 4_000, 30_000, 150
    day = np.sort(random.random(rows) * days)
    ad = _alive(day, random.uniform(-6, days, ads), random.exponential(5, ads) + 1, _zipf(ads, 0.7, random), random)
    user = _alive(day, random.uniform(-20, days, users), np.full(users, 15.0), _zipf(users, 0.5, random), random)
    advertiser_of = random.choice(advertisers, ads, p=_zipf(advertisers, 0.8, random))
    category_of = random.integers(0, 20, advertisers)[advertiser_of]
    size_of = random.integers(0, 8, ads)
    segment_of = random.integers(0, 30, users)
    site = random.choice(500, rows, p=_zipf(500, 0.9, random))
    hour = ((day % 1) * 24).astype(int)
    logits = random.normal(0, 0.4, ads)[ad] + random.normal(0, 0.5, advertisers)[advertiser_of[ad]]
    logits += random.normal(0, 0.4, users)[user] + random.normal(0, 0.5, 500)[site]
    logits += 0.6 * _pair_effect(category_of[ad], segment_of[user], 3, random)
    logits += 0.5 * _pair_effect(advertiser_of[ad], site, 4, random) + 0.3 * _pair_effect(size_of[ad], site, 3, random)
    logits += 0.3 * np.sin(2 * np.pi * hour / 24 + category_of[ad]) + 0.3 * np.sin(day / 4)
    seconds = (day * 86_400).astype(np.int64) + int(datetime(2026, 3, 2, tzinfo=UTC).timestamp())
    columns = {
        "time": polars.from_epoch(polars.Series(seconds)).dt.strftime("%Y-%m-%d %H:%M:%S"),
        "ad": _names("a", ad),
        "advertiser": _names("v", advertiser_of[ad]),
        "category": _names("c", category_of[ad]),
        "size": _names("s", size_of[ad]),
        "user": _names("u", user),
        "segment": _names("g", segment_of[user]),
        "site": _names("w", site),
        "device": _names("d", random.choice(6, rows, p=_zipf(6, 1, random))),
        "slot": _names("", random.integers(0, 5, rows)),
    }
    return _clicks(columns, logits, 0.15, random)


KINDS: dict[str, Callable[[int], Generated]] = {
    "user_item": user_item,
    "few_fields": few_fields,
    "rare_clicks": rare_clicks,
    "numbers": numbers_only,
    "drift": drift,
}


def _zipf(size: int, exponent: float, random: np.random.Generator) -> Floats:
    """Return probabilities that fall like a power of the rank, in random order."""
    weights = np.arange(1.0, size + 1) ** -exponent
    return random.permutation(weights / weights.sum())


def _names(prefix: str, ids: Ints) -> polars.Series:
    return polars.select(polars.lit(prefix) + polars.Series(ids).cast(polars.String)).to_series()


def _cluster(factors: Floats, clusters: int, random: np.random.Generator) -> Ints:
    cluster: Ints = np.argmax(factors @ random.normal(0, 1, (factors.shape[1], clusters)), axis=1)
    return cluster


def _pair_effect(a: Ints, b: Ints, rank: int, random: np.random.Generator) -> Floats:
    """Return the effect of pairs of values: the product of two random vectors, with a deviation of 1."""
    left, right = (random.normal(0, 1, (int(ids.max()) + 1, rank)) for ids in (a, b))
    effect: Floats = np.einsum("ij,ij->i", left[a], right[b]) / np.sqrt(rank)
    return effect


def _alive(day: Floats, start: Floats, life: Floats, popularity: Floats, random: np.random.Generator) -> Ints:
    """Draw an id for each row among those that exist on its day."""
    ids = np.empty(len(day), np.int64)
    quarter = np.floor(day * 4)
    for value in np.unique(quarter):
        rows = quarter == value
        exists = (start <= value / 4) & (value / 4 < start + life)
        weights = popularity * exists
        ids[rows] = random.choice(len(start), int(rows.sum()), p=weights / weights.sum())
    return ids


def _clicks(columns: Mapping[str, Any], logits: Floats, rate: float, random: np.random.Generator) -> Generated:
    """Shift the logits so that this share of the rows is expected to be clicks, and draw the clicks."""
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        expected = float(np.mean(1 / (1 + np.exp(-logits - middle))))
        low, high = (middle, high) if expected < rate else (low, middle)
    truth = 1 / (1 + np.exp(-logits - low))
    label = (random.random(len(truth)) < truth).astype(np.uint8)
    return polars.DataFrame({LABEL: label, **columns}), truth
