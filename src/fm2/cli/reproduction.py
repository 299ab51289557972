"""``fm2 reproduce``: the paper's tables from the original files."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from fm2.cli.comparison import Teller, read_files
from fm2.errors import Fm2Error


def add_reproduce(commands: Any) -> argparse.ArgumentParser:
    """Add ``fm2 reproduce``."""
    command: argparse.ArgumentParser = commands.add_parser(
        "reproduce",
        help="make the paper's tables from the original files",
        description="Make the paper's tables 5 to 8 from its logs, our figures beside the published ones.",
        epilog="PATH is Criteo's train.txt or Avazu's train, packed or not, all of it or a part. DIR gets the prepared "
        "rows, the runs, and the tables as reproduction.md and reproduction.json. The whole of either log takes "
        "many hours; Ctrl-C stops cleanly, and --resume goes on.",
    )
    command.add_argument("log", choices=("criteo", "avazu"), metavar="criteo|avazu", help="which of the paper's logs")
    command.add_argument("source", metavar="PATH", help="the file")
    command.add_argument("--out", required=True, metavar="DIR", help="the directory to make")
    command.add_argument(
        "--protocol",
        choices=("fm2", "paper"),
        default="fm2",
        help="train with fm2's defaults, or as the paper's code does (default: %(default)s)",
    )
    command.add_argument(
        "--models", metavar="LIST", help="of the paper's table: lr,fmfm or so, or all (default: those it trained)"
    )
    command.add_argument("--tables", metavar="LIST", help="5,6,8 of Criteo, 5,7 of Avazu (default: all)")
    command.add_argument("--seeds", type=int, metavar="N", help="trainings of each model (default: 1)")
    command.add_argument(
        "--settings", nargs="+", default=[], metavar="FILE", help="TOML files of settings, as for fm2 compare"
    )
    command.add_argument("--resume", action="store_true", help="go on; what is finished is not done again")
    command.add_argument("--overwrite", action="store_true", help="replace what is there already")
    command.add_argument("--threads", type=int, metavar="N", help="how many (default: all processors)")
    command.add_argument("--json", action="store_true", help="print the tables as JSON")
    command.set_defaults(run=_reproduce, interrupted="the same command with --resume goes on from here")
    return command


def _reproduce(settings: argparse.Namespace) -> None:
    from fm2.cpu import check_threads
    from fm2.studies.reproduction.protocol import check_source

    check_threads("reproduce", settings.threads or 0)
    check_source(settings.source)
    common, own = read_files("reproduce", [Path(file) for file in settings.settings])
    common |= {"threads": settings.threads} if settings.threads else {}
    chosen = {name: getattr(settings, name) for name in ("protocol", "models", "seeds", "resume", "overwrite")}

    from fm2.studies.reproduction.record import PAGE  # torch, which takes seconds: only now that there is work for it
    from fm2.studies.reproduction.reproduce import reproduce
    from fm2.training.progress import ProgressLine

    with ProgressLine() as watch:
        teller = Teller(watch, settings.debug)
        callbacks: dict[str, Any] = {"watch": watch, "on_start": teller.begin, "on_result": teller.tell}
        done = reproduce(
            settings.log,
            settings.source,
            settings.out,
            tables=_numbers(settings.tables),
            model_settings=own,
            **callbacks,
            **chosen,
            **common,
        )
    if settings.json:
        print(json.dumps(done.record(), ensure_ascii=False))
    else:
        print("\n".join(done.lines()))
        print(f"\n{done.path / PAGE}")
    if done.failed:
        raise Fm2Error(f"reproduce: failed: {', '.join(row['run'] for row in done.failed)}; --resume tries again")


def _numbers(text: str | None) -> list[int] | None:
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise Fm2Error(f"reproduce: --tables is '{text}', not numbers like 5,6") from None
