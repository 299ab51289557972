"""Runs as tasks of a Ray cluster, which places them on its machines. These share the file system of the study."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

from fm2.ray_cluster import connected, count_tasks, repeat_warnings, with_warnings
from fm2.studies.execution.jobs import Jobs, LostRun, Results, Watch, Work
from fm2.studies.execution.worker import portable, throttled
from fm2.training.loop import TrainingProgress

POLL_SECONDS = 0.5
STOP_SECONDS = 60.0


class Mailbox:
    """Keeps the latest report of each run until the study reads them."""

    def __init__(self) -> None:
        self._reports: dict[str, TrainingProgress] = {}

    def put(self, name: str, report: TrainingProgress) -> None:
        """Keep a report."""
        self._reports[name] = report

    def take(self) -> dict[str, TrainingProgress]:
        """Return the reports since the last call."""
        reports, self._reports = self._reports, {}
        return reports


def train_task(work: Work, name: str, task: Any, threads: int, mailbox: Any) -> tuple[Any, Exception | None, list[str]]:
    """Train a run on a machine of the cluster; return its result or the exception that it raised, and its warnings."""
    os.environ["FM2_THREADS"] = str(threads)

    def train() -> tuple[Any, Exception | None]:
        try:
            return work(task, throttled(lambda report: mailbox.put.remote(name, report))), None
        except Exception as error:
            return None, portable(error)

    (result, failure), warned = with_warnings(train)
    return result, failure, warned


def run_on_ray(
    work: Work, tasks: Mapping[str, Any], jobs: Jobs, watch: Watch, on_start: Callable[[str], None]
) -> Results:
    """Train runs on a Ray cluster; see :func:`fm2.studies.execution.jobs.map_runs`."""
    with connected(jobs.operation, jobs.address) as ray:
        mailbox = ray.remote(num_cpus=0)(Mailbox).remote()
        threads = jobs.threads_per_run
        at_once = count_tasks(jobs.operation, ray, threads)
        most = jobs.count or at_once
        start = ray.remote(num_cpus=threads, max_retries=0)(train_task)
        waiting, running, shown = list(tasks), dict[Any, str](), set[str]()
        try:
            while waiting or running:
                while waiting and len(running) < most:
                    name = waiting.pop(0)
                    on_start(name)
                    running[start.remote(work, name, tasks[name], threads, mailbox)] = name
                ended, _ = ray.wait(list(running), timeout=POLL_SECONDS)
                for name, report in ray.get(mailbox.take.remote()).items():
                    if name in running.values():
                        watch(dataclasses.replace(report, stage=name))
                for reference in ended:
                    name = running.pop(reference)
                    yield name, _result(ray, reference, name, shown)
        finally:
            _cancel(ray, list(running))


def _result(ray: Any, reference: Any, name: str, shown: set[str]) -> Any:
    try:
        result, error, warned = ray.get(reference)
    except ray.exceptions.RayError as problem:
        reason = str(problem).strip().splitlines()[0]
        return LostRun(f"{name}: its process on the Ray cluster ended: {reason}; resume=True continues it")
    repeat_warnings(warned, shown)
    if error is not None:
        raise error
    return result


def _cancel(ray: Any, references: list[Any]) -> None:
    """Let all runs write a checkpoint and end; another interruption, or a minute later, ends them at once."""
    try:
        for reference in references:
            ray.cancel(reference)
        if references:
            _, left = ray.wait(references, num_returns=len(references), timeout=STOP_SECONDS)
            references = left
    finally:
        for reference in references:
            ray.cancel(reference, force=True)
