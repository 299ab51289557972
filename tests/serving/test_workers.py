"""Worker processes: shared memory, kills, graceful stop, logs."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest
from tests.helpers.servers import Server, wait_for
from tests.serving.conftest import ROW
from tests.serving.test_swap import Load

SHOP = "/v1/models/shop"


@pytest.fixture(scope="module")
def server(files, tmp_path_factory):
    directory = tmp_path_factory.mktemp("workers")
    with Server(directory, f"shop={files[0]}", "--workers", 2, "--log-sample", 1) as running:
        yield running


def private_kilobytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(size) for size in re.findall(r"Private_(?:Clean|Dirty): +(\d+)", text))


def test_a_worker_adds_less_than_30_megabytes(server):
    wait_for(lambda: len(server.children()) == 3)
    for _ in range(20):
        server.post(f"{SHOP}/predict", {"rows": [ROW] * 100})
        server.post(f"{SHOP}/explain", {"row": ROW})
    for worker in server.children()[1:]:
        assert private_kilobytes(worker) < 30_000


def test_a_killed_worker_is_replaced_within_a_second(server):
    counted = server.metric("fm2_requests_total")
    for _ in range(2):
        keeper, *workers = server.children()
        os.kill(workers[0], signal.SIGKILL)
        began = time.monotonic()
        wait_for(lambda old=workers[0]: len(server.children()) == 3 and old not in server.children(), 3)
        replaced = time.monotonic() - began
        assert server.children()[0] == keeper
        assert server.post(f"{SHOP}/predict", {"rows": [ROW]})["version"] == "1"
        assert replaced < 1
    assert server.metric("fm2_requests_total") >= counted + 2, "counters survive"


def test_the_keeper_is_replaced_while_the_workers_serve(server):
    keeper = server.children()[0]
    os.kill(keeper, signal.SIGKILL)
    assert server.post(f"{SHOP}/predict", {"rows": [ROW]})["version"] == "1"
    wait_for(lambda: server.send("PUT", f"{SHOP}/traffic", {"labels": {"stable": "1"}})[0] == 200)
    for _ in range(4):
        assert server.get(f"{SHOP}/traffic")["labels"] == {"stable": "1"}


def test_requests_are_logged_with_their_ids(server):
    server.send("POST", f"{SHOP}/predict", {"rows": [ROW, ROW]}, {"X-Request-Id": "find-me"})
    entry = wait_for(lambda: [line for line in server.events("request") if line.get("id") == "find-me"])[0]
    assert (entry["status"], entry["model"], entry["version"], entry["rows"]) == (200, "shop", "1", 2)
    assert entry["milliseconds"] > 0


def test_stopping_answers_all_requests(files, tmp_path):
    with Server(tmp_path, f"shop={files[0]}", "--workers", 2) as server:
        answers = []

        def slow_request():
            with contextlib.closing(server.connect()) as connection:
                connection.putrequest("POST", f"{SHOP}/predict")
                connection.putheader("Content-Length", "21")
                connection.endheaders()
                time.sleep(1.5)
                connection.send(b'{"rows": [{"ad": 1}]}')
                response = connection.getresponse()
                answers.append(response.status)
                response.read()

        thread = threading.Thread(target=slow_request)
        thread.start()
        time.sleep(0.5)
        with Load(server) as load:
            wait_for(lambda: load.count > 50)
            server.process.send_signal(signal.SIGTERM)
            wait_for(lambda: _ready_status(server) != 200)
            time.sleep(0.3)
        thread.join()
        assert answers == [200], "a running request is answered"
        assert server.process.wait(30) == 0
        assert not [failure for failure in load.failures if not isinstance(failure, ConnectionError)]
        assert not list(Path("/dev/shm").glob(f"fm2-serve-{server.process.pid}-*"))


def _ready_status(server: Server) -> int:
    try:
        return server.send("GET", "/v2/health/ready")[0]
    except OSError:
        return 0
