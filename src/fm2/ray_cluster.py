"""Connect to a Ray cluster. Nothing else starts Ray, and nothing imports it before."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from fm2.errors import Fm2Error, Fm2Warning, require, warn

REACHED_SECONDS = 10.0  # to wait for an answer of the cluster
Result = TypeVar("Result")


@contextlib.contextmanager
def connected(operation: str, address: str | None) -> Iterator[Any]:
    """Connect to a cluster, or start one on this machine, unless the caller has done so; yield the module ``ray``."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # before Ray is imported
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # otherwise Ray warns about a future default
    ray: Any = require("ray", "ray", 'engine="ray"')
    if ray.is_initialized():  # by the caller, who chose the cluster
        yield ray
        return
    local = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"} if address is None else {}
    try:
        if address is not None:
            _check_reachable(address)
        with _own_sigterm():
            ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **local)
    except Exception as error:  # Ray raises plain exceptions, for example if it starts too slowly
        reason = " ".join(str(error).split()).rstrip(".")
        if address is not None:
            raise Fm2Error(f"{operation}: cannot connect to the Ray cluster at {address}: {reason}") from error
        raise Fm2Error(
            f"{operation}: cannot start Ray on this machine: {reason}; if the machine is busy, try again, or start a "
            "cluster yourself and pass its address"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def count_tasks(operation: str, ray: Any, threads: int) -> int:
    """Return how many tasks with so many threads a cluster runs at once; warn if it has to grow to run any."""
    cpus = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    if threads > max(cpus, default=0):
        warn(f"{operation}: no machine of the Ray cluster has {threads} CPUs; tasks wait until one does (threads=)")
    return max(sum(each // threads for each in cpus), 1)


def with_warnings(function: Callable[..., Result], *arguments: Any) -> tuple[Result, list[str]]:
    """Call a function in a task; return its result and its warnings, which :func:`repeat_warnings` shows to the user.

    >>> with_warnings(lambda: warn("prepare: slow"))
    (None, ['prepare: slow'])
    """
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always", Fm2Warning)
        result = function(*arguments)
    return result, [str(each.message) for each in issued if issubclass(each.category, Fm2Warning)]


def repeat_warnings(messages: Iterable[str], shown: set[str]) -> None:
    """Issue the warnings of a task in this process, except those that other tasks have ``shown``."""
    for message in messages:
        if message not in shown:
            shown.add(message)
            warn(message)


@contextlib.contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keep the handler of SIGTERM, which removes temporary files; that of Ray would abort the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if handler is not None:  # it was installed by Python
            signal.signal(signal.SIGTERM, handler)


def _check_reachable(address: str) -> None:
    """Raise OSError if nothing listens at ``host:port``; Ray would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), REACHED_SECONDS).close()
