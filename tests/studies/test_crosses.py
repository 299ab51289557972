"""Ranking and choosing crosses: gains are measured on rows that neither the model nor the weights have seen."""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np
import polars as pl
import pytest

import fm2
from fm2 import Field, Fm2Error, Schema, _native
from fm2.cli.main import main
from fm2.data.description import describe
from fm2.studies.crosses.coverage import Coverage, measure_coverage

QUICK = {"epochs": 3, "batch_size": 256, "learning_rate": 0.02}
NAMES = ("a", "b", "c", "d", "e")
SCHEMA = Schema([Field(name, min_count=1) for name in NAMES], label="click")


def planted(rows: int, seed: int = 0, strength: float = 1.5, values: int = 8) -> pl.DataFrame:
    """Return a log in which each value has an effect, and each combination of a and b has a larger one.

    The combinations of b, c and d have a smaller effect.
    """
    random = np.random.default_rng(seed)
    ids = random.integers(0, values, (rows, len(NAMES)))
    effects = np.random.default_rng(1)
    alone = effects.normal(size=(len(NAMES), values))
    pair = effects.normal(size=(values, values)) * strength
    triple = effects.normal(size=(values, values, values)) * strength * 0.6
    logits = sum(alone[field][ids[:, field]] for field in range(len(NAMES))) * 0.3 - 1
    logits = logits + pair[ids[:, 0], ids[:, 1]] + triple[ids[:, 1], ids[:, 2], ids[:, 3]]
    columns = {name: [f"{name}{value}" for value in ids[:, field]] for field, name in enumerate(NAMES)}
    return pl.DataFrame({"click": (random.random(rows) < 1 / (1 + np.exp(-logits))).astype(int), **columns})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return fm2.prepare(planted(20_000), SCHEMA, tmp_path_factory.mktemp("planted") / "data")


@pytest.fixture(scope="module")
def ranking(dataset):
    return fm2.rank_crosses(dataset, triples=True, **QUICK)


def test_the_planted_pair_is_first(ranking):
    pairs = [cross for cross in ranking.crosses if len(cross.fields) == 2]
    assert len(pairs) == 10
    assert pairs[0].fields == ("a", "b")
    assert pairs[0].combinations == 64
    assert pairs[0].covered == 1
    assert ranking.is_significant(pairs[0])
    assert {cross.fields for cross in pairs if ranking.is_significant(cross)} <= {
        ("a", "b"),
        ("b", "c"),
        ("b", "d"),
        ("c", "d"),
    }


def test_triples_are_ranked_if_they_gain_more_than_their_pairs(ranking):
    gains = {cross.fields: cross.gain for cross in ranking.crosses}
    triples = {fields for fields in gains if len(fields) == 3}
    assert ("b", "c", "d") in triples
    assert gains["b", "c", "d"] > 2 * gains["b", "c"]
    for first, second, third in triples:
        assert gains[first, second, third] > max(gains[first, second], gains[first, third], gains[second, third])
    assert list(gains.values()) == sorted(gains.values(), reverse=True)


def test_the_gain_is_what_a_model_with_the_cross_gains(dataset, tmp_path, ranking):
    crossed = SCHEMA.replace(fields=[*SCHEMA.fields, Field("a_b", cross=["a", "b"])])
    data = fm2.prepare(planted(20_000), crossed, tmp_path / "data")
    losses = [
        fm2.train("lr", part, tmp_path / str(index), **{**QUICK, "epochs": 20}).evaluate(part, "validation")["log_loss"]
        for index, part in enumerate((dataset, data))
    ]
    gain = next(cross.gain for cross in ranking.crosses if cross.fields == ("a", "b"))
    assert losses[0] - losses[1] == pytest.approx(gain, rel=0.25)
    again = fm2.rank_crosses(data, **QUICK)  # the pair is part of the model now
    assert ("a", "b") not in [cross.fields for cross in again.crosses]
    assert again.log_loss < ranking.log_loss - gain / 2


def test_a_log_without_crosses_has_no_significant_ones(tmp_path):
    dataset = fm2.prepare(planted(20_000, strength=0), SCHEMA, tmp_path / "data")
    ranking = fm2.rank_crosses(dataset, triples=True, **QUICK)
    assert not any(map(ranking.is_significant, ranking.crosses))
    out, chosen = fm2.prepare_with_crosses(planted(20_000, strength=0), SCHEMA, tmp_path / "auto", model="lr")
    assert chosen == []
    assert out.schema == dataset.schema
    assert out.manifest["files"] == dataset.manifest["files"]


