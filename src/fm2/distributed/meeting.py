"""How restarted workers find each other, and not the addresses of workers that are gone."""

from __future__ import annotations

import datetime
import time
import uuid

from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

PAUSE = 0.02  # seconds


def meet(seconds: float) -> tuple[Store, int, int]:
    """Return a store that only the current workers use, this worker's number, and the number of workers.

    torchrun keeps its store when it restarts workers, with the addresses of the killed ones, and the number of restarts
    may differ between machines. The first worker therefore gives every worker that says hello a new prefix.
    """
    limit = datetime.timedelta(seconds=seconds)
    store, worker, workers = next(rendezvous("env://", timeout=limit))
    prefix = _invite(store, workers, seconds) if worker == 0 else _join(store, worker)
    return PrefixStore(prefix, store), worker, workers


def _join(store: Store, worker: int) -> str:
    name = uuid.uuid4().hex
    store.set(f"fm2/hello/{worker}", name)
    prefix = store.get(f"fm2/welcome/{name}").decode()
    store.set(f"{prefix}/ready/{worker}", "")
    return prefix


def _invite(store: Store, workers: int, seconds: float) -> str:
    prefix = f"fm2/{uuid.uuid4().hex}"
    waiting = set(range(1, workers))
    welcomed: dict[int, bytes] = {}
    end = time.monotonic() + seconds
    while waiting:
        for worker in sorted(waiting):
            if store.check([f"{prefix}/ready/{worker}"]):
                waiting.remove(worker)
            elif store.check([f"fm2/hello/{worker}"]):
                name = store.get(f"fm2/hello/{worker}")
                if welcomed.get(worker) != name:
                    store.set(f"fm2/welcome/{name.decode()}", prefix)
                    welcomed[worker] = name
        if time.monotonic() > end:
            raise RuntimeError(f"waited {seconds:g} seconds for worker {', '.join(map(str, sorted(waiting)))}")
        time.sleep(PAUSE)
    return prefix
