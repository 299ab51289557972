"""``fm2 completion``: a script by which a shell completes commands, options, choices and the names of files."""

from __future__ import annotations

import argparse
from typing import Any

from fm2.errors import Fm2Error, require

SHELLS = ("bash", "zsh", "fish")


def add_completion(commands: Any) -> argparse.ArgumentParser:
    """Add ``fm2 completion``."""
    command: argparse.ArgumentParser = commands.add_parser(
        "completion",
        help="print a script by which a shell completes fm2's words",
        description="Print a script by which a shell completes commands, options, choices and files.",
        epilog='In bash: eval "$(fm2 completion bash)", or that line in ~/.bashrc.',
    )
    command.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    command.set_defaults(run=_completion)
    return command


def _completion(settings: argparse.Namespace) -> None:
    print(completion_script(settings.shell))


def completion_script(shell: str) -> str:
    """Give the script for a shell; words that stand for no choice are completed as files."""
    from fm2.cli.main import make_parser

    shtab = require("shtab", "train", "fm2 completion")
    if shell not in shtab.SUPPORTED_SHELLS:
        raise Fm2Error(f"completion: this shtab does not know {shell}: pip install --upgrade shtab")
    parser = make_parser()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            action.help = None  # what help leaves out would not be completed
            for command in action.choices.values():
                _complete_files(command, shtab)
    script: str = shtab.complete(parser, shell)
    return script


def _complete_files(command: argparse.ArgumentParser, shtab: Any) -> None:
    """Let what takes a text of its own be completed by the files that there are; a number cannot be one."""
    for action in command._actions:
        if action.nargs != 0 and action.choices is None and action.type is None:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
