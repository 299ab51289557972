"""Hot swap: new files take over without a failed request, broken ones are rejected, old memory is released."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from tests.helpers.servers import Server, wait_for
from tests.serving.conftest import ROW

import fm2

POLL = ("--poll", 0.1)


def put(source: Path, target: Path) -> None:
    """Put a file into place as users should: under another name first, then renamed."""
    partial = target.with_name(f".{target.name}.partial")
    shutil.copyfile(source, partial)
    partial.rename(target)


@pytest.fixture
def directory(files, tmp_path):
    models = tmp_path / "models"
    (models / "shop").mkdir(parents=True)
    put(files[0], models / "shop" / "1.fm2")
    return models


class Load:
    """Requests from several threads, until the end of the block; every answer must be one of a model."""

    def __init__(self, server: Server, threads: int = 3) -> None:
        self.server = server
        self.versions: set[str] = set()
        self.failures: list[object] = []
        self.count = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        with contextlib.closing(self.server.connect()) as connection:
            self._send(connection)

    def _send(self, connection: http.client.HTTPConnection) -> None:
        while not self._stop.is_set():
            try:
                connection.request("POST", "/v1/models/shop/predict", b'{"rows": [{"site": "site1"}]}')
                response = connection.getresponse()
                body = response.read().decode()
                if response.status != 200:
                    self.failures.append(body)
                self.versions.add(body.partition('"version":')[2].strip().partition('"')[2].partition('"')[0])
                self.count += 1
            except OSError as error:
                self.failures.append(error)
                return
            time.sleep(0.001)


def test_new_versions_take_over_under_load(directory, files, scorers, tmp_path):
    with Server(tmp_path, directory, *POLL, "--workers", 2, "--versions", 1) as server:
        with Load(server) as load:
            wait_for(lambda: "1" in load.versions)
            for version in (2, 3, 4):
                put(files[version % 2], directory / "shop" / f"{version}.fm2")
                wait_for(lambda v=str(version): v in load.versions)
            put(files[1], directory / "shop" / "4.fm2")
            wait_for(lambda: server.events("replaced"))
        assert not load.failures
        assert load.versions == {"1", "2", "3", "4"}
        expected = pytest.approx(scorers[1].predict([ROW]).tolist(), abs=1e-6)

        def all_workers_answer() -> bool:
            answers = (server.post("/v1/models/shop/predict", {"rows": [ROW]}) for _ in range(10))
            return all(answer["probabilities"] == expected for answer in answers)

        wait_for(all_workers_answer)  # they replace the model shortly after it was verified
        assert server.metric("fm2_swaps_total") == 4
        (directory / "shop" / "5.fm2").write_bytes(b"")
        workers = server.children()[1:]
        wait_for(lambda: all(len(mapped(pid, directory)) == 1 for pid in workers))


def mapped(pid: int, directory: Path) -> set[str]:
    """Return the model files that a process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[5] for line in lines if str(directory) in line}


