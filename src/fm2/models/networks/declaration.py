"""How a network is declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fm2.models.networks.options import MLP, Option

# Settings of the training that suit most networks on small logs; a declaration says where its own differ. Weights are
# averaged over four times as many steps as those of factorization machines: it took .0003 (of AutoInt .0008) from the
# log loss of Criteo's later rows, means of several seeds. On validation rows, by which the best moment is chosen, it
# changes nothing.
DEFAULTS: Mapping[str, Any] = {
    "dim": 8,
    "embedding_std": 0.05,
    "optimizer": "adam",
    "learning_rate": 0.002,
    "dense_learning_rate": 0.001,
    "batch_size": 256,
    "epochs": 50,
    "l2": 0.03,
    "l2_power": 0.5,
    "field_dropout": 0.2,
    "ema_decay": 0.9995,
}
# And on large ones, beside these: from a few trials of DeepFM and DCN on a million generated rows, where doubled and
# tripled rates (from .004 and .001) raised the validation AUC by .003 and .001.
LARGE: Mapping[str, Any] = {
    "learning_rate": 0.008,
    "dense_learning_rate": 0.003,
    "schedule": "linear",
    "batch_size": 1024,
    "epochs": 4,
    "l2": 0.0075,
    "field_dropout": 0.05,
    "ema_decay": 0.998,
}


@dataclass(frozen=True)
class Network:
    """A network: its class in ``fm2.models.deep``, what it is, and the settings of its own.

    ``source`` says where it is from, ``equal_dims`` why all fields need the same dimension, where they do.
    ``options`` are the keywords of the class. ``defaults`` and ``large`` are settings of the training, or of its
    options, that differ from those of most networks: for small logs, and beside them for large ones.
    """

    title: str
    summary: str
    source: str
    equal_dims: str = ""
    options: Sequence[Option] = tuple(MLP)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    large: Mapping[str, Any] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """Give all settings that differ from those of all models."""
        own = {option.name: option.default for option in self.options}
        return {**DEFAULTS, **own, **self.defaults}

    def settings_of_large_logs(self) -> dict[str, Any]:
        """Give the settings that take the place of others where there are many rows."""
        return {**LARGE, **self.large}

    @property
    def option_names(self) -> list[str]:
        """The names of the options."""
        return [option.name for option in self.options]
