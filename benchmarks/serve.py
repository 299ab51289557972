"""Compare fm2 serve with granian's hello world and with MLServer; swap a large model and kill workers under load.

    python benchmarks/serve.py [--seconds 5] [--rounds 5] [--swap-seconds 60] [--parts cost,peer,swap,kill,memory]

The model is an FmFM with 39 columns and K = 16, of about 400 MB. wrk sends one-row requests from 16 connections, and
h2load sends them at a constant rate during swaps. Everything runs with one worker unless noted. The cost of a request
is the CPU time of all processes of the server, from /proc, divided by the number of requests; servers are measured in
turn, and the best round counts. MLServer (`make peers`) runs the same model in its Python runtime.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fm2 import load
from serve_load import CONNECTIONS, H2load, Load, Wrk, check_tools, memory_of, run_wrk, wait_until
from serve_requests import CATALOG, NAME, Workload, infer_body, make_workload, predict_body
from serve_servers import MLSERVER, Server, serve_fm2, serve_hello, serve_mlserver
from targets import Target, print_targets
from timing import in_turn

TITLES = {
    "hello": "granian's hello world",
    "read": "hello world that receives the row's JSON",
    "predict": "predict, JSON row",
    "columns": "infer, JSON tensors of 39 columns",
    "binary ids": "infer, binary tensor of ids",
    "binary columns": "infer, binary tensors of 39 columns",
    "rank": "rank 1,000 items of a catalog",
}
LIMITS = {"predict": 1.5, "columns": 1.5, "binary ids": 1.3, "binary columns": 1.3}
SWAP_SECONDS, SWAP_RATE = 2.0, 1000
WORKERS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=5, help="duration of each load")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--swap-seconds", type=float, default=60, help="duration of the load with swaps")
    parser.add_argument("--parts", default=",".join(PARTS), help="parts to run (default: all)")
    settings = parser.parse_args()
    check_tools()
    with tempfile.TemporaryDirectory() as folder:
        workload = make_workload(Path(folder))
        size = workload.model.stat().st_size / 1e6
        print(f"{size:,.0f} MB, {os.cpu_count()} processors, wrk with {CONNECTIONS} connections")
        for part in settings.parts.split(","):
            PARTS[part](workload, settings, Path(folder))


def measure_cost(workload: Workload, settings: argparse.Namespace, folder: Path) -> None:
    """Compare the CPU time of requests with that of hello world."""
    loads: dict[str, list[Load]] = {name: [] for name in TITLES}
    with serve_hello() as hello, serve_fm2(workload.model) as served:
        status, answer = served.call("PUT", f"/v1/models/{NAME}/catalogs/{CATALOG}", workload.catalog)
        assert status == 200, answer

        def measure(name: str) -> Callable[[], float]:
            server = hello if name in ("hello", "read") else served

            def run() -> float:
                load = run_wrk(server.pid, server.port, workload.requests[name], settings.seconds)
                if load.broken or load.refused:
                    raise SystemExit(f"{TITLES[name]}: {load.broken} broken and {load.refused} refused requests")
                loads[name].append(load)
                return load.cpu

            return run

        costs = in_turn({name: measure(name) for name in TITLES}, settings.rounds)
    best = {name: min(times) for name, times in costs.items()}
    print(f"\n{'':48}{'CPU µs/request':>16}{'requests/s':>12}{'p50 ms':>8}{'p99 ms':>8}")
    for name, title in TITLES.items():
        fastest = max(loads[name], key=lambda load: load.rate)
        times = f"{fastest.p50 * 1e3:>8.2f}{fastest.p99 * 1e3:>8.2f}"
        print(f"{title:48}{best[name] * 1e6:>16.1f}{fastest.rate:>12,.0f}{times}")
    ratios = [Target(TITLES[name], best[name] / best["hello"], at_most=limit) for name, limit in LIMITS.items()]
    print_targets("CPU time / hello world", ratios)
    difference = (best["rank"] - best["hello"]) * 1e6
    print_targets("microseconds", [Target(f"{TITLES['rank']} - hello world", difference, at_most=100)])


def measure_peer(workload: Workload, settings: argparse.Namespace, folder: Path) -> None:
    """Compare requests per second with the faster one of two MLServers, with the same requests and model."""
    if not MLSERVER.exists():
        print("\nMLServer is not installed; run make peers")
        return
    requests = workload.requests["columns"]
    best: dict[str, Load] = {}
    with contextlib.ExitStack() as stack:
        servers = {"fm2": stack.enter_context(serve_fm2(workload.model))}
        for workers in (0, 1):
            peer = serve_mlserver(workload.model, folder / f"mlserver{workers}", workers)
            servers[f"MLServer, parallel_workers = {workers}"] = stack.enter_context(peer)
        for server in servers.values():
            check_answer(server, workload)
        for title, server in list(servers.items()) * settings.rounds:
            load = run_wrk(server.pid, server.port, requests, settings.seconds)
            best[title] = max(best.get(title, load), load, key=lambda load: load.rate)
    print()
    for title, load in best.items():
        print(f"{title:48}{load.rate:>12,.0f} requests/s{load.cpu * 1e6:>12,.0f} µs of CPU time")
    fm2 = best.pop("fm2")
    print_targets(
        f"fm2 / MLServer, {TITLES['columns']}",
        [
            Target("requests/s", fm2.rate / max(load.rate for load in best.values()), at_least=10),
            Target("requests per CPU second", min(load.cpu for load in best.values()) / fm2.cpu, at_least=10),
        ],
    )


def check_answer(server: Server, workload: Workload) -> None:
    """End unless the server scores a row as the scorer does."""
    row = workload.rows[0]
    status, answer = server.call("POST", f"/v2/models/{NAME}/infer", json.loads(infer_body(row)))
    assert status == 200, answer
    found = json.loads(answer)["outputs"][0]["data"][0]
    assert abs(found - load(workload.model, threads=1).predict_one(row)) < 1e-6, answer


def measure_swaps(workload: Workload, settings: argparse.Namespace, folder: Path) -> None:
    """Replace the model every two seconds under a constant load; compare latency and memory with quiet times."""
    copy = folder / "other.fm2"
    shutil.copy(workload.model, copy)
    files = [copy, folder / "first.fm2"]
    os.link(workload.model, files[1])
    body = folder / "body.json"
    body.write_bytes(predict_body(workload.rows[0]))
    with serve_fm2(workload.model.parent, "--poll", "0.5") as server:

        def send(name: str, seconds: float) -> H2load:
            url = f"http://127.0.0.1:{server.port}/v1/models/{NAME}/predict"
            return H2load(url, body, folder / name, seconds, CONNECTIONS, SWAP_RATE)

        quiet = send("before.log", settings.swap_seconds / 2).wait()
        memory = memory_of(server.pid)
        busy, swaps = send("swaps.log", settings.swap_seconds), 0
        while busy.is_running():
            replace(files[swaps % 2], workload.model)
            swaps += 1
            time.sleep(SWAP_SECONDS)
        swapped = busy.wait()
        seen = count_swaps(server)
        quiet += send("after.log", settings.swap_seconds / 2).wait()
        after = memory_of(server.pid)
    failed = sum(status != 200 for status, _ in swapped)
    during, without = (1e3 * np.array([seconds for _, seconds in found]) for found in (swapped, quiet))
    p99, quiet_p99 = float(np.quantile(during, 0.99)), float(np.quantile(without, 0.99))
    print(f"\n{len(swapped):,} requests during {seen} swaps ({swaps} files), {SWAP_RATE:,} requests/s")
    print(f"p99 {p99:.2f} ms, without swaps {quiet_p99:.2f} ms; slowest {during.max():.1f} and {without.max():.1f} ms")
    print(f"memory {memory:,.0f} MB at the start, {after:,.0f} MB at the end")
    print_targets(
        "swaps of a large model",
        [
            Target("failed requests", failed, at_most=0),
            Target("swaps / files", seen / swaps, at_least=0.9),
            Target("p99 / p99 without swaps", p99 / quiet_p99, at_most=2),
            Target("memory at the end / at the start", after / memory, at_most=1.05),
        ],
    )


def replace(source: Path, target: Path) -> None:
    """Rename a link to a file into place, as a deployment does."""
    link = target.with_name(".next")
    link.unlink(missing_ok=True)
    os.link(source, link)
    link.rename(target)


def count_swaps(server: Server) -> int:
    """Return how many files have been loaded since the start."""
    lines = server.call("GET", "/metrics")[1].decode().splitlines()
    return round(sum(float(line.split()[-1]) for line in lines if line.startswith("fm2_swaps_total{")))


def measure_kill(workload: Workload, settings: argparse.Namespace, folder: Path) -> None:
    """Kill the only worker under load; count failed requests and wait for the next worker."""
    with serve_fm2(workload.model) as server:
        load = Wrk(server.port, workload.requests["predict"], max(settings.seconds, 3))
        time.sleep(1)
        (worker,) = server.workers()
        os.kill(worker, signal.SIGKILL)
        seconds = wait_until(lambda: server.answers("/v2/health/ready"), 30, "a new worker")
        found = load.wait()
    print(f"\n{found.requests:,} requests, {found.broken} lost with the worker")
    print_targets(
        "kill -9 of the only worker under load",
        [
            Target("lost requests / connections", found.broken / CONNECTIONS, at_most=1),
            Target("refused requests", found.refused, at_most=0),
            Target("seconds until a new worker answers", seconds, at_most=1),
        ],
    )


def measure_memory(workload: Workload, settings: argparse.Namespace, folder: Path) -> None:
    """Measure the memory that a worker adds, after load."""
    used = {}
    for workers in (1, WORKERS):
        with serve_fm2(workload.model, workers=workers) as server:
            for name in ("predict", "columns", "binary ids"):
                run_wrk(server.pid, server.port, workload.requests[name], max(settings.seconds / 3, 1), 8 * workers)
            used[workers] = memory_of(server.pid)
    each = (used[WORKERS] - used[1]) / (WORKERS - 1)
    print(f"\nmemory of 1 worker {used[1]:,.0f} MB, of {WORKERS} workers {used[WORKERS]:,.0f} MB, the model included")
    print_targets("MB", [Target("each further worker", each, at_most=30)])


PARTS = {
    "cost": measure_cost,
    "peer": measure_peer,
    "swap": measure_swaps,
    "kill": measure_kill,
    "memory": measure_memory,
}

if __name__ == "__main__":
    main()