def test_crosses_are_chosen_and_added(tmp_path):
    taken = SCHEMA.replace(fields=[*SCHEMA.fields, Field("a_b", column="e")])
    options = {"model": "lr", "triples": True}
    dataset, chosen = fm2.prepare_with_crosses(planted(20_000), taken, tmp_path / "data", **options)
    names = [cross.fields for cross in chosen]
    assert names[0] in {("a", "b"), ("b", "c", "d")}
    assert {("a", "b"), ("b", "c", "d")} <= set(names)
    added = [field for field in dataset.schema.fields if field.cross]
    assert [field.cross for field in added] == names
    assert "a_b_cross" in [field.name for field in added]
    assert {field["kind"] for field in describe(dataset)["fields"][6:]} == {"cross"}
    # Once both are part of the model, other pairs of b, c and d gain little.
    assert len(names) <= 4
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    _, one = fm2.prepare_with_crosses(planted(20_000), taken, tmp_path / "one", max_crosses=1, **options)
    assert one == chosen[:1]


def test_crosses_that_other_rows_do_not_know_are_left_out(tmp_path):
    sums = pl.col("a").str.slice(1).cast(int) + pl.col("b").str.slice(1).cast(int)
    log = planted(12_000).select("click", "a", "b", odd=sums % 2)
    seen, new = (log.filter(odd=odd) for odd in (0, 1))  # all values occur in both, but no combination does
    schema = Schema([Field("a", min_count=1), Field("b", min_count=1)], label="click")
    _, chosen = fm2.prepare_with_crosses(seen, schema, tmp_path / "random", model="lr")
    assert [cross.fields for cross in chosen] == [("a", "b")]
    separate = {"test": new, "fractions": (0.8, 0.2, 0)}
    with pytest.warns(fm2.Fm2Warning, match="left out the cross a × b, because .* known in 0% of the test rows"):
        _, chosen = fm2.prepare_with_crosses(seen, schema, tmp_path / "later", model="lr", **separate)
    assert chosen == []


def test_crosses_that_do_not_help_the_model_are_left_out(tmp_path, monkeypatch):
    log = planted(12_000).select("click", "a", "b")
    schema = Schema([Field("a", min_count=1), Field("b", min_count=1)], label="click")
    losses = iter([0.5, 0.4999])
    monkeypatch.setattr("fm2.studies.crosses.auto._validation_loss", lambda *_: next(losses))
    with pytest.warns(fm2.Fm2Warning, match=r"left out a × b: with crosses, lr has the validation log loss 0.49990"):
        dataset, chosen = fm2.prepare_with_crosses(log, schema, tmp_path / "data", model="lr")
    assert chosen == []
    assert dataset.schema.names == ("a", "b")


def test_coverage_matches_a_literal_computation():
    random = np.random.default_rng(0)
    training, test = (random.integers(0, 7, (3, rows)).astype(np.int32) for rows in (900, 300))
    counts = random.integers(1, 4, 900).astype(np.float32)
    totals = defaultdict(float)
    for row in range(900):
        totals[tuple(training[:, row])] += counts[row]
    known = [0 not in ids and totals[tuple(ids)] >= 6 for ids in test.T]
    own = [0 not in ids and totals[tuple(ids)] - count >= 6 for ids, count in zip(training.T, counts, strict=True)]
    coverage = measure_coverage(training, counts, {"test": test}, 6)
    assert coverage == Coverage(np.mean(own), {"test": np.mean(known)})
    assert 0.1 < coverage.training < 0.9
    assert Coverage(0.8, {"validation": 0.61, "test": 0.605}).lost() is None
    assert "59% of the test rows, but in 80%" in Coverage(0.8, {"validation": 0.61, "test": 0.59}).lost()


