"""The command line: ``fm2 COMMAND ...``. Each command checks its words, calls one function and prints what came out."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fm2 import __version__
from fm2.cli.comparison import add_compare, add_models
from fm2.cli.completion import add_completion
from fm2.cli.compression import add_cut, add_prune, add_shrink
from fm2.cli.data import add_describe, add_generate, add_prepare
from fm2.cli.engine import add_compile, add_inspect, add_rank
from fm2.cli.exit_codes import EXIT_CODES, FAILED, FINISHED, told
from fm2.cli.parser import MISUSED, Parser
from fm2.cli.report import add_report
from fm2.cli.reproduction import add_reproduce
from fm2.cli.training import add_evaluate, add_export, add_predict, add_train
from fm2.cli.tuning import add_tune

EXAMPLES = """\
  fm2 prepare log.tsv --preset criteo --out data
  fm2 train fmfm data --out run && fm2 compile run --out model.fm2"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; give the exit code, one of those that ``fm2 --help`` tells."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser = make_parser()
    if not words:
        parser.print_help(sys.stderr)
        return MISUSED
    settings = parser.parse_args(words)
    _show_every_character()
    try:
        settings.run(settings)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has gone, as with `fm2 describe DIR | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (Exception, KeyboardInterrupt) as error:
        if settings.debug and isinstance(error, Exception):
            raise
        line, code = told(error, settings)
        print(f"fm2: {line}", file=sys.stderr)
        return code
    return FINISHED


def _show_every_character() -> None:
    """Let a terminal that lacks a character show its number; no result is lost for that."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, io.UnsupportedOperation):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def make_parser() -> argparse.ArgumentParser:
    """Make what understands the words of a command line.

    >>> make_parser().parse_args(["describe", "data"]).data
    'data'
    """
    parser = Parser(
        prog="fm2",
        usage="fm2 COMMAND ...",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_epilog(),
    )
    parser.add_argument("--version", action="version", version=f"fm2 {__version__}", help="show the version")
    parser.add_argument("--debug", action="store_true", help="show the whole trace of an error")
    commands = parser.add_subparsers(prog="fm2", metavar="COMMAND", required=True, help=argparse.SUPPRESS)
    for add in [add for group in COMMANDS.values() for add in group]:
        command = add(commands)
        command.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the whole trace of an error"
        )
        command.set_defaults(
            command=command.prog.split()[-1],
            interrupted=command.get_default("interrupted") or "nothing was left half done",
        )
    parser.description = _description({action.dest: action.help or "" for action in commands._choices_actions})
    return parser


def _description(summaries: Mapping[str, str]) -> str:
    """Tell the commands in the order of the story, under the headings of its chapters."""
    named, width = iter(summaries.items()), max(map(len, summaries)) + 2
    lines = ["Click-through-rate models on one CPU machine, from raw logs to microseconds."]
    for title, group in COMMANDS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:<{width}}{summary}" for name, summary in (next(named) for _ in group)]
    return "\n".join(lines)


def _epilog() -> str:
    codes = "\n".join(f"  {code:<5}{meaning}" for code, meaning in EXIT_CODES.items())
    return f"fm2 COMMAND --help tells all of a command.\n\nexamples:\n{EXAMPLES}\n\nexit codes:\n{codes}"


# The story of a model, chapter by chapter; help shows it so.
COMMANDS: dict[str, tuple[Callable[[Any], argparse.ArgumentParser], ...]] = {
    "from logs to rows": (
        add_generate,
        add_prepare,
        add_describe,
    ),
    "from rows to a model": (
        add_train,
        add_evaluate,
        add_predict,
    ),
    "a smaller model": (
        add_shrink,
        add_prune,
        add_cut,
    ),
    "a model at work": (
        add_compile,
        add_inspect,
        add_rank,
        add_export,
    ),
    "models side by side": (
        add_models,
        add_compare,
        add_tune,
        add_report,
        add_reproduce,
    ),
    "the shell": (add_completion,),
}


if __name__ == "__main__":
    sys.exit(main())
