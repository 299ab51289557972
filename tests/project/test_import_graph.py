"""Rooms import from earlier rooms only, and torch stays out of the rooms that score and evaluate."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers.processes import run_python

SOURCE = Path(__file__).parents[2] / "src" / "fm2"

# In the order in which data flows. A room may import from itself and from every room above it.
LAYERS = (
    {"_native", "errors", "cpu", "files", "progress", "ray_cluster", "remote", "svg", "field", "schema", "schema_text"},
    {"data"},
    {"models"},
    {"artifacts"},
    {"evaluation"},
    {"training"},
    {"distributed"},
    {"compression"},
    {"engine"},
    {"export"},
    {"serving"},
    {"studies", "estimators", "cli"},  # entry points, which may import everything
)
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in sorted(rooms)}
# Schema.preset and Schema.infer are conveniences that import from the data room when they are called.
ALLOWED = {("schema", "data")}
ROOTS = ("__init__", "__main__")  # the public names, and what `python -m fm2` runs

TORCH_FREE = (
    *("artifacts", "evaluation", "engine", "serving", "data"),
    *("field", "schema", "files", "errors", "remote", "cpu", "svg"),
)
TORCH_FREE_MODULES = (
    *("fm2.models", "fm2.models.spec", "fm2.models.registry", "fm2.models.specs", "fm2.models.complexity"),
    *("fm2.training.resolve", "fm2.training.inputs", "fm2.compression.weights", "fm2.compression.spectrum"),
    *("fm2.cli.main", "fm2.studies.comparison.catalog"),
)


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        yield ".".join(("fm2", *(part for part in parts if part != "__init__"))), path


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported_rooms(path: Path) -> Iterator[tuple[int, str]]:
    """Find what a file imports from fm2, wherever in the file, those for type checking included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "fm2":
            names = [f"fm2.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [node.module or ""]
        yield from ((node.lineno, name.split(".")[1]) for name in names if name.startswith("fm2."))


def test_every_room_has_a_place_in_the_order():
    rooms = {room_of(path) for _, path in modules()} - set(ROOTS)
    assert rooms <= set(LEVEL)


@pytest.mark.parametrize(
    "room", [room for room in LEVEL if (SOURCE / room).is_dir() or (SOURCE / f"{room}.py").is_file()]
)
def test_a_room_imports_from_earlier_rooms_only(room):
    wrong = [
        f"{path.relative_to(SOURCE)}:{line} imports fm2.{other}"
        for _, path in modules()
        if room_of(path) == room
        for line, other in imported_rooms(path)
        if other != "__version__" and LEVEL[other] > LEVEL[room] and (room, other) not in ALLOWED
    ]
    assert not wrong, "\n".join(wrong)


def test_torch_stays_out_of_the_torch_free_rooms():
    free = [name for name, path in modules() if room_of(path) in TORCH_FREE]
    assert len(free) > 20
    code = "\n".join(
        [
            "import importlib, sys",
            f"for name in {[*free, *TORCH_FREE_MODULES]!r}:",
            "    importlib.import_module(name)",
            "    assert 'torch' not in sys.modules, name",
        ]
    )
    done = run_python(code)
    assert done.returncode == 0, done.stderr
