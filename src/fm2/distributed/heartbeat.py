"""Who hangs: every worker publishes how far it is, so that the others can name the one they wait for."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from torch._C._distributed_c10d import Store


class Heartbeat:
    """Publishes this worker's number of ``calls`` to the others in a store, from a thread of its own."""

    def __init__(self, store: Store, worker: int, workers: int, seconds: float, calls: Callable[[], int]) -> None:
        self._store: Store = store.clone()  # type: ignore[attr-defined]  # a connection of its own: that of the process group may be in use
        self._worker, self._workers, self._calls = worker, workers, calls
        self._seconds = min(max(seconds / 20, 0.1), 5.0)
        self._stopped = threading.Event()
        threading.Thread(target=self._publish, daemon=True, name="fm2-heartbeat").start()

    def _publish(self) -> None:
        beat = 0
        while not self._stopped.is_set():
            beat += 1
            values = {"calls": self._calls(), "beat": beat, "process": os.getpid(), "host": socket.gethostname()}
            try:
                self._store.set(f"fm2/{self._worker}", json.dumps(values))
            except RuntimeError:
                return  # the store is gone, and with it the training
            self._stopped.wait(self._seconds)

    def stop(self) -> None:
        """Stop publishing."""
        self._stopped.set()

    def suspects(self) -> list[str]:
        """Return the workers that are silent, or else those that are behind the others, with process and host."""
        try:
            before = self._read()
            time.sleep(3 * self._seconds)
            after = self._read()
        except RuntimeError:
            return []  # the process that keeps the store does not respond either
        silent = [worker for worker, values in after.items() if values["beat"] == before.get(worker, {}).get("beat")]
        furthest = max((values["calls"] for values in after.values()), default=0)
        behind = [worker for worker, values in after.items() if values["calls"] < furthest]
        return [
            f"worker {worker} (process {after[worker]['process']} on {after[worker]['host']})"
            for worker in silent or behind
        ]

    def _read(self) -> dict[int, dict[str, Any]]:
        found = {}
        for worker in range(self._workers):
            if self._store.check([f"fm2/{worker}"]):
                found[worker] = json.loads(self._store.get(f"fm2/{worker}"))
        return found
