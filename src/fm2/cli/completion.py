"""``fm2 completion``: shell completion of commands, options, choices and file names."""

from __future__ import annotations

import argparse

from fm2.cli.command import DEBUG, Argument, command
from fm2.errors import Fm2Error, require

SHELLS = ("bash", "zsh", "fish")


@command(
    "completion",
    "print a shell completion script",
    description="Print a script that completes commands, options, choices and file names in a shell.",
    example='eval "$(fm2 completion bash)"',
    arguments=(Argument("shell", ", ".join(SHELLS), metavar="SHELL", choices=SHELLS),),
    notes="To keep it, add the example line to ~/.bashrc.",
)
def completion(options: argparse.Namespace) -> None:
    from fm2.cli.main import COMMANDS

    shell, shtab = options.shell, require("shtab", "train", "completion")
    if shell not in shtab.SUPPORTED_SHELLS:
        raise Fm2Error(f"completion: this version of shtab does not support {shell}; pip install --upgrade shtab")
    parser = argparse.ArgumentParser(prog="fm2")
    parser.add_argument("--version", action="version", help="show the version")
    DEBUG.add_to(parser)
    commands = parser.add_subparsers()
    for entry in COMMANDS.values():
        subparser = commands.add_parser(entry.name, help=entry.summary)
        for argument in (*entry.arguments(), DEBUG):
            action = argument.add_to(subparser)
            if argument.takes_value and argument.type is str and not argument.choices:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell))
