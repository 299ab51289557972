"""The registry of models: the declarations in ``fm2.models.specs``, and those that a program adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fm2.errors import Fm2Error, suggest
from fm2.models.choices import Interaction
from fm2.models.spec import ModelSpec
from fm2.models.specs import BUILT_IN

if TYPE_CHECKING:
    from fm2.models.base import Model
    from fm2.models.initial import Seed

_SPECS: dict[str, ModelSpec] = {spec.name: spec for spec in BUILT_IN}


def register(spec: ModelSpec) -> ModelSpec:
    """Add a model, after which it can be trained, compared, saved and loaded like any other.

    Importing the file that calls ``register`` is all it takes; see ``tests/models/test_registry.py`` for a complete
    example.
    """
    for other in _SPECS.values():
        if spec.name == other.name or spec.class_name == other.class_name:
            raise Fm2Error(f"register: the model '{other.name}' ({other.class_name}) already exists")
    _SPECS[spec.name] = spec
    return spec


def unregister(name: str) -> None:
    """Remove a model."""
    del _SPECS[get_spec(name, "unregister").name]


def get_spec(name: str, operation: str = "get_spec") -> ModelSpec:
    """Return the declaration of a model.

    >>> get_spec("deepfm").summary
    'an FM and a multi-layer perceptron that share their embeddings'
    """
    if not is_model(name):
        raise Fm2Error(f"{operation}: unknown model '{name}'; {suggest(str(name), _SPECS)}")
    return _SPECS[name]


def specs() -> list[ModelSpec]:
    """Return all declarations: the paper's models in its order, the networks, then those that were added."""
    return list(_SPECS.values())


def model_names(deep: bool | None = None) -> list[str]:
    """Return the names of all models, or of the deep or shallow ones only.

    >>> model_names(deep=False)
    ['lr', 'poly2', 'fm', 'ffm', 'fwfm', 'fvfm', 'fmfm']
    """
    return [spec.name for spec in specs() if deep is None or spec.deep == deep]


def is_model(name: object) -> bool:
    """Return whether there is a model of this name."""
    return isinstance(name, str) and name in _SPECS


def models_that_take(setting: str) -> list[str]:
    """Return the names of the models that use an optional setting or have an option of this name."""
    return [spec.name for spec in specs() if spec.takes(setting)]


def spec_of_class(model: type) -> ModelSpec:
    """Return the declaration of a torch class, or of the nearest class that it inherits from."""
    declared = {spec.torch_class: spec for spec in specs()}
    for base in model.__mro__:
        if f"{base.__module__}:{base.__qualname__}" in declared:
            return declared[f"{base.__module__}:{base.__qualname__}"]
    raise Fm2Error(f"register: {model.__name__} has no ModelSpec; pass one to fm2.models.registry.register")


def spec_of_interaction(interaction: Interaction) -> ModelSpec:
    """Return the factorization machine whose fields interact in this way."""
    return next(spec for spec in specs() if spec.interaction == interaction)


def build(config: Mapping[str, Any], seed: Seed = 0) -> Model:
    """Construct a model from its ``config``; with ``seed=None`` all weights are zero, to be loaded later.

    >>> model = build({"model": "fmfm", "field_sizes": [5, 6], "dims": [2, 3]})
    >>> build(model.config).config == model.config
    True
    """
    spec = get_spec(config.get("model", ""), "build")
    arguments = {key: value for key, value in config.items() if key != "model"}
    try:
        spec.check_options(config)
        model: Model = spec.load()(**arguments, seed=seed)
    except (TypeError, ValueError) as error:
        raise Fm2Error(f"build: invalid config for {spec.name}: {error}") from error
    return model