def test_a_broken_file_is_rejected_once_and_the_old_model_keeps_serving(directory, files, scorers, tmp_path):
    target = directory / "shop" / "1.fm2"
    with Server(tmp_path, directory, *POLL) as server:
        damaged = bytearray(files[1].read_bytes())
        damaged[len(damaged) // 2] ^= 1
        for content in (bytes(damaged), damaged[:1000], b""):
            seen = len(server.events("refused"))
            partial = target.with_suffix(".new")
            partial.write_bytes(content)
            partial.rename(target)
            wait_for(lambda seen=seen: len(server.events("refused")) > seen)
            answer = server.post("/v1/models/shop/predict", {"rows": [ROW]})
            assert answer["probabilities"] == pytest.approx(scorers[0].predict([ROW]).tolist(), abs=1e-6)
        time.sleep(0.5)
        assert len(server.events("refused")) == 3, "a file is not tried again until it changes"
        assert "1.fm2" in server.events("refused")[0]["reason"]
        assert server.get("/v1/models/shop")["rejected"].keys() == {"1"}
        assert server.metric("fm2_rejected_files", model="shop") == 1
        os.kill(server.children()[1], 9)  # a new worker gets the old model, too
        wait_for(lambda: _predicts(server))
        answer = server.post("/v1/models/shop/predict", {"rows": [ROW]})
        assert answer["probabilities"] == pytest.approx(scorers[0].predict([ROW]).tolist(), abs=1e-6)
        put(files[1], target)
        wait_for(lambda: server.events("replaced"))
        wait_for(lambda: not server.get("/v1/models/shop")["rejected"])


@pytest.mark.parametrize("named", [False, True])
def test_a_broken_file_does_not_end_the_old_model_if_the_keeper_is_replaced(named, directory, files, tmp_path):
    target = directory / "shop" / "1.fm2"
    with Server(tmp_path, *(f"shop={target}", "--watch") if named else (directory,), *POLL) as server:
        broken = target.with_suffix(".new")
        broken.write_bytes(b"broken")
        broken.rename(target)
        wait_for(lambda: server.events("refused"))
        keeper = server.children()[0]
        os.kill(keeper, 9)
        wait_for(lambda: len(server.events("refused")) == 2)
        time.sleep(1)  # the worker connects to the new keeper
        wait_for(lambda: _predicts(server))
        put(files[1], target)
        wait_for(lambda: server.get("/v1/models/shop")["checksum"] == fm2.load(files[1]).fingerprint)


def test_a_broken_file_that_is_removed_is_forgotten(directory, tmp_path):
    with Server(tmp_path, directory, *POLL) as server:
        for broken in (directory / "shop" / "2.fm2", directory / "other.fm2"):
            broken.write_bytes(b"broken")
            wait_for(lambda: _rejected(server))
            server.get("/v2/health/ready")
            broken.unlink()
            wait_for(lambda: not _rejected(server))
        assert [model["name"] for model in server.get("/v1/models")["models"]] == ["shop"]


def test_loading_a_broken_version_says_so_while_the_old_one_serves(directory, tmp_path):
    with Server(tmp_path, directory, "--poll", 60) as server:
        broken = directory / "shop" / "2.fm2"
        broken.write_bytes(b"broken")
        assert str(broken) in server.error(400, "POST", "/v2/repository/models/shop/load")
        assert server.get("/v1/models/shop")["rejected"].keys() == {"2"}
        assert server.get("/v1/models/shop")["version"] == "1"


def _rejected(server: Server) -> list[str]:
    """Return the reasons why files are not served."""
    return [entry["reason"] for entry in server.post("/v2/repository/index") if entry["state"] != "READY"]


def _predicts(server: Server) -> bool:
    try:
        return server.send("POST", "/v1/models/shop/predict", {"rows": [ROW]})[0] == 200
    except OSError:
        return False


def test_a_file_that_is_being_written_is_not_opened(directory, files, tmp_path):
    with Server(tmp_path, directory, *POLL) as server:
        content = files[1].read_bytes()
        with (directory / "shop" / "2.fm2").open("wb") as file:
            for start in range(0, len(content), len(content) // 10):
                file.write(content[start : start + len(content) // 10])
                file.flush()
                time.sleep(0.05)
        wait_for(lambda: server.get("/v1/models/shop")["version"] == "2")
        assert not server.events("refused")


def test_a_removed_version_gives_way_to_the_previous_one(directory, files, tmp_path):
    put(files[1], directory / "shop" / "2.fm2")
    with Server(tmp_path, directory, *POLL) as server:
        assert server.get("/v1/models/shop")["version"] == "2"
        (directory / "shop" / "2.fm2").unlink()
        wait_for(lambda: server.get("/v1/models/shop")["version"] == "1")
        (directory / "shop" / "1.fm2").unlink()
        time.sleep(0.4)
        assert server.get("/v1/models/shop")["version"] == "1", "the last version stays"
        put(files[0], directory / "extra.fm2")
        wait_for(lambda: len(server.get("/v1/models")["models"]) == 2)


def test_a_file_is_watched_on_request_and_catalogs_follow(files, scorers, tmp_path):
    model = tmp_path / "model.fm2"
    put(files[0], model)
    with Server(tmp_path, model, "--watch", *POLL) as server:
        items = [{"id": f"i{i}", "ad": f"ad{i}"} for i in range(20)]
        server.post("/v1/models/model/catalogs/ads", {"candidate": ["ad"], "items": items}, "PUT")
        put(files[1], model)
        wait_for(lambda: server.events("replaced"))
        context = {name: value for name, value in ROW.items() if name != "ad"}
        wait_for(lambda: server.get("/v1/models/model")["checksum"] == scorers[1].fingerprint)
        answer = server.post("/v1/models/model/rank", {"context": context, "catalog": "ads", "top": 3})
        expected = scorers[1].ranker(context=list(context)).rank(context, [{"ad": item["ad"]} for item in items], top=3)
        assert answer["indices"] == expected.indices.tolist()
        wait_for(lambda: len(catalog_files(server)) == 2)  # those of the replaced file are removed


def catalog_files(server: Server) -> list[Path]:
    """Return the files with the catalogs of a server: two for each version."""
    return list(Path("/dev/shm").glob(f"fm2-serve-{server.process.pid}-*/catalog-*"))


def test_a_link_to_a_file_outside_the_directory_is_ignored(directory, files, tmp_path):
    secret = tmp_path / "secret.fm2"
    put(files[1], secret)
    (directory / "leak.fm2").symlink_to(secret)
    for name in ("loop.fm2", "loop"):
        (directory / name).symlink_to(name)
    with Server(tmp_path, directory, *POLL) as server:
        assert [model["name"] for model in server.get("/v1/models")["models"]] == ["shop"]
        assert "unknown model" in server.error(404, "POST", "/v2/repository/models/leak/load")
