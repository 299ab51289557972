"""A model in one file: its torch module and its declaration. Registered, it is a model like any other."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.helpers.planted import QUICK, planted
from torch import Tensor, nn

import fm2
from fm2 import Fm2Error
from fm2.artifacts.settings import Settings
from fm2.cli.main import main
from fm2.engine.inspect import inspect
from fm2.models import FlatEmbedding, GatheredModel, ModelSpec, Option, build, get_spec, register
from fm2.models.embedding import per_field
from fm2.models.initial import Seed, fill_normal, generator
from fm2.models.registry import model_names, specs, unregister
from fm2.training.run import Run

TOY = {**QUICK, "threads": 1, "dim": 4, "hidden_units": 6, "learning_rate": 0.01, "dense_learning_rate": 0.01}


class Toy(GatheredModel):
    """A weight per feature and one hidden layer on the embeddings."""

    def __init__(self, field_sizes, dims=4, *, hidden_units=8, embedding_std=0.1, seed: Seed = 0) -> None:
        dims = per_field(dims, len(field_sizes), "toy")
        super().__init__(
            {
                "field_sizes": list(field_sizes),
                "dims": list(dims),
                "hidden_units": hidden_units,
                "embedding_std": embedding_std,
            }
        )
        self.embedding = FlatEmbedding(field_sizes, dims)
        self.linear = FlatEmbedding(field_sizes, 1)
        self.hidden = nn.Parameter(torch.zeros(self.embedding.width, hidden_units))
        self.output = nn.Parameter(torch.zeros(hidden_units))
        for parameter, scale in ((self.embedding.weight, embedding_std), (self.hidden, 0.5), (self.output, 0.5)):
            fill_normal(parameter, scale, generator(seed))

    def score(self, embedding: Tensor | None = None, linear: Tensor | None = None) -> Tensor:
        return self.bias + linear.sum(1) + torch.relu(embedding @ self.hidden) @ self.output

    def flops(self) -> int:
        return 2 * len(self.field_sizes) + 2 * self.hidden.numel() + 2 * self.output.numel()


TOY_SPEC = ModelSpec(
    "toy",
    "Toy",
    "a weight per feature and one hidden layer",
    source="this test",
    torch_class=f"{__name__}:Toy",
    options=(Option("hidden_units", int, 8, "width of the hidden layer", 1),),
    settings=("dim", "embedding_std", "dense_learning_rate", "learning_rate_scale", "dropout", "field_dropout"),
)


@pytest.fixture(autouse=True)
def toy():
    register(TOY_SPEC)
    yield
    unregister("toy")


def test_it_is_trained_evaluated_saved_and_reloaded(dataset, tmp_path):
    run = fm2.train("toy", dataset, tmp_path / "run", **{**TOY, "epochs": 6})
    assert isinstance(run.model, Toy)
    assert run.model.config["hidden_units"] == 6
    assert run.metrics["auc"] > 0.6
    ids = np.array(dataset.test.ids)
    with torch.no_grad():
        expected = torch.sigmoid(run.model(torch.from_numpy(ids))).numpy()
    np.testing.assert_allclose(run.probabilities(ids), expected, rtol=1e-5)
    again = Run.open(tmp_path / "run", threads=1)
    assert again.evaluate(dataset) == run.evaluate(dataset)
    np.testing.assert_array_equal(again.predict(planted(50, seed=3)), run.predict(planted(50, seed=3)))
    assert inspect(run.path)["parameters"] == run.model.n_parameters
    assert inspect(run.path)["flops"] == {"network": run.model.flops()}


def test_it_is_interrupted_resumed_and_trained_further(dataset, tmp_path):
    def interrupt(progress):
        if progress.begun == 0 and progress.rows > 3000:
            raise KeyboardInterrupt

    whole = fm2.train("toy", dataset, tmp_path / "whole", **TOY)
    with pytest.raises(KeyboardInterrupt):
        fm2.train("toy", dataset, tmp_path / "parts", callback=interrupt, **TOY)
    parts = fm2.train("toy", dataset, tmp_path / "parts", resume=True)
    np.testing.assert_array_equal(parts.predict(planted(50)), whole.predict(planted(50)))
    further = fm2.train("toy", dataset, tmp_path / "further", start=whole, epochs=1)
    assert further.model.config["hidden_units"] == 6
    with pytest.raises(Fm2Error, match="the model to start from has hidden_units 6, not 7"):
        fm2.train("toy", dataset, tmp_path / "other", start=whole, hidden_units=7)


def test_it_is_compared_with_others(dataset, tmp_path):
    settings = {"toy": {"hidden_units": 6}}
    table = fm2.compare(dataset, tmp_path / "table", "lr,toy", model_settings=settings, threads=1, **QUICK)
    assert [row["model"] for row in table.rows] == ["lr", "toy"]
    assert not table.failed
    assert table.rows[1]["flops"] == Run.open(tmp_path / "table" / "toy-0").model.flops()
    assert 0.5 < table.rows[1]["auc"] <= 1


def test_the_command_line_lists_and_trains_it(dataset, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["models"]) == 0
    assert "Toy: a weight per feature and one hidden layer" in capsys.readouterr().out
    assert main(["models", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[-1] == {
        "name": "toy",
        "title": "Toy",
        "summary": "a weight per feature and one hidden layer",
        "source": "this test",
        "own_dims": True,
        "deep": True,
    }
    command = ["train", "toy", str(dataset.path), "--out", str(tmp_path / "run"), "--epochs", "1", "--dim", "2,1,3,2"]
    assert main([*command, "--hidden-units", "5", "--threads", "1"]) == 0
    config = Run.open(tmp_path / "run").model.config
    assert config["dims"] == [2, 1, 3, 2]
    assert config["hidden_units"] == 5
    with pytest.raises(SystemExit, match="0"):
        main(["train", "--help"])
    assert "width of the hidden layer (toy)" in capsys.readouterr().out
    assert main(["completion", "bash"]) == 0
    assert "--hidden-units" in capsys.readouterr().out


def test_it_has_a_classifier():
    rows = planted(600)
    classifier = fm2.ToyClassifier(hidden_units=5, epochs=2, threads=1)
    classifier.fit(rows.drop("click"), rows["click"].to_numpy())
    assert isinstance(classifier.run_.model, Toy)
    assert classifier.predict_proba(rows.drop("click")).shape == (600, 2)
    assert "hidden_units`` (8): width of the hidden layer" in type(classifier).__doc__
    assert "ToyClassifier" in dir(fm2)
    assert hasattr(classifier, "compile")


def test_it_is_compiled(dataset, tmp_path):
    run = fm2.train("toy", dataset, tmp_path / "run", **{**TOY, "epochs": 1})
    fm2.compile(tmp_path / "run", tmp_path / "model.fm2")
    ids = np.array(dataset.test.ids)
    np.testing.assert_allclose(fm2.load(tmp_path / "model.fm2").logits(ids), run.logits(ids), atol=1e-5)


def test_a_model_whose_linear_weights_are_not_just_added_cannot_be_compiled(dataset, tmp_path, monkeypatch):
    fm2.train("toy", dataset, tmp_path / "run", **{**TOY, "epochs": 1})
    monkeypatch.setattr(Toy, "score", lambda self, embedding, linear: self.bias + linear.square().sum(1))
    reason = "toy cannot be compiled: its logit is not the sum of linear weights and a function of embeddings"
    with pytest.raises(Fm2Error, match=reason):
        fm2.compile(tmp_path / "run", tmp_path / "model.fm2")


def test_a_model_may_declare_that_it_cannot_be_compiled(dataset, tmp_path):
    unregister("toy")
    register(replace(TOY_SPEC, compile_plan=None))
    fm2.train("toy", dataset, tmp_path / "run", **{**TOY, "epochs": 1})
    with pytest.raises(Fm2Error, match="toy cannot be compiled"):
        fm2.compile(tmp_path / "run", tmp_path / "model.fm2")


def test_names_are_unique_and_misspelled_ones_get_a_suggestion():
    with pytest.raises(Fm2Error, match=r"register: the model 'toy' \(Toy\) already exists"):
        register(TOY_SPEC)
    with pytest.raises(Fm2Error, match=r"train: unknown model 'tyo'; did you mean 'toy'\?"):
        get_spec("tyo", "train")
    with pytest.raises(Fm2Error, match=r"Other has no ModelSpec; pass one to fm2.models.registry.register"):
        type("Other", (GatheredModel,), {"score": Toy.score})({"field_sizes": [2]})


def test_a_model_without_a_declaration_is_forgotten():
    assert model_names()[-1] == "toy"
    unregister("toy")
    with pytest.raises(Fm2Error, match="unknown model 'toy'"):
        build({"model": "toy", "field_sizes": [2, 2]})
    register(TOY_SPEC)


@pytest.mark.parametrize("spec", specs(), ids=lambda spec: spec.name)
def test_declarations_and_modules_agree(spec):
    """Settings build the module that is declared, and counts from its config are those of the module."""
    sizes = [5, 7, 3]
    model = build(spec.config(Settings.of(spec.name).to_dict(), sizes))
    assert model.spec is spec
    assert model.field_sizes == sizes
    assert isinstance(model, GatheredModel) == (spec.forward_backward is not None)
    assert {**spec.shape(model.config), **Settings.of(spec.name).used()} == Settings.of(spec.name).used()
    if spec.count_parameters is not None:
        assert spec.count_parameters(model.config) == model.n_parameters
    if spec.dimensions == "per_field":
        own = build({**model.config, "dims": [2, 1, 3]})
        assert spec.dims(own.config) == [2, 1, 3]
    elif spec.dimensions == "equal":
        with pytest.raises(Fm2Error, match="dimension"):
            build({**model.config, "dims": [2, 1, 3]})


def test_only_declarations_and_published_tables_name_models():
    """Everything else asks a model's declaration, so a new model changes no other file."""
    source = Path(fm2.__file__).parent
    published = {source / "studies" / "reproduction" / name for name in ("published.py", "protocol.py")}
    published.add(source / "studies" / "reproduction" / "contradictions.py")
    names = set(model_names()) - {"lr"}  # torch's optimizers call the learning rate lr
    found = [
        f"{path.relative_to(source)}:{node.lineno} {node.value}"
        for path in source.rglob("*.py")
        if path.parent != source / "models" / "specs" and path not in published
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names
    ]
    assert not found
