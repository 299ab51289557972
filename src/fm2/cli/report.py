"""The command that shows what was trained: ``fm2 report``."""

from __future__ import annotations

import argparse
from typing import Any


def add_report(commands: Any) -> argparse.ArgumentParser:
    """Add ``fm2 report``."""
    command: argparse.ArgumentParser = commands.add_parser(
        "report",
        help="write a page of tables and pictures on trained models",
        description="Write one HTML page, which needs nothing else, on a run or on all models of a comparison.",
        epilog="It has the paper's pictures for your own data; a page that is there already is replaced.",
    )
    command.add_argument("source", metavar="RUN_OR_COMPARE", help="a directory that fm2 train or fm2 compare made")
    command.add_argument("--out", required=True, metavar="FILE", help="the page to write, such as report.html")
    command.add_argument("--data", metavar="DATA", help="the prepared data set; a comparison knows its own")
    command.add_argument(
        "--shrink", metavar="DIR", help="runs of fm2 shrink at several variances; those beside RUN_OR_COMPARE are found"
    )
    command.add_argument(
        "--threads", type=int, default=0, metavar="N", help="of the native parts (default: all processors)"
    )
    command.set_defaults(run=_report)
    return command


def _report(settings: argparse.Namespace) -> None:
    from fm2.studies.reporting.report import report

    out = report(settings.source, settings.out, data=settings.data, shrink=settings.shrink, threads=settings.threads)
    if out.is_file():  # and no pipe, which takes the page alone
        print(f"{out.stat().st_size:,} bytes in {out}; open it in any browser")
