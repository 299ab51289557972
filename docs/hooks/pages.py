"""Generate the page of all commands from the parser."""

from __future__ import annotations

import argparse
import os
from typing import Any
from unittest import mock

from mkdocs.structure.files import File, Files

from fm2.cli.main import COMMANDS, make_parser

COMMANDS_PAGE = "reference/commands.md"


def on_files(files: Files, config: Any) -> Files:
    """Add the page of all commands."""
    files.append(File.generated(config, COMMANDS_PAGE, content=commands_page()))
    return files


def commands_page() -> str:
    """Return the help of every command, by group."""
    with mock.patch.dict(os.environ, {"COLUMNS": "80", "NO_COLOR": "1"}):
        parser = make_parser()
        (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
        named = iter(commands.choices.items())
        parts = ["# All commands", "The output of `fm2 COMMAND --help`."]
        for title, group in COMMANDS.items():
            parts.append(f"## {title[0].upper()}{title[1:]}")
            for name, command in (next(named) for _ in group):
                parts += [f"### fm2 {name}", f"```text\n{command.format_help()}```"]
    return "\n\n".join(parts) + "\n"
