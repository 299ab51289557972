"""The OpenAPI description, names and keys."""

from __future__ import annotations

import pytest
from openapi_spec_validator import validate

from fm2.errors import Fm2Error
from fm2.serving.keys import find_right, read_keys
from fm2.serving.openapi import description
from fm2.serving.routes import ROUTES
from fm2.serving.sources import parse_sources, scan


def test_the_description_is_valid_and_has_every_route():
    described = description()
    validate(described)
    operations = {(method.upper(), path) for path, item in described["paths"].items() for method in item}
    assert operations == {(route.method, route.path) for route in ROUTES}
    assert len(operations) == len(ROUTES)
    identifiers = [operation["operationId"] for item in described["paths"].values() for operation in item.values()]
    assert len(set(identifiers)) == len(identifiers)


def test_directories_have_models_and_versions(tmp_path):
    for name in ("a.fm2", "shop/1.fm2", "shop/10.fm2", "shop/.2.fm2.partial", ".hidden.fm2", "notes.txt", "b c.fm2"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert sorted(scan(parse_sources([str(tmp_path)]))) == [("a", "1"), ("shop", "1"), ("shop", "10")]
    with pytest.raises(Fm2Error, match="two files are version 1"):
        parse_sources(["x/a.fm2", "y/a.fm2"])


@pytest.mark.parametrize("line", ["predict app", "admin app " + "k" * 20, "predict app short", "predict app sha256:12"])
def test_invalid_keys_are_refused_with_their_line(tmp_path, line):
    path = tmp_path / "keys"
    path.write_text(f"# comment\n{line}\n")
    with pytest.raises(Fm2Error, match="line 2"):
        read_keys(path)


def test_a_key_is_not_kept_in_memory(tmp_path):
    path = tmp_path / "keys"
    path.write_text(f"manage ops {'k' * 20}\n")
    (key,) = read_keys(path)
    assert "k" * 20 not in repr(key)
    assert find_right([key], f"bearer {'k' * 20}") == "manage"
    assert find_right([key], f"Bearer {'k' * 19}") is None
    assert find_right([key], None) is None
