"""Default settings: they depend on the size of the log, and the documentation lists them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import polars
import pytest

import fm2
from fm2.artifacts.run_directory import SETTINGS
from fm2.artifacts.settings import Settings, read_settings
from fm2.models.registry import get_spec, specs
from fm2.training.train import train

SHALLOW = [spec for spec in specs() if not spec.deep]


@pytest.mark.parametrize(
    "values",
    [
        {spec.name: spec.defaults for spec in SHALLOW},
        {spec.name: spec.few_defaults for spec in SHALLOW if spec.few_defaults},
        {spec.name: spec.large_defaults for spec in SHALLOW if spec.large_defaults},
    ],
)
def test_the_documentation_has_the_defaults(values):
    text = Path("docs/reference/settings.md").read_text(encoding="utf-8")
    for name in {name: None for own in values.values() for name in own}:
        row = " | ".join(str(own.get(name, "")) for own in values.values())
        assert f"| `{name}` | {row} |\n" in text


def test_defaults_for_few_fields(dataset, tmp_path):
    sizes = [50, 1_000, 7, 200_000]
    few, usual = Settings.of("fmfm", 5_000, sizes), Settings.of("fmfm", 5_000, [50] * 23)
    assert (few.field_dropout, usual.field_dropout) == (0.027, 0.2)
    assert Settings.of("fmfm", 70_000, sizes).field_dropout == 0.014
    assert few.options["matrix_std"] == pytest.approx(usual.options["matrix_std"] * (741 / 6) ** 0.5, rel=1e-2)
    assert (few.dim, usual.dim) == ((9, 19, 5, 32), 8)
    assert few.learning_rate == 4 * usual.learning_rate
    run = train("fmfm", dataset, tmp_path / "run", epochs=1, threads=1)
    assert read_settings(run.path / SETTINGS)["field_dropout"] == 0.027


def test_models_with_equal_dims_have_that_of_the_largest_field():
    few, usual = Settings.of("fwfm", 5_000, [50, 1_000, 7]), Settings.of("fwfm", 5_000)
    assert (few.dim, usual.dim) == (19, 8)
    assert few.options == usual.options
    assert Settings.of("fwfm", 5_000, [50, 7]).dim == 9
    assert Settings.of("fwfm", 5_000, [2, 7]).dim == 8
    assert Settings.of("deepfm", 5_000, [50, 1_000, 7]).dim == Settings.of("deepfm", 5_000).dim


SIZES = [*np.geomspace(150_000, 1_500_000, 60).astype(int).tolist(), 200_000, 1_000_000]


@pytest.mark.parametrize("spec", specs(), ids=lambda spec: spec.name)
@pytest.mark.parametrize("fields", [[50] * 39, [1_000, 50, 7]], ids=len)
def test_defaults_change_gradually_with_the_number_of_rows(spec, fields):
    by_rows = [Settings.of(spec.name, rows, fields).to_dict() for rows in sorted(SIZES)]
    for before, after in pairwise(by_rows):
        for name, value in before.items():
            tolerance = 0.015 if "dropout" in name else 0
            expected = pytest.approx(value, rel=0.12, abs=tolerance) if isinstance(value, float) else value
            assert after[name] == expected or (name == "batch_size" and after[name] == 2 * value), name


def test_defaults_for_many_rows():
    few, many, more = (Settings.of("fmfm", rows, [50] * 39) for rows in (200_000, 1_000_000, 9_000_000))
    assert (few.l2, few.batch_size, few.field_dropout) == (0.036, 256, 0.1)
    assert (many.l2, many.batch_size, many.field_dropout) == (0.009, 1024, 0)
    assert many == more
    assert {few.schedule, many.schedule} == {"constant"}
    assert many.epochs == few.epochs
    assert Settings.of("fmfm", 10**6, [50_000, 9]).dim == Settings.of("fmfm", 10**5, [50_000, 9]).dim
    assert Settings.of("fmfm", 10**6, field_dropout=0.5).field_dropout == 0.5


def test_defaults_for_few_rows_change_gradually():
    tiny, few, some, enough = (Settings.of("fmfm", rows, [50] * 39) for rows in (10_000, 16_384, 32_768, 65_536))
    assert (tiny.l2_power, tiny.field_dropout, tiny.ema_decay) == (0.5, 0.2, 0.998)
    assert (few.l2_power, some.l2_power, enough.l2_power) == pytest.approx((0.5, 0.35**0.5, 0.7), abs=1e-3)
    assert enough.learning_rate == 2 * few.learning_rate == Settings.of("fmfm").learning_rate


def test_rates_rise_with_fewer_pairs_of_fields():
    def factors(model):
        rates = [Settings.of(model, 10_000, [50] * fields).learning_rate for fields in (23, 15, 10, 4, 1)]
        return [rate / rates[0] for rate in rates]

    assert factors("ffm") == pytest.approx([1, 253 / 105, 5, 5, 5], rel=0.02)
    assert factors("lr") == pytest.approx([1, 253 / 105, 2.5, 2.5, 2.5], rel=0.02)
    assert factors("deepfm") == [1] * 5


def test_the_l2_of_lr_is_proportional_to_the_features_per_row():
    l2 = [Settings.of("lr", 100_000, [features]).l2 for features in (10, 1_000, 10_000, 15_000, 90_000)]
    assert l2 == pytest.approx([0.00005, 0.00025, 0.0025, 0.00375, 0.005])
    assert Settings.of("lr").l2 == Settings.of("lr", 100_000).l2 == 0.0025
    assert Settings.of("lr", 100_000, [1_000], l2=0.3).l2 == 0.3
    assert Settings.of("fm", 100_000, [1_000]).l2 == Settings.of("fm", 100_000, [10_000]).l2


def test_the_initial_accumulator_of_ffm_grows_with_the_rows():
    values = [Settings.of("ffm", rows).initial_accumulator for rows in (0, 30_000, 54_772, 100_000, 10**7)]
    assert values == pytest.approx([0.1, 0.1, 0.3162, 1, 1], rel=1e-3)
    assert Settings.of("ffm", 100_000, initial_accumulator=0.5).initial_accumulator == 0.5
    assert Settings.of("poly2", 100_000).initial_accumulator == 0.1


def test_rows_count_less_if_clicks_are_rare():
    """With 1% clicks, the variance of labels is 0.0099 / 0.125 = 0.0792 of the usual one."""
    fields = [50] * 30
    for name in ("lr", "fwfm", "fmfm"):
        spec = get_spec(name)
        assert spec.default_settings(500_000, fields, 0.01) == spec.default_settings(140_712, fields)
        assert spec.default_settings(500_000, fields, 0.99) == spec.default_settings(500_000, fields, 0.01)
        assert spec.default_settings(500_000, fields, 0.2) == spec.default_settings(500_000, fields)
    assert get_spec("deepfm").default_settings(500_000, fields, 0.01)["batch_size"] > 256  # as with usual clicks
    ffm = get_spec("ffm")
    usual = ffm.default_settings(140_712, fields)
    assert ffm.default_settings(500_000, fields, 0.01) == usual | {"l2": pytest.approx(0.0792 * usual["l2"])}


def test_trainings_use_the_click_rate_of_the_training_rows(tmp_path):
    clicks = np.arange(2000) % 100 == 0
    rows = polars.DataFrame({"click": clicks.astype(int), "a": np.arange(2000) % 7, "b": np.arange(2000) % 5})
    data = fm2.prepare(rows, fm2.Schema([fm2.Field("a"), fm2.Field("b")], label="click"), tmp_path / "data")
    rate = data.train.labels.mean()
    fm2.train("ffm", data, tmp_path / "run", epochs=1)
    l2 = read_settings(tmp_path / "run" / SETTINGS)["l2"]
    expected = get_spec("ffm").default_settings(len(data.train), data.field_sizes, rate)["l2"]
    assert l2 == expected < get_spec("ffm").default_settings(len(data.train), data.field_sizes)["l2"]