def literal_gain(parts, ids, residuals, curvatures, halves, validation, min_count):
    """Return gain, error, combinations, covered and ridge as the text of fm2/cross_ranking.h says, with dicts."""
    valid_ids, logits, labels, weights = validation
    sums = defaultdict(lambda: [0, [0.0, 0.0], [0.0, 0.0]])
    for row in range(len(residuals)):
        key = tuple(ids[part, row] for part in parts)
        if 0 not in key:
            sums[key][0] += 1
            sums[key][1][halves[row]] += residuals[row]
            sums[key][2][halves[row]] += curvatures[row]
    frequent = {key: value for key, value in sums.items() if value[0] >= min_count}

    def fit(ridge):
        total = 0.0
        for _, g, h in frequent.values():
            for half in (0, 1):
                weight = g[half] / (h[half] + ridge)
                total += weight * g[1 - half] - weight**2 * h[1 - half] / 2
        return total

    ridge = max([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000], key=fit)
    gains = np.zeros(len(logits))
    found = np.zeros(len(logits), bool)
    for row in range(len(logits)):
        key = tuple(valid_ids[part, row] for part in parts)
        if key in frequent:
            _, g, h = frequent[key]
            shifted = logits[row] + sum(g) / (sum(h) + ridge)
            loss, new = (np.logaddexp(0, z) - labels[row] * z for z in (float(logits[row]), shifted))
            gains[row], found[row] = loss - new, True
    mean = np.average(gains, weights=weights)
    error = np.sqrt((weights.astype(float) ** 2 * (gains - mean) ** 2).sum()) / weights.sum()
    return mean, error, len(frequent), weights[found].sum() / weights.sum(), ridge


@pytest.mark.parametrize("parts", [(0, 1), (2, 0), (0, 1, 2)])
@pytest.mark.parametrize("min_count", [1, 5])
def test_gains_match_a_literal_computation(parts, min_count):
    random = np.random.default_rng(0)
    ids, valid_ids = (random.integers(0, 6, (3, rows)).astype(np.int32) for rows in (2000, 500))
    residuals = (random.normal(size=2000) * 0.3 + (ids[0] == ids[1]) * 0.4).astype(np.float32)
    curvatures = random.uniform(0.1, 0.25, 2000).astype(np.float32)
    halves = random.integers(0, 2, 2000).astype(np.uint8)
    logits, labels, weights = (
        array.astype(np.float32)
        for array in (random.normal(size=500), random.random(500) < 0.4, random.uniform(0, 3, 500))
    )
    counts = np.ones(len(halves), np.float32)
    ranking = _native.CrossRanking(ids, residuals, curvatures, halves, counts, valid_ids, logits, labels, weights)
    (measured,) = ranking.measure([list(parts)], min_count, 2)
    expected = literal_gain(parts, ids, residuals, curvatures, halves, (valid_ids, logits, labels, weights), min_count)
    np.testing.assert_allclose(measured, expected, rtol=1e-5)
    training, validation = ranking.shifts(list(parts), min_count)
    same = (ids[parts[0]] == 1) & (ids[parts[1]] == 1) & (halves == 0)
    if len(parts) == 2:
        other = (ids[parts[0]] == 1) & (ids[parts[1]] == 1) & (halves == 1)
        weight = residuals[other].sum() / (curvatures[other].sum() + expected[4])
        np.testing.assert_allclose(training[same], weight, rtol=1e-5)
    assert (training[(ids[list(parts)] == 0).any(axis=0)] == 0).all()
    shifted = logits + validation
    loss = np.average(np.logaddexp(0, logits) - labels * logits, weights=weights)
    assert loss - np.average(np.logaddexp(0, shifted) - labels * shifted, weights=weights) == pytest.approx(
        expected[0], rel=1e-3
    )


def test_sampled_impressions_and_weights_are_ranked(tmp_path):
    log = planted(20_000)
    counts = log.group_by(NAMES, maintain_order=True).agg(clicks=pl.col("click").sum(), views=pl.len())
    schema = SCHEMA.replace(label="clicks", impressions="views")
    dataset = fm2.prepare(counts, schema, tmp_path / "data", negative_rate=0.5)
    ranking = fm2.rank_crosses(dataset, **QUICK)
    assert ranking.crosses[0].fields == ("a", "b")
    assert ranking.is_significant(ranking.crosses[0])


def test_a_row_counts_as_often_as_it_has_impressions(tmp_path):
    log = planted(20_000).select("click", "a", "b")
    counts = log.group_by("a", "b", maintain_order=True).agg(clicks=pl.col("click").sum(), views=pl.len())
    schema = Schema([Field("a"), Field("b")], label="clicks", impressions="views")
    dataset = fm2.prepare(counts, schema, tmp_path / "data", fractions=(0.7, 0.2, 0.1))
    assert fm2.rank_crosses(dataset, **QUICK).crosses[0].combinations > 0  # though each has one row


