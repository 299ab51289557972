"""Progress bars, plain progress lines, and the summary of a training run."""

from __future__ import annotations

import io
import math
import re
import sys

import pytest

from fm2.progress import Progress
from fm2.training.loop import TrainingProgress
from fm2.training.progress import Reports, TrainingDisplay

EVALUATION = {"log_loss": 0.45, "auc": 0.75, "best": True}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch, width=120) -> Terminal:
    """Replace standard error; not a fixture, because pytest sets standard error again before it calls the test."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def report(rows=5_000, loss=0.5, evaluation=EVALUATION, begun=0, **more):
    return TrainingProgress(
        rows=rows, total=20_000, begun=begun, epoch_rows=10_000, loss=loss, evaluation=evaluation, **more
    )


def test_a_terminal_shows_one_bar_and_prints_messages_above_it(monkeypatch):
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr("fm2.training.progress.BAR_SECONDS", 0)
    monkeypatch.setattr("fm2.training.progress.SPEED_SECONDS", 0)
    with TrainingDisplay() as watch:
        watch(report())
        print("a message", file=sys.stderr)
        watch(report(rows=10_000))
    assert sys.stderr is terminal
    shown = terminal.getvalue()
    assert "training" in shown
    assert "25%" in shown
    assert "0.5 of at most 2 epochs: " in shown
    assert "rows/s, loss 0.5000; validation log loss 0.4500, AUC 0.7500" in shown
    assert "a message\n" in shown
    assert shown.endswith("\x1b[2K")  # the bar is removed at the end


@pytest.mark.parametrize(
    ("width", "stage", "expected"),
    [
        (80, "", " training  25% 0.5 of at most 2 epochs: validation log loss 0.4500, AUC 0.7500"),
        (
            90,
            "candidate 12 of 16, round 1 of 4",
            " training  25% candidate 12 of 16, round 1 of 4: validation log loss 0.4500, AUC 0.7500",
        ),
        (50, "candidate 12 of 16, round 1 of 4", " training  25% validation log loss 0.4500"),
    ],
)
def test_a_narrow_terminal_cuts_nothing_off(monkeypatch, width, stage, expected):
    terminal = open_terminal(monkeypatch, width)
    monkeypatch.setattr("fm2.training.progress.BAR_SECONDS", 0)
    with TrainingDisplay() as watch:
        watch(report(stage=stage))
    lines = re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", terminal.getvalue()).replace("\r", "\n").splitlines()
    shown = [line for line in lines if line.strip()]
    assert shown
    assert all(line.startswith(expected) and "…" not in line and len(line) <= width for line in shown)


def test_the_bar_of_a_race_shows_the_progress_of_a_round(monkeypatch):
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr("fm2.training.progress.BAR_SECONDS", 0)
    with TrainingDisplay() as watch:
        watch(report(rows=12_000, begun=10_000, stage="candidate 1 of 2, round 2 of 4"))
    assert " 20%" in terminal.getvalue()


def test_a_message_of_restart_is_printed_after_the_bar_is_removed(monkeypatch):
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr("fm2.training.progress.BAR_SECONDS", 0)
    with TrainingDisplay() as watch:
        watch(report())
        watch.restart("fm2: fmfm-0 ...")
    assert terminal.getvalue().endswith("\x1b[2Kfm2: fmfm-0 ...\n")


def test_long_tasks_show_rows_and_speed_and_short_tasks_nothing(monkeypatch):
    terminal = open_terminal(monkeypatch)
    with Progress("reading", 100) as progress:
        progress.update(50, rows=10)
    assert terminal.getvalue() == ""
    monkeypatch.setattr("fm2.progress.SHOW_AFTER_SECONDS", 0)
    with Progress("reading", 100) as progress:
        progress.update(50, rows=1_234)
    assert "reading" in terminal.getvalue()
    assert "50%" in terminal.getvalue()
    assert "1,234 rows " in terminal.getvalue()


@pytest.fixture
def clock(monkeypatch):
    """Let a test move the time of progress lines."""
    seconds = [100.0]
    monkeypatch.setattr("fm2.progress.time.perf_counter", lambda: seconds[0])
    return seconds


def test_a_log_file_gets_a_line_after_ten_seconds_and_then_every_thirty(capsys, clock):
    lines = []
    with TrainingDisplay() as watch:
        for clock[0] in range(100, 200):
            watch(report(loss=float("nan"), evaluation=None))
            lines += [(clock[0] - 100, line) for line in capsys.readouterr().err.splitlines()]
    assert [second for second, _ in lines] == [10, 40, 70]
    assert lines[0][1] == "fm2: training: 25%, at most 0:30 left; 500 rows/s"


def test_a_race_promises_no_end(capsys, clock):
    with TrainingDisplay() as watch:
        clock[0] += 10
        watch(report(loss=float("nan"), evaluation=None, stage="candidate 1 of 6, round 1 of 4"))
    line = capsys.readouterr().err.strip()
    assert line == "fm2: training: epoch 0.5; candidate 1 of 6, round 1 of 4: 500 rows/s"


@pytest.mark.parametrize(
    ("loss", "evaluation", "expected"),
    [
        (float("nan"), None, ""),
        (0.5, None, ": loss 0.5000"),
        (0.5, EVALUATION, ": loss 0.5000; validation log loss 0.4500, AUC 0.7500"),
        (float("nan"), EVALUATION, ": validation log loss 0.4500, AUC 0.7500"),
    ],
)
def test_no_speed_is_shown_right_after_a_switch_of_candidates(capsys, clock, loss, evaluation, expected):
    first, second = "candidate 1 of 6, round 1 of 4", "candidate 2 of 6, round 1 of 4"
    with TrainingDisplay() as watch:
        watch(report(stage=first))
        clock[0] += 10
        watch(report(rows=256, loss=loss, evaluation=evaluation, stage=second))
        clock[0] += 30
        watch(report(rows=3_000, loss=loss, evaluation=evaluation, stage=second))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"fm2: training: epoch 0.0; {second}{expected}"
    assert f"{second}: 100 rows/s" in lines[1]


def test_a_bar_without_speed_and_loss_shows_the_epochs(monkeypatch):
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr("fm2.training.progress.BAR_SECONDS", 0)
    monkeypatch.setattr("fm2.training.progress.SPEED_SECONDS", math.inf)
    with TrainingDisplay() as watch:
        watch(report(loss=float("nan"), evaluation=None))
    assert " 25% 0.5 of at most 2 epochs\n" in re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", terminal.getvalue())


@pytest.mark.parametrize(
    ("called", "progress", "lines"),
    [(False, None, 1), (False, False, 0), (True, None, 0), (True, False, 0)],
)
def test_progress_is_shown_unless_there_is_a_callback(capsys, clock, called, progress, lines):
    received = []
    with Reports(received.append if called else None, progress) as watch:
        clock[0] += 10
        watch(report())
    assert len(capsys.readouterr().err.splitlines()) == lines
    assert len(received) == called


def test_progress_true_shows_a_bar_in_addition_to_a_callback(monkeypatch):
    terminal = open_terminal(monkeypatch)
    monkeypatch.setattr("fm2.training.progress.BAR_SECONDS", 0)
    received = []
    with Reports(received.append, True) as watch:
        watch(report())
    assert "training" in terminal.getvalue()
    assert len(received) == 1


def test_a_log_file_shows_the_progress_of_long_tasks(capsys, clock):
    with Progress("reading", 100) as progress:
        for clock[0] in (105, 110, 120, 140):
            progress.update(50, rows=1000)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["fm2: reading: 50%, 1,000 rows, 100 rows/s", "fm2: reading: 50%, 1,000 rows, 25 rows/s"]
    with Progress("reading", 100, shown=False) as progress:
        clock[0] += 100
        progress.update(50, rows=1000)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (report(evaluation={**EVALUATION, "best": False}, waited=4), "early stopping: no improvement in 4 evaluations"),
        (report(rows=20_000, evaluation={**EVALUATION, "best": False}), "reached the maximum of 2 epochs"),
        (
            report(rows=20_000),
            "reached the maximum of 2 epochs; validation log loss was still improving, "
            "continue with --resume --epochs N",
        ),
        (
            report(rows=20_000, metric="auc"),
            "reached the maximum of 2 epochs; validation AUC was still improving, continue with --resume --epochs N",
        ),
        (
            report(rows=20_000, evaluation={**EVALUATION, "settled": False}),
            "reached the maximum of 2 epochs; the target sparsity was not reached, continue with --resume --epochs N",
        ),
    ],
)
def test_the_summary_says_why_the_training_ended(last, reason):
    watch = TrainingDisplay(terminal=False)
    watch(last)
    assert watch.summary().startswith(f"{last.rows / 10_000:.2f} epochs in 0 s (")
    assert watch.summary().endswith(f" rows/s); {reason}")


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (5_000, "(early stopping: no improvement in 4 evaluations); raise --patience to continue"),
        (20_000, "(reached the maximum of 2 epochs); raise --epochs to continue"),
    ],
)
def test_the_summary_of_a_finished_run_says_how_to_train_it_further(rows, text):
    watch = TrainingDisplay(terminal=False)
    watch(report(rows=rows, begun=rows, loss=float("nan"), waited=4))
    assert watch.summary() == f"already finished {text}"


def test_the_summary_of_a_resumed_run_counts_the_epochs_before():
    watch = TrainingDisplay(terminal=False)
    assert watch.summary() == "already finished; nothing left to train"
    watch(
        TrainingProgress(rows=15_000, total=20_000, begun=5_000, epoch_rows=10_000, loss=0.5, evaluation=None, waited=1)
    )
    assert watch.summary().startswith("1.50 epochs (0.50 before resuming) in 0 s (")
