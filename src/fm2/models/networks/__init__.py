"""What networks there are, and which settings each has: one small file per network, which needs no torch.

The network ``x`` is declared in ``networks.x`` and written in ``deep.x``. Nothing else names it:
the command line, the settings and their defaults, and the tests find it here.
"""

from __future__ import annotations

import importlib
import pkgutil

from fm2.models.networks.declaration import Network
from fm2.models.networks.options import Option

__all__ = ["NETWORKS", "Network", "Option"]

_APART = ("declaration", "options")


def _declared() -> dict[str, Network]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _APART)
    return {name: importlib.import_module(f"{__name__}.{name}").NETWORK for name in names}


NETWORKS = _declared()
