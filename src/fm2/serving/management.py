"""Management calls, which the keeper executes: load and unload models, direct traffic, change catalogs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fm2.engine.scorer import Scorer
from fm2.errors import Fm2Error, suggest
from fm2.serving.catalogs import Catalogs, read_items
from fm2.serving.logs import Log
from fm2.serving.memory import Memory, restore_models
from fm2.serving.repository import Repository
from fm2.serving.settings import Settings, Traffic
from fm2.serving.sources import check_name
from fm2.serving.state import ModelState, State

Result = tuple[bool, Any]  # whether the state has changed, and the answer


class Management:
    """The state of the server and everything that changes it."""

    def __init__(self, settings: Settings, log: Log) -> None:
        self.state = State()
        self._repository = Repository(settings, self.state, log)
        self._catalogs = Catalogs(settings.runtime, log)
        self._memory = Memory(settings.runtime)
        choices = self._memory.read()
        if choices is None:
            self._start(settings)
        else:
            self._restart(choices)
        self._calls: dict[str, Callable[..., Result]] = {
            "drain": self._drain,
            "load": self._load,
            "unload": self._unload,
            "traffic": self._traffic,
            "put_catalog": self._put_catalog,
            "extend_catalog": self._extend_catalog,
            "prune_catalog": self._prune_catalog,
            "delete_catalog": self._delete_catalog,
        }

    def _start(self, settings: Settings) -> None:
        for name, traffic in settings.traffic.items():  # before loading: versions with a role are loaded
            self.state.models[name] = _with_traffic(ModelState(), traffic)
        self._repository.start()
        for name in settings.traffic:
            _check_traffic(self._model(name), name)
        for name, catalogs in settings.catalogs.items():
            for catalog, path in catalogs.items():
                candidate, items = read_items(path)
                self._catalogs.put(self._model(name), name, check_name(catalog, "catalog"), candidate, items)
        self.save()

    def _restart(self, choices: dict[str, Any]) -> None:
        """Continue after the previous keeper."""
        restore_models(self.state, choices)
        self._repository.restore_blocks(choices["blocks"])
        self._repository.start(again=True)
        for name, catalog in choices["catalogs"]:
            items = self._memory.read_items(name, catalog)
            if self.state.models[name].versions:
                self._catalogs.put(self._model(name), name, catalog, items.candidate, list(items.rows.values()))

    def save(self) -> None:
        """Remember the choices for the case that the keeper has to be restarted."""
        self._memory.save(self.state, self._repository, self._catalogs.items)

    def call(self, message: dict[str, Any]) -> Result:
        """Execute a call."""
        return self._calls[message.pop("call")](**message)

    def look(self) -> bool:
        """Look for changed files; return whether the state has changed."""
        return self._repository.look(self._opened)

    def take_retired(self) -> list[Callable[[], None]]:
        """Return what to close once all workers have applied the state."""
        retired = self._repository.retired + self._catalogs.retired
        self._repository.retired, self._catalogs.retired = [], []
        return retired

    def _opened(self, name: str, version: str, scorer: Scorer) -> None:
        self._catalogs.compute(self.state.models[name], name, version, scorer)

    def _model(self, name: str) -> ModelState:
        if name not in self.state.models or not self.state.models[name].versions:
            loaded = [other for other, model in self.state.models.items() if model.versions]
            meant = f"; {suggest(name, loaded)}" if loaded else ""
            raise Fm2Error(f"unknown model '{name}'{meant}")
        return self.state.models[name]

    def _drain(self) -> Result:
        self.state.draining = True
        return True, None

    def _load(self, name: str) -> Result:
        return True, self._repository.load(name, self._opened)

    def _unload(self, name: str) -> Result:
        self._repository.unload(self._model_name(name))
        return True, None

    def _model_name(self, name: str) -> str:
        self._model(name)
        return name

    def _traffic(self, name: str, traffic: dict[str, Any]) -> Result:
        model = self._model(name)
        before = model.labels, model.canary, model.shadow
        _with_traffic(model, read_traffic(traffic))
        try:
            _check_traffic(model, name)
        except Fm2Error:
            model.labels, model.canary, model.shadow = before
            raise
        return True, None

    def _put_catalog(self, name: str, catalog: str, candidate: list[str], items: list[dict[str, Any]]) -> Result:
        return True, self._catalogs.put(self._model(name), name, check_name(catalog, "catalog"), candidate, items)

    def _extend_catalog(self, name: str, catalog: str, items: list[dict[str, Any]]) -> Result:
        return True, self._catalogs.extend(self._model(name), name, catalog, items)

    def _prune_catalog(self, name: str, catalog: str, ids: list[str]) -> Result:
        return True, self._catalogs.prune(self._model(name), name, catalog, ids)

    def _delete_catalog(self, name: str, catalog: str) -> Result:
        return True, self._catalogs.delete(self._model(name), name, catalog)


def read_traffic(values: Any) -> Traffic:
    """Read ``{"labels": {"stable": "3"}, "canary": {"version": "4", "share": 0.1}, "shadow": {"version": "5"}}``."""
    if not isinstance(values, dict):
        raise Fm2Error("traffic: expected an object with labels, canary and shadow")
    for key in values.keys() - {"labels", "canary", "shadow"}:
        raise Fm2Error(f"traffic: unknown key '{key}'; {suggest(key, ('labels', 'canary', 'shadow'))}")
    labels, canary, shadow = (values.get(key) for key in ("labels", "canary", "shadow"))
    if labels is not None and not (isinstance(labels, dict) and all(isinstance(v, str) for v in labels.values())):
        raise Fm2Error('traffic: labels must be an object of versions, such as {"stable": "3"}')
    for label in labels or {}:
        check_name(label, "label")
    return Traffic(labels or {}, _read_canary(canary), _read_shadow(shadow))


def _read_canary(canary: Any) -> tuple[str, float] | None:
    if canary is None:
        return None
    share = canary.get("share") if isinstance(canary, dict) else None
    is_share = isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share <= 1
    if not is_share or not isinstance(canary.get("version"), str):
        raise Fm2Error('traffic: canary must look like {"version": "4", "share": 0.1}, with a share between 0 and 1')
    return canary["version"], float(canary["share"])


def _read_shadow(shadow: Any) -> str | None:
    if shadow is None:
        return None
    version = shadow.get("version") if isinstance(shadow, dict) else shadow
    if not isinstance(version, str):
        raise Fm2Error('traffic: shadow must look like {"version": "5"}')
    return version


def _with_traffic(model: ModelState, traffic: Traffic) -> ModelState:
    model.labels, model.canary, model.shadow = dict(traffic.labels), traffic.canary, traffic.shadow
    return model


def _check_traffic(model: ModelState, name: str) -> None:
    """Raise an error if a role names a version that is not loaded."""
    roles = {f"label '{label}'": version for label, version in model.labels.items()}
    roles |= {"canary": model.canary[0]} if model.canary else {}
    roles |= {"shadow": model.shadow} if model.shadow else {}
    for role, version in roles.items():
        if version not in model.versions:
            meant = suggest(version, model.versions)
            raise Fm2Error(f"traffic: {role}: the model '{name}' has no version '{version}'; {meant}")
    for label in model.labels:
        if label in model.versions and model.labels[label] != label:
            raise Fm2Error(f"traffic: label '{label}' is also a version of the model '{name}'; choose another label")
