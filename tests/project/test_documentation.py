"""Every code block of the documentation runs, from top to bottom of each page."""

from __future__ import annotations

import re
import shutil
from collections import Counter

import pytest
from tests.helpers.clicks import fill
from tests.helpers.documentation import ROOT, Block, Runner, blocks_of, pages

from fm2.models import ModelSpec

# Commands that cannot run here, by prefix, and the reason.
SKIPPED = {
    "make demo": "takes minutes; its parts are tested",
    "make test": "runs these tests",
    "make torture": "takes minutes; make test runs a minute of it",
    "make capi": "tests/engine/test_c_interface.py builds the library",
    "cc examples/score.c": "tests/engine/test_c_interface.py builds and runs it",
    "./score": "tests/engine/test_c_interface.py builds and runs it",
    "pip install": "tests do not use the network",
    "fm2 train fmfm data --workers": "tests/distributed/test_workers_option.py starts workers",
    "fm2 prepare 'logs/*.tsv.gz' --preset criteo --engine ray": "tests/data/test_ray_engine.py starts Ray",
    "fm2 compare data --models lr,fm,fmfm --epochs 2 --jobs": "tests/studies/test_jobs.py trains several runs at once",
    "fm2 tune fmfm data --trials 5 --fix epochs=1 --jobs": "tests/studies/test_jobs.py trains several trials at once",
    "torchrun": "tests/distributed/test_nodes.py and test_runs.py start it",
}
# Smaller sizes keep the tests fast.
LESS = {"1000000": "5000", "100000": "1000", "4,8,16,29": "4,16"}
# Outputs that a page creates in Python; outputs of --out are found in the page.
CREATED_IN_PYTHON = {"README.md": ("data", "run")}


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
    """Return the outputs that a page creates itself."""
    shell = "\n".join(block.text for block in blocks if block.language == "sh")
    return {*CREATED_IN_PYTHON.get(page, ()), *re.findall(r"(?:--out|fm2 generate) (\S+)", shell)}


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_code_blocks_run(path, filled, tmp_path, monkeypatch):
    blocks = blocks_of(path)
    assert len(blocks) == len(re.findall(r"^ *```\w", path.read_text(encoding="utf-8"), re.MULTILINE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FM2_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(ModelSpec, "default_settings", quick)
    made = made_by(str(path.relative_to(ROOT)), blocks)
    for entry in filled.iterdir():
        if entry.name not in made:
            (shutil.copytree if entry.is_dir() else shutil.copy)(entry, tmp_path / entry.name)
    with Runner(SKIPPED, LESS) as runner:
        for block in blocks:
            runner.run(block)


def test_skipped_commands_exist_and_are_few():
    commands = [
        command
        for path in pages()
        for block in blocks_of(path)
        if block.language == "sh"
        for command in block.commands()
    ]
    counts = Counter(begin for begin in SKIPPED for command in commands if command.startswith(begin))
    assert set(counts) == set(SKIPPED), "remove reasons for commands that no page has"
    assert sum(counts.values()) < len(commands) / 2


def test_readme_links_exist():
    for target, anchor in re.findall(r"\]\(([^)#]+)#?([^)]*)\)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert target.startswith("http") or (ROOT / target).exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", (ROOT / target).read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {heading.lower().replace(" ", "-") for heading in headings}, f"{target}#{anchor}"
