"""Datasets, runs and models at URLs are copied to a local cache, once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.helpers.web_server import Site, serve

import fm2
from fm2 import Fm2Error
from fm2.data.splits import SPLITS
from fm2.remote.paths import local_path
from fm2.remote.trees import UPLOADING
from fm2.serving.sources import parse_sources, scan


def test_a_copy_is_downloaded_once_and_again_after_a_change(memory):
    memory.pipe({"/b/data/a": b"1", "/b/data/sub/c": b"22"})
    messages: list[str] = []
    path = local_path("memory://b/data", messages.append)
    assert (path / "sub" / "c").read_bytes() == b"22"
    assert local_path("memory://b/data/", messages.append) == path
    assert len(messages) == 1
    assert messages[0].startswith("downloaded 3 bytes, memory://b/data, to ")
    memory.pipe_file("/b/data/sub/c", b"33")
    memory.rm_file("/b/data/a")
    assert {file.name: file.read_bytes() for file in local_path("memory://b/data").rglob("*") if file.is_file()} == {
        "c": b"33"
    }


def test_a_damaged_copy_is_downloaded_again(memory):
    memory.pipe_file("/b/model", b"good")
    path = local_path("memory://b/model")
    path.write_bytes(b"evil")
    assert local_path("memory://b/model").read_bytes() == b"good"
    path.unlink()
    assert local_path("memory://b/model").read_bytes() == b"good"


def test_a_file_may_become_a_directory(memory):
    memory.pipe_file("/b/x", b"file")
    assert local_path("memory://b/x").is_file()
    memory.rm_file("/b/x")
    memory.pipe_file("/b/x/y", b"directory")
    assert (local_path("memory://b/x") / "y").read_bytes() == b"directory"


@pytest.mark.parametrize("name", ["../../evil", "a/../../../evil", "a/./evil", "/evil"])
def test_names_outside_of_the_directory_are_refused(memory, monkeypatch, cache, name):
    memory.pipe_file("/b/data/good", b"1")
    found = {f"/b/data/{name}": {"name": f"/b/data/{name}", "size": 1, "type": "file"}}
    monkeypatch.setattr(type(memory), "find", lambda *_, **__: found)
    with pytest.raises(Fm2Error, match="cannot read memory://b/data: unsafe file name"):
        local_path("memory://b/data")
    assert not list(cache.rglob("evil"))


def test_what_is_missing_or_incomplete(memory):
    with pytest.raises(Fm2Error, match="memory://b/data: not found"):
        fm2.Dataset.open("memory://b/data")
    memory.pipe({"/b/data/manifest.json": b"{}", f"/b/data/{UPLOADING}": b""})
    with pytest.raises(Fm2Error, match="memory://b/data is incomplete: its upload"):
        fm2.Dataset.open("memory://b/data")
    with pytest.raises(Fm2Error, match="memory://bucket has no name after the last slash"):
        fm2.train("lr", "data", "memory://bucket")


def test_errors_name_the_url(memory):
    memory.pipe_file("/b/data/manifest.json", b"{}")
    with pytest.raises(Fm2Error, match=r"^memory://b/data is not a prepared dataset"):
        fm2.Dataset.open("memory://b/data")
    memory.pipe_file("/b/model.fm2", b"not a model")
    with pytest.raises(Fm2Error, match=r"^load: memory://b/model.fm2"):
        fm2.load("memory://b/model.fm2")


def test_a_full_disk_is_reported_before_the_download(memory, monkeypatch):
    memory.pipe_file("/b/model", b"x" * 1000)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(Fm2Error, match=r"cannot download 1,000 bytes: 10 bytes are free in .*; FM2_CACHE selects"):
        local_path("memory://b/model")


def page(*links: str) -> bytes:
    return "".join(f'<a href="{link}">{link}</a>\n' for link in links).encode()


def test_a_directory_over_http_is_a_page_of_links(dataset, cache: Path):
    names = ["manifest.json", *dataset.manifest["files"]]
    files = {f"data/{name}": (dataset.path / name).read_bytes() for name in names}
    top = page(*{name.partition("/")[0] + "/" * ("/" in name) for name in names}, "../", "../../secret", "/etc/passwd")
    pages = {f"data/{split}/": page("ids.npy", "labels.npy", "rows.npy", "?C=N;O=D") for split in SPLITS}
    with serve(Site({**files, **pages, "data/": top, "data": top})) as site:
        copy = fm2.Dataset.open(f"{site.url}/data")
        copy.verify()
        assert copy.manifest == dataset.manifest
        (state,) = cache.rglob("state.json")
        assert sorted(json.loads(state.read_text())["files"]) == sorted(names)


def test_no_secret_is_stored_in_the_cache(cache: Path):
    with serve(Site({"x.npy": b"1"})) as site:
        local_path(site.url.replace("//", "//me:SECRET@") + "/x.npy?signature=SECRET")
    (state,) = cache.rglob("state.json")
    assert "SECRET" not in state.read_text()
    assert json.loads(state.read_text())["url"].endswith("/x.npy?***")


def test_served_models_may_be_at_urls(memory):
    memory.pipe({"/b/models/shop.fm2": b"first", "/b/models/ads/3.fm2": b"third"})
    one, named = parse_sources(["memory://b/models/shop.fm2", "ads@7=memory://b/models/ads/3.fm2"])
    assert (one.name, one.version, one.path.read_bytes()) == ("shop", "1", b"first")
    assert (named.name, named.version, named.path.read_bytes()) == ("ads", "7", b"third")
    found = scan(parse_sources(["memory://b/models"]))
    assert {key: path.read_bytes() for key, path in found.items()} == {("shop", "1"): b"first", ("ads", "3"): b"third"}
