"""Every code block of the documentation runs, page by page, from top to bottom."""

from __future__ import annotations

import re
import shutil
from collections import Counter

import pytest
from tests.helpers.clicks import fill
from tests.helpers.documentation import ROOT, Block, Runner, blocks_of, pages

from fm2.models import ModelSpec

# What cannot run here, by how the command begins, and why.
LEFT_OUT = {
    "make demo": "it takes minutes; its parts are tested",
    "make test": "it runs these tests",
    "make capi": "tests/engine/test_c_interface.py builds the library",
    "cc examples/score.c": "tests/engine/test_c_interface.py builds and runs it",
    "./score": "tests/engine/test_c_interface.py builds and runs it",
    ". .venv": "the tests run in the environment already",
    "pip install": "nothing is fetched in tests",
}
# Fewer rows, features and ranks make the same point.
LESS = {"1000000": "5000", "100000": "1000", "4,8,16,29": "4,16"}
# What pages make in Python, and so do not start with; what they make by --out is seen.
WITHOUT = {"README.md": ("data",)}


def quick(spec: ModelSpec, *arguments: int) -> dict[str, object]:
    return {**of_the_model(spec, *arguments), "epochs": 1, "batch_size": 1024, "threads": 1}


of_the_model = ModelSpec.default_settings


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    room = tmp_path_factory.mktemp("documentation")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelSpec, "default_settings", quick)
        fill(room)
    return room


def made_by(page: str, blocks: list[Block]) -> set[str]:
    """Name what the commands of a page make, and so what it does not start with."""
    shell = "\n".join(block.text for block in blocks if block.language == "sh")
    return {*WITHOUT.get(page, ()), *re.findall(r"(?:--out|fm2 generate) (\S+)", shell)}


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_the_blocks_of_a_page_run_from_top_to_bottom(path, filled, tmp_path, monkeypatch):
    blocks = blocks_of(path)
    assert len(blocks) == len(re.findall(r"^ *```\w", path.read_text(encoding="utf-8"), re.MULTILINE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ModelSpec, "default_settings", quick)
    made = made_by(str(path.relative_to(ROOT)), blocks)
    for entry in filled.iterdir():
        if entry.name not in made:
            (shutil.copytree if entry.is_dir() else shutil.copy)(entry, tmp_path / entry.name)
    runner = Runner(LEFT_OUT, LESS)
    for block in blocks:
        runner.run(block)


def test_what_is_left_out_is_there_and_little():
    commands = [
        command
        for path in pages()
        for block in blocks_of(path)
        if block.language == "sh"
        for command in block.commands()
    ]
    counts = Counter(begin for begin in LEFT_OUT for command in commands if command.startswith(begin))
    assert set(counts) == set(LEFT_OUT), "a reason for a command that is nowhere is no reason"
    assert sum(counts.values()) < len(commands) / 2


def test_the_readme_links_to_what_is_there():
    for target in re.findall(r"\]\(([^)#]+)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert target.startswith("http") or (ROOT / target).exists(), target
