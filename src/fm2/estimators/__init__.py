"""The scikit-learn interface: a classifier for every model, generated from its declaration.

>>> from fm2.estimators import DeepFMClassifier
>>> DeepFMClassifier(hidden=[32], epochs=5).model
'deepfm'
"""

from __future__ import annotations

import dataclasses
from typing import Any

from fm2.artifacts.settings import Settings
from fm2.estimators.classifier import Classifier
from fm2.models.registry import specs
from fm2.models.spec import ModelSpec

__all__ = ["Classifier", "classifiers", "make_classifier"]

_EXAMPLES = {
    "FmFMClassifier": """
    >>> import polars
    >>> X = polars.DataFrame({"site": ["a", "b", "a", "b"] * 25, "ad": ["x", "x", "y", "y"] * 25})
    >>> y = ["click", "none"] * 50
    >>> classifier = FmFMClassifier(dim=2, epochs=5, learning_rate=0.05).fit(X, y)
    >>> classifier.predict(polars.DataFrame({"site": ["a", "b"], "ad": ["x", "new"]})).tolist()
    ['click', 'none']
    """
}


def make_classifier(spec: ModelSpec) -> type[Classifier]:
    """Create the classifier of a model, with the settings and options that the model uses as parameters."""
    name = f"{spec.class_name}Classifier"
    parameters = [*spec.settings, *spec.option_names]
    return dataclasses.make_dataclass(
        name,
        [(parameter, Any, dataclasses.field(default=None)) for parameter in parameters],
        bases=(Classifier,),
        namespace={"model": spec.name, "__doc__": _docstring(spec, name), "__module__": __name__},
        kw_only=True,
        eq=False,
        repr=False,
    )


def _docstring(spec: ModelSpec, name: str) -> str:
    defaults = spec.default_settings()
    options = [f"    - ``{option.name}`` ({defaults[option.name]}): {option.help}" for option in spec.options]
    settings = [f"``{setting}`` ({defaults.get(setting, getattr(Settings, setting))})" for setting in spec.settings]
    parts = [f"{spec.title}: {spec.summary} ({spec.source})."]
    if settings:
        parts.append(f"    Beyond the parameters of :class:`Classifier` it has {', '.join(settings)}.")
    if options:
        parts.append("    Options of the model, with their defaults:\n\n" + "\n".join(options))
    return "\n\n".join(parts) + "\n" + _EXAMPLES.get(name, "    ")


def classifiers() -> dict[str, type[Classifier]]:
    """Return the classifiers of all models by name."""
    return {name: __getattr__(name) for name in (f"{spec.class_name}Classifier" for spec in specs())}


def __getattr__(name: str) -> Any:
    """Create a classifier when it is first used; this includes models that were registered later."""
    for spec in specs():
        if name == f"{spec.class_name}Classifier":
            if name not in globals():
                globals()[name] = make_classifier(spec)
            return globals()[name]
    raise AttributeError(f"module 'fm2.estimators' has no attribute '{name}'")


classifiers()  # so that doctest and help() find the built-in ones
