"""The writing commands, what they start from, and what a user does after a crash: the same command again."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.torture.processes import Outcome, run_command, run_function

ROWS = 240
TRAIN = ["--epochs", "2", "--batch-size", "64", "--threads", "1"]
FAST = [*TRAIN, "--dim", "2"]


@dataclass(frozen=True)
class Scenario:
    """A command in a directory with copies of these ``inputs``; the bytes of ``compared`` outputs are reproducible."""

    name: str
    words: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()


def _scenario(name: str, command: str, inputs: str = "", compared: str = "", more: list[str] | None = None) -> Scenario:
    return Scenario(name, (*command.split(), *(more or [])), tuple(inputs.split()), tuple(compared.split()))


LOG = "clicks.csv"
SCENARIOS = (
    _scenario("generate", f"generate log.tsv --rows {ROWS} --fields 3 --features 40", "", "log.tsv log.tsv.truth.npy"),
    _scenario("generate parquet", f"generate log.parquet --rows {ROWS} --fields 3 --features 40", "", "log.parquet"),
    _scenario("prepare", "prepare clicks.csv --label label --out out", "clicks.csv", "out"),
    _scenario(
        "prepare --overwrite", "prepare clicks.csv --label label --out data --overwrite", "clicks.csv data", "data"
    ),
    _scenario(
        "prepare --crosses",
        "prepare clicks.csv --label label --out new/out --crosses auto --crosses-model lr --threads 1",
        "clicks.csv",
        "new/out",
    ),
    _scenario(
        "prepare --trees",
        "prepare clicks.csv --label label --out new/out --trees auto --threads 1",
        "clicks.csv",
        "new/out",
    ),
    _scenario("train", "train fm data --out out", "data", "out", FAST),
    _scenario("train --overwrite", "train fm data --out run --overwrite", "data run", "run", FAST),
    _scenario("train --effort", "train lr data --out out --effort 2", "data", "out/model.safetensors", TRAIN),
    _scenario("train auto", "train auto data --out out", "data", "out/model.safetensors", TRAIN),
    _scenario("train --from", "train fm data --out out --from fm", "data fm", "out", FAST),
    _scenario("calibrate", "calibrate run data", "data run", "run"),
    _scenario("compare", "compare data --models lr,fm --out out", "data", "out/lr-0 out/fm-0", FAST),
    _scenario(
        "compare --overwrite", "compare data --models lr --out study --overwrite", "data study", "study/lr-0", TRAIN
    ),
    _scenario("tune", "tune lr data --out out --trials 2 --threads 1 --fix epochs=1", "data", "out/best.toml"),
    _scenario("shrink", "shrink run data --out out", "data run", "out"),
    _scenario("shrink --warm", "shrink run data --out out --warm", "data run", "out"),
    _scenario("shrink sweep", "shrink run data --out out --variance 0.5,0.9", "data run", "out"),
    _scenario("prune", "prune run data --out out --keep 0.5", "data run", "out"),
    _scenario("cut", "cut run data --out out --rank 2", "data run", "out"),
    _scenario("ablate", "ablate fm data --out out --fields C1 --no-parts", "data fm", "out/complete-0"),
    _scenario("compile", "compile run --out out.fm2 --plan direct", "run", "out.fm2"),
    _scenario("compile auto", "compile run --out out.fm2", "run"),
    _scenario("predict csv", "predict run clicks.csv --out out.csv", "run clicks.csv", "out.csv"),
    _scenario("predict gz", "predict model.fm2 clicks.csv --out out.csv.gz", "model.fm2 clicks.csv", "out.csv.gz"),
    _scenario("predict npy", "predict model.fm2 clicks.csv --out out.npy", "model.fm2 clicks.csv", "out.npy"),
    _scenario("predict text", "predict model.fm2 clicks.csv --out out.txt", "model.fm2 clicks.csv", "out.txt"),
    _scenario(
        "predict parquet", "predict model.fm2 clicks.csv --out out.parquet", "model.fm2 clicks.csv", "out.parquet"
    ),
    _scenario("export", "export run --out out.onnx", "run", "out.onnx"),
    _scenario("report", "report run --data data --threads 1 --out out.html", "run data"),
)

# What the scenarios start from.
BASE = (
    "generate log.tsv --rows 600 --fields 3 --features 40",
    "prepare clicks.csv --label label --out data",
    "train fmfm data --out run --dim 3 " + " ".join(TRAIN),
    "train fm data --out fm " + " ".join(FAST),
    "compare data --models lr --out study " + " ".join(TRAIN),
    "compile run --out model.fm2 --plan direct",
)
COMPILED = ("fm", "run --plan direct", "run --plan cached", "run --plan spectral --rank 2 --dtype i8")


def make_base(base: Path) -> None:
    """Make the inputs of all scenarios."""
    base.mkdir()
    for line in BASE:
        if line.startswith("prepare"):
            rows = [row.split("\t") for row in (base / "log.tsv").read_text().splitlines()]
            lines = [",".join(row) for row in [["label", "I1", "C1", "C2"], *rows]]
            (base / "clicks.csv").write_text("\n".join(lines) + "\n")
        _run(line, base)
    (base / "compiled").mkdir()
    for number, words in enumerate(COMPILED):
        _run(f"compile {words} --out compiled/{number}.fm2", base)
    _make_catalog(base)


def _run(line: str, base: Path) -> None:
    done = run_command(line.split(), base)
    if done.code:
        raise SystemExit(f"torture: fm2 {line} failed: {done.output}")


def _make_catalog(base: Path) -> None:
    """Make a directory with a compiled model and a catalog of it."""
    (base / "catalog").mkdir()
    shutil.copy(base / "model.fm2", base / "catalog")

    def save_catalog() -> None:
        from fm2.engine.scorer import load

        ranker = load(base / "model.fm2", threads=1).ranker(candidate=["C2"])
        ranker.catalog([{"C2": "a"}, {"C2": "b"}]).save(base / "catalog" / "catalog.fm2")

    done = run_function(save_catalog, base)
    if done.code:
        raise SystemExit(f"torture: the catalog could not be made: {done.output}")


def start(scenario: Scenario, base: Path, work: Path) -> None:
    """Make a directory with a scenario's inputs."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    for name in scenario.inputs:
        source = base / name
        shutil.copytree(source, work / name) if source.is_dir() else shutil.copy(source, work / name)


def repeat(scenario: Scenario, work: Path) -> Outcome:
    """Run the command again, as its messages say, until it succeeds."""
    words = list(scenario.words)
    done = run_command(words, work)
    for option in ("--resume", "--overwrite"):
        if done.code == 1 and "already exists" in done.last_line and option in done.last_line:
            return run_command([*words, option], work)
    return done
