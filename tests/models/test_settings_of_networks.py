"""Options of networks on the command line and in settings files."""

from __future__ import annotations

import json
import tomllib

import pytest
from tests.helpers.planted import QUICK
from tests.helpers.processes import run_python

from fm2 import Fm2Error
from fm2.artifacts.settings import Settings, read_changes
from fm2.cli.main import main
from fm2.models.registry import specs
from fm2.training.run import Run

FAST = ["--epochs", "1", "--batch-size", "64", "--evaluations-per-epoch", "1", "--threads", "1"]


def test_options_become_settings_and_shape_the_model(dataset, tmp_path, capsys):
    out = tmp_path / "run"
    options = ["--hidden", "8,4", "--batch-norm", "--activation", "gelu", "--network-dropout", "0.1", "--dim", "3"]
    assert main(["train", "deepfmfm", str(dataset.path), "--out", str(out), *FAST, *options, "--linear", "both"]) == 0
    wanted = {"hidden": [8, 4], "batch_norm": True, "activation": "gelu", "network_dropout": 0.1, "linear": "both"}
    written = tomllib.loads((out / "settings.toml").read_text())
    config = Run.open(out).model.config
    for name, value in wanted.items():
        assert written[name] == config[name] == value
    settings = tmp_path / "mine.toml"
    settings.write_text('model = "deepfmfm"\nhidden = [5]\nbatch_norm = false\n')
    assert read_changes(settings, "deepfmfm") == {"hidden": [5], "batch_norm": False}
    capsys.readouterr()
    assert main(["inspect", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["flops"]["network"] == Run.open(out).model.flops()


@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        ("deepfm", {"hidden": [0]}, r"hidden must be a list of integers between 1 and 65536, got \[0\]"),
        ("deepfm", {"hidden": 8}, "hidden must be a list .*, got 8"),
        ("deepfm", {"batch_norm": 1}, "batch_norm must be true or false, got 1"),
        ("deepfm", {"activation": "step"}, "activation must be one of relu, gelu, silu, tanh, got 'step'"),
        ("deepfm", {"network_dropout": 1.5}, "network_dropout must be a number between 0.0 and 0.99, got 1.5"),
        ("deepfm", {"weight_decay": -1}, "weight_decay must be a number between 0.0 and .*, got -1"),
        ("deepfm", {"linear": "both"}, "deepfm does not use linear; it applies to fm, .*"),
        ("fmfm", {"hidden": [8]}, "fmfm does not use hidden; it applies to .*deepfm.*"),
        ("fmfm", {"weight_decay": 0.1}, "fmfm does not use weight_decay; it applies to networks"),
        ("deepfm", {"hiden": [8]}, r"unknown setting 'hiden'; did you mean 'hidden'\?"),
        ("deepfn", {}, r"unknown model 'deepfn'; did you mean 'deepfm'\?"),
    ],
)
def test_invalid_settings_raise_errors(model, changes, message):
    with pytest.raises(Fm2Error, match=message):
        Settings.of(model, **changes)


def test_hidden_none_means_no_hidden_layer(capsys, dataset, tmp_path):
    assert (
        main(["train", "widedeep", str(dataset.path), "--out", str(tmp_path / "run"), *FAST, "--hidden", "none"]) == 0
    )
    assert Run.open(tmp_path / "run").model.config["hidden"] == []
    with pytest.raises(SystemExit):
        main(["train", "widedeep", "data", "--out", "run", "--hidden", "wide"])
    assert "expected integers like 400,400, or none, got 'wide'" in capsys.readouterr().err


def test_a_warm_start_keeps_the_shape(dataset, tmp_path):
    from fm2.training.train import train

    settings = {**QUICK, "threads": 1, "hidden": [6], "epochs": 1}
    start = train("deepfm", dataset, tmp_path / "start", **settings)
    with pytest.raises(Fm2Error, match=r"has hidden \[6\], not \[7\]"):
        train("deepfm", dataset, tmp_path / "on", start=start, hidden=[7])
    on = train("deepfm", dataset, tmp_path / "on", start=start, **{**settings, "network_dropout": 0.2})
    assert on.model.config["hidden"] == [6]
    assert on.model.config["network_dropout"] == 0.2


def test_the_command_line_lists_models_without_torch():
    done = run_python(
        "import sys, fm2.cli.main; fm2.cli.main.COMMANDS['train'].arguments(); print('torch' in sys.modules)"
    )
    assert done.stdout.strip() == "False", done.stderr
    assert all(spec.summary for spec in specs())