def test_min_count_holds_for_all_training_rows(tmp_path):
    dataset = fm2.prepare(planted(6000), SCHEMA, tmp_path / "data")
    everything, sample = (
        next(
            cross
            for cross in fm2.rank_crosses(dataset, min_count=60, rows=rows, **QUICK).crosses
            if cross.fields == ("a", "b")
        )
        for rows in (10_000, 1200)
    )
    assert sample.combinations > 0.5 * everything.combinations


def test_other_fields_are_part_of_the_model(tmp_path):
    fields = [
        *SCHEMA.fields,
        Field("tags", multivalued=True, min_count=1),
        Field("number", "numeric", transform="linear"),
        Field("constant"),
        Field("a_b", cross=["b", "a"]),
    ]
    log = planted(3000).with_columns(tags=pl.lit("x|y"), number=pl.Series(range(3000)), constant=pl.lit("k"))
    dataset = fm2.prepare(log, SCHEMA.replace(fields=fields), tmp_path / "data")
    ranking = fm2.rank_crosses(dataset, model="fmfm", dim=2, epochs=1, rows=1000)
    assert len(ranking.crosses) == 9
    assert {name for cross in ranking.crosses for name in cross.fields} == set(NAMES)
    assert ranking.crosses[0].combinations <= 64


def test_invalid_options_are_errors(dataset, tmp_path):
    for options, message in (
        ({"rows": 0}, "crosses: rows must be at least 1, got 0"),
        ({"min_count": 0, **QUICK, "epochs": 1}, "crosses: min_count must be at least 1, got 0"),
        ({"model": "lt"}, "unknown model 'lt'"),
        ({"threads": -1}, "threads"),
    ):
        with pytest.raises(Fm2Error, match=message):
            fm2.rank_crosses(dataset, **options)
    without = fm2.prepare(planted(500), SCHEMA, tmp_path / "without", fractions=(0.9, 0, 0.1))
    with pytest.raises(Fm2Error, match="crosses: the dataset has no validation rows"):
        fm2.rank_crosses(without)
    with pytest.raises(Fm2Error, match="crosses cannot be added to the schema of a dataset"):
        fm2.prepare_with_crosses(planted(500), without, tmp_path / "more")
    with pytest.raises(Fm2Error, match="already exists"):
        fm2.prepare_with_crosses(planted(500), SCHEMA, without.path)


def test_the_commands_print_gains(dataset, tmp_path, capsys):
    assert main(["crosses", str(dataset.path), "--top", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["cross", "gain", "relative", "z", "combinations", "covered"]
    assert lines[1].startswith("a × b ")
    assert lines[4] == ""
    assert main(["crosses", str(dataset.path), "--json", "--triples"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["crosses"][0]["z"] > result["least_z"]
    assert main(["crosses", str(dataset.path), "--top", "0"]) == 1
    planted(8000).write_csv(tmp_path / "log.csv")
    SCHEMA.save(tmp_path / "schema.toml")
    arguments = ["prepare", str(tmp_path / "log.csv"), "--out", str(tmp_path / "data"), "--crosses", "auto"]
    capsys.readouterr()
    assert main([*arguments, "--schema", str(tmp_path / "schema.toml"), "--crosses-model", "lr"]) == 0
    output = capsys.readouterr()
    assert "fm2: added the cross a × b: log loss -0.0" in output.err
    assert "cross a × b" in output.out
    assert fm2.Dataset.open(tmp_path / "data").schema.fields[5].cross == ("a", "b")
    assert main([*arguments, "--like", str(dataset.path), "--overwrite"]) == 1
    assert "--crosses cannot be combined with --like" in capsys.readouterr().err
    assert main([*arguments[:4], "--label", "click", "--crosses-model", "lr", "--overwrite"]) == 1
    assert "--crosses-model requires --crosses auto" in capsys.readouterr().err
    assert main([*arguments, "--label", "click", "--crosses-model", "lrr", "--overwrite"]) == 1
    assert "prepare: unknown model 'lrr'; did you mean 'lr'?" in capsys.readouterr().err
