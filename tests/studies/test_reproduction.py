"""The paper's tables: the published figures, and fm2's next to them."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

import fm2
from fm2 import Fm2Error
from fm2.artifacts.settings import read_settings
from fm2.cli.main import main
from fm2.data.presets import CRITEO_FIELD_SIZES
from fm2.models.paper import CRITEO_DIMS
from fm2.studies.comparison import runs as comparing
from fm2.studies.reproduction import costs, published
from fm2.studies.reproduction.contradictions import contradictions
from fm2.studies.reproduction.protocol import differences, schema_of

# The rows of the paper's tables, copied from its source.
TABLE_6 = """
LR 0.7930 0.7918 0.7917 0.4582
FM 0.8142 0.8075 0.8075 0.4441
FFM 0.8230 0.8103 0.8103 0.4414
FwFM 0.8191 0.8092 0.8092 0.4426
FvFM 0.8192 0.8102 0.8101 0.4417
FmFM 0.8183 0.8109 0.8109 0.4410
Deep & Cross 0.8244 0.8118 0.8118 0.4413
Wide & Deep - - 0.7981 0.4677
DeepFM - - 0.8007 0.4508
xDeepFM - - 0.8052 0.4418
AutoInt - - 0.8061 0.4454
FiBiNET - - 0.8103 0.4423
DeepLight - - 0.8123 0.4395
"""
TABLE_7 = """
LR 0.7526 0.7521 0.7517 0.3953
FM 0.7744 0.7696 0.7695 0.3857
FFM 0.8012 0.7761 0.7761 0.3826
FwFM 0.7822 0.7730 0.7731 0.3835
FvFM 0.7836 0.7732 0.7733 0.3834
FmFM 0.7943 0.7764 0.7763 0.3822
Deep & Cross 0.8109 0.7825 0.7826 0.3791
AutoInt - - 0.7752 0.3823
Fi-GNN - - 0.7762 0.3825
FGCNN+IPNN - - 0.7883 0.3746
DeepLight - - 0.7897 0.3748
"""
TABLE_8 = """
Full 16 100% 24531 100% 0.8109 0.4410
99% 10.56 66.0% 12884 52.5% 0.8109 0.4410
97% 8.69 54.3% 10280 41.9% 0.8107 0.4411
95% 7.72 48.2% 8960 36.5% 0.8108 0.4411
90% 6.26 39.1% 7202 29.4% 0.8103 0.4415
85% 3.82 23.9% 4716 19.2% 0.8084 0.4432
80% 3.36 21.0% 4392 17.9% 0.8080 0.4436
"""


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


@pytest.mark.parametrize(("log", "table"), [("criteo", TABLE_6), ("avazu", TABLE_7)])
def test_published_quality(log, table):
    rows = [
        " ".join([row.title, *(shown(value) for value in (row.train, row.validation, row.test, row.log_loss))])
        for row in published.QUALITY[log]
    ]
    assert rows == table.split("\n")[1:-1]


def test_published_smaller_models():
    for row, line in zip(published.SHRUNK, TABLE_8.split("\n")[1:-1], strict=True):
        name, dimension, of_16, flops, of_full, auc, loss = line.split()
        assert name == ("Full" if row.variance is None else f"{row.variance:.0%}")
        assert (float(dimension), int(flops)) == (row.dimension, row.flops)
        assert (auc, loss) == (shown(row.auc), shown(row.log_loss))
        assert float(of_16[:-1]) == pytest.approx(100 * row.dimension / published.K, abs=0.06)
        assert float(of_full[:-1]) == pytest.approx(100 * row.flops / published.CACHED, abs=0.06)
    assert round(sum(CRITEO_DIMS) / 39, 2) == published.SHRUNK[3].dimension


def test_published_samples_and_counts():
    criteo, avazu = published.SAMPLES["criteo"], published.SAMPLES["avazu"]
    assert (criteo.rows, avazu.rows) == (45_840_617, 40_428_967)
    assert criteo.features == sum(CRITEO_FIELD_SIZES) == 1_327_180
    assert (criteo.fields, avazu.fields, avazu.features) == (39, 23, 1_544_257)
    assert published.PARAMETERS == {"lr": 1.33, "poly2": 45, "fm": 14.63, "fwfm": 14.63, "fmfm": 14.63, "ffm": 859.18}
    shallow = {"lr": "78", "poly2": "1,560", "fm": "1,920", "fwfm": "25,272", "ffm": "24,531", "fmfm": "403,923"}
    deep = {"widedeep": "500,000", "dcn": "510,000", "deepfm": "246,000", "xdeepfm": "150,000,000"}
    deep |= {"autoint": "28,000,000", "fibinet": "10,000,000", "deeplight": "102,000"}
    assert {name: f"{count:,}" for name, count in published.OPERATIONS.items()} == shallow | deep
    assert (published.CACHED, published.CACHED_SHRUNK) == (24_531, 8_960)


def test_contradictions_name_the_figures():
    expected = [
        ("14.63 M", "K = 10", "1.33 M", "14.60 M", "22.56 M", "859.18 M", "K = 17", "808.25 M", "22.75 M"),
        ("2n = 78", "n = 39", "8,960", "8,999"),
        ("DeepFM (246,000)", "Wide & Deep (500,000)"),
        ("510,000", "634,176", "2n²K² = 778,752", "20,400", "489,600"),
        ("0.0074", "FM's is 0.0067"),
        ("8,960", "LR 78, Poly2 1,560, FM 1,920"),
        ("almost 20 times", "16.5"),
    ]
    for text, figures in zip(contradictions("criteo"), expected, strict=True):
        assert [figure for figure in figures if figure not in text] == []
    loss, gap = contradictions("avazu")
    assert "FGCNN+IPNN's is 0.3746" in loss
    assert (
        "it is 0.0180, and only that of FFM is higher: FM 0.0049, FwFM 0.0091, FvFM 0.0103, FmFM 0.0180, FFM 0.0251"
        in gap
    )


def test_fm2_counts_what_the_paper_counts():
    """Tables 1, 2 and 4 without training: the counts of fm2 next to the published ones."""
    for _, interaction, of_paper, degree, paper in costs.freedom().rows:
        assert (interaction, degree) == (of_paper.lower(), paper)
    parameters = {row[0]: row for row in costs.parameters([], {}).rows}
    assert [parameters[name][3] for name in ("LR", "FM", "FmFM")] == ["1,327,180", "22,562,060", "22,751,756"]
    assert (parameters["Poly2"][2], parameters["FFM"][3]) == ("45.00 M", "808,252,620")
    operations = {row[0]: row[1:] for row in costs.operations([], []).rows}
    for name in ("LR", "Poly2", "FM", "FwFM", "FFM", "FmFM", "FmFM, cached", "FmFM, cached, 95% of the variance"):
        _, _, paper, counted, trained = operations[name]
        assert (counted, trained) == (paper, "")
    formulas = {name: row[1] for name, row in operations.items() if row[1]}
    assert formulas == {
        "Wide & Deep": "492,642",
        "Deep & Cross": "1,268,352",
        "DeepFM": "492,642",
        "xDeepFM": "149,760,000",
        "AutoInt": "27,456,000",
        "FiBiNET": "10,753,152",
        "DeepLight": "102,787",
    }


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return fm2.generate(tmp_path_factory.mktemp("log") / "train.tsv.gz", 1500, features=300).path


@pytest.fixture
def quick(write):
    return str(write("quick.toml", "epochs = 1\nevaluations_per_epoch = 1\nbatch_size = 256\n"))


def test_tables_of_criteo(log, quick, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["reproduce", "criteo", str(log), "--out", str(out), "--threads", "1"]
    assert main([*command, "--models", "fmfm,lr,fm", "--settings", quick]) == 0
    page = capsys.readouterr().out
    assert "1,500 of the paper's 45,840,617 rows (0.0%); figures from a sample are not comparable" in page
    for text in (
        "with fm2's defaults and changed settings",
        "Changed settings: epochs = 1, evaluations_per_epoch = 1, batch_size = 256.",
        "still improving at the last epoch of lr-0, fm-0, fmfm-0; raise epochs in a file for --settings, and use",
        "Trained with a vector per field besides the formula's weight per feature: FM.",
        "## Table 3: dimensions",
        "## Settings",
        "## Contradictions in the paper",
        "## Differences from the authors' code",
    ):
        assert text in page
    lines = {line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("|")}
    assert "1,327,180" in lines["features"]
    assert [line.count("8,960 (36.5%)") for line in page.splitlines() if line.startswith("| 95% ")] == [1, 0]
    freedom, parameters, operations, quality, _ = [line for line in page.splitlines() if line.startswith("| FM ")]
    assert "constant" in freedom
    assert "14.63 M" in parameters
    assert operations.count("1,920") == 3  # published, counted and trained
    assert "0.8075" in quality
    assert "1 of 1" in quality
    assert (out / "reproduction.md").read_text().strip() in page
    record = json.loads((out / "reproduction.json").read_text())
    assert [table["title"][:7] for table in record["tables"]] == [f"Table {n}" for n in (1, 2, 3, 4, 5, 6, 6, 8, 8)]
    differences = record["tables"][6]
    assert differences["title"] == "Table 6: differences from the best model"
    assert [row[0] for row in differences["rows"]] == ["LR", "FM", "FmFM"]
    assert all("[" in cell or cell == "best*" for row in differences["rows"] for cell in row[1:])
    assert differences["notes"][0] == "\\* best, or no significant difference from the best."
    assert record["changed"] == {"": {"epochs": 1, "evaluations_per_epoch": 1, "batch_size": 256}}
    assert record["settings"]["fm-0"]["linear"] == "both"
    assert len(record["settings"]["variance-0.95"]["dim"]) == 39
    check_page(out / "reproduction.html", record)
    settings = read_settings(out / "compare" / "fmfm-0" / "settings.toml")
    assert (settings["dim"], settings["epochs"]) == (16, 1)

    before = (out / "compare" / "lr-0" / "model.safetensors").stat().st_mtime_ns
    assert main([*command, "--resume", "--json"]) == 0  # remembers the models and tables
    assert json.loads(capsys.readouterr().out) == record
    assert (out / "compare" / "lr-0" / "model.safetensors").stat().st_mtime_ns == before
    for options, message in (
        ([], "already exists; use --resume to continue it or --overwrite to replace it"),
        (["--resume", "--protocol", "paper"], "not of criteo"),
    ):
        assert main([*command, *options]) == 1
        assert message in capsys.readouterr().err


def check_page(path, record):
    """The page has every table, figures 6 to 8 with the published points, and loads nothing."""
    html = path.read_text()
    for title in [table["title"] for table in record["tables"]]:
        assert f"<h2>{title}</h2>" in html
    assert html.count("heat map of 39 by 39 fields") == 3  # information, and the cross dimensions of fm2 and the paper
    assert "C3 × C15: 2 dimensions" in html  # fields 16 and 28 of the paper's table 3
    charts = [part.partition('"')[0] for part in html.split('aria-label="AUC against FLOPs: ')[1:]]
    assert [chart.count("fmfm") for chart in charts] == [1, 1]
    assert "deeplight 0.8123" in charts[1]
    assert "<script" not in html


def test_the_protocol_of_the_authors(log, tmp_path):
    models = "lr,fvfm,fmfm,dcn"
    done = fm2.reproduce(
        "criteo", log, tmp_path / "out", protocol="authors", models=models, tables=[5, 6], threads=1, epochs=1
    )
    used = {row: read_settings(done.path / "compare" / f"{row}-0" / "settings.toml") for row in done.models}
    for settings in used.values():
        assert (settings["optimizer"], settings["metric"], settings["l2"]) == ("dense_adam", "auc", 1e-5)
    assert used["fmfm"]["dense_l2"] == 1e-5
    assert [used[name][key] for name in ("fvfm", "fmfm") for key in ("linear_std", "matrix_std")] == [1, 1, 1, 0.01]
    assert (used["dcn"]["hidden"], used["dcn"]["cross_layers"]) == ([624] * 4, 4)
    assert done.changed == {"": {"epochs": 1}}
    dataset = fm2.Dataset.open(done.path / "data")
    assert not any(b"" in vocabulary.values() for vocabulary in dataset.vocabularies)
    assert "missing value" not in "\n".join(done.tables[0].lines())
    assert "with the settings of the authors' code and changed settings" in done.lines()[0]
    assert len(differences("authors")) < len(differences("paper"))
    assert [field.missing_is_unknown for field in schema_of("criteo", "paper").fields] == [False] * 39


def test_tables_that_need_no_training(log, tmp_path):
    done = fm2.reproduce("criteo", log, tmp_path / "out", tables=[1, 2, 3, 4], threads=1)
    assert [table.title[:7] for table in done.tables] == ["Table 1", "Table 2", "Table 3", "Table 4"]
    assert not (done.path / "compare").exists()
    assert "deeplight 0.8123" in (done.path / "reproduction.html").read_text()


def test_the_protocol_of_the_paper(log, tmp_path):
    settings = {"threads": 1, "epochs": 1, "patience": 3, "model_settings": {"lr": {"patience": 2}}}
    done = fm2.reproduce(
        "criteo", log, tmp_path / "out", protocol="paper", models="fwfm,dcn,lr", tables=[5, 6], **settings
    )
    used = {name: read_settings(done.path / "compare" / f"{name}-0" / "settings.toml") for name in done.models}
    for name in ("lr", "fwfm", "dcn"):
        expected = {
            "optimizer": "adam",
            "learning_rate": 1e-4,
            "batch_size": 1024,
            "l2": 1e-5,
            "ema_decay": 0.0,
            "epochs": 1,
        }
        assert {key: used[name][key] for key in expected} == expected
    assert (used["fwfm"]["linear"], used["fwfm"]["matrix_std"], used["fwfm"]["dim"]) == ("fields", 1.0, 16)
    assert used["dcn"]["hidden"] == [200, 200, 200]
    assert [used[name]["patience"] for name in ("lr", "fwfm")] == [
        2,
        3,
    ]  # its own setting overrides the common one
    assert done.changed == {"": {"epochs": 1, "patience": 3}, "lr": {"patience": 2}}
    dataset = fm2.Dataset.open(done.path / "data")
    assert dataset.manifest["settings"]["vocabulary"] == "all"
    assert {field.min_count for field in dataset.schema.fields if field.kind == "numeric"} == {1}
    again = fm2.reproduce("criteo", log, done.path, protocol="paper", models="fm", resume=True)
    assert again.models == ["lr", "fm", "fwfm", "dcn"]
    used = read_settings(done.path / "compare" / "fm-0" / "settings.toml")
    assert (used["epochs"], used["threads"], used["linear"], used["dim"]) == (
        1,
        1,
        "features",
        16,
    )  # like the other models


def test_adding_a_table_adds_its_models(log, tmp_path):
    options = {"threads": 1, "epochs": 1, "evaluations_per_epoch": 1}
    assert fm2.reproduce("criteo", log, tmp_path / "out", tables=[5], **options).models == ["fmfm"]
    done = fm2.reproduce("criteo", log, tmp_path / "out", tables=[5, 6], resume=True, **options)
    assert done.models == ["lr", "fm", "ffm", "fwfm", "fvfm", "fmfm", "dcn"]
    assert [table.title[:7] for table in done.tables] == ["Table 5", "Table 6", "Table 6"]


def test_table_8_uses_all_seeds_that_did_not_fail(log, tmp_path, monkeypatch):
    train = comparing.train

    def failing_train(model, *arguments, seed, **options):
        if (model, seed) == ("fmfm", 0):
            raise Fm2Error("no memory")
        return train(model, *arguments, seed=seed, **options)

    monkeypatch.setattr(comparing, "train", failing_train)
    options = {"threads": 1, "epochs": 1, "evaluations_per_epoch": 1, "dim": 2}
    done = fm2.reproduce("criteo", log, tmp_path / "out", models="fmfm", tables=[8], seeds=3, **options)
    assert [row["run"] for row in done.failed] == ["fmfm-0"]
    table, differences = done.tables
    of_seeds = [
        json.loads((done.path / name / "table.json").read_text()) for name in ("shrink-fmfm-1", "shrink-fmfm-2")
    ]
    assert [rows[0]["run"][-6:] for rows in of_seeds] == ["fmfm-1", "fmfm-2"]
    for row, *measured in zip(table.rows, *of_seeds, strict=True):
        losses = [each["log_loss"] for each in measured]
        assert row[7] == f"{np.mean(losses):.5f} ± {np.std(losses, ddof=1):.5f}"
        assert row[1] == f"{np.mean([each['dimension'] for each in measured]):.2f}"
    assert differences.title == "Table 8: differences from the full model"
    assert [row[0] for row in differences.rows] == ["full", "99%", "97%", "95%", "90%", "85%", "80%"]
    assert all("[" in cell for row in differences.rows[1:] for cell in row[1:])
    assert "and 2 seeds" in differences.notes[1]
    assert {"shrink-fmfm-1/variance-0.95", "shrink-fmfm-2/variance-0.95"} <= done.settings.keys()
    monkeypatch.undo()
    resumed = fm2.reproduce("criteo", log, tmp_path / "out", models="fmfm", tables=[8], seeds=3, resume=True)
    assert not resumed.failed
    assert (resumed.path / "shrink" / "table.json").is_file()  # of the first seed


def test_a_sample_of_avazu(tmp_path):
    names = [
        "id",
        "click",
        "hour",
        "C1",
        "banner_pos",
        "site_id",
        "site_domain",
        "site_category",
        "app_id",
        "app_domain",
    ]
    names += ["app_category", "device_id", "device_ip", "device_model", "device_type", "device_conn_type"]
    names += [f"C{number}" for number in range(14, 22)]
    rows = [
        [str(i), str(i % 3 // 2), f"1410{21 + i % 7}{i % 24:02}", *(str(i * i % 5) for _ in names[3:])]
        for i in range(600)
    ]
    path = tmp_path / "avazu.csv.gz"
    path.write_bytes(gzip.compress("\n".join(",".join(row) for row in [names, *rows]).encode()))
    done = fm2.reproduce("avazu", path, tmp_path / "out", models=["fmfm"], threads=1, epochs=1)
    page = "\n".join(done.lines())
    assert "600 of the paper's 40,428,967 rows" in page
    assert "Table 7: models on Avazu" in page
    assert "Table 8:" not in page
    assert "Figure 8" in (done.path / "reproduction.html").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": "lr,fignn"}, "the paper's tables for criteo have no model 'fignn'"),
        ({"models": "lr"}, "table 8 requires the model fmfm; add it to models=, or omit table 8"),
        ({"tables": [7]}, "table 7 is not a table of criteo; choose from 1, 2, 3, 4, 5, 6, 8"),
        ({"protocol": "mine"}, "unknown protocol 'mine'; choose one of fm2, paper, authors"),
        ({"source": "nowhere.txt"}, r"file not found: .*nowhere\.txt"),
    ],
)
def test_invalid_arguments_are_errors_before_any_work(log, tmp_path, options, message):
    with pytest.raises(Fm2Error, match=message):
        fm2.reproduce("criteo", out=tmp_path / "none", **{"source": log, **options})
    assert not (tmp_path / "none").exists()
