"""Generate the page of all commands from the parser, and the page of all models from their declarations."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from mkdocs.structure.files import File, Files

from fm2.cli.help import command_help
from fm2.cli.main import GROUPS

sys.path.insert(0, str(Path(__file__).parent))  # mkdocs loads hooks by their path
from models_page import models_page

COMMANDS_PAGE = "reference/commands.md"
MODELS_PAGE = "reference/models.md"


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    files.append(File.generated(config, COMMANDS_PAGE, content=commands_page()))
    files.append(File.generated(config, MODELS_PAGE, content=models_page()))
    return files


def commands_page() -> str:
    """Return the help of every command, by group."""
    with mock.patch.dict(os.environ, {"COLUMNS": "80"}):
        parts = ["# All commands", "The output of `fm2 COMMAND --help`."]
        for title, group in GROUPS.items():
            parts.append(f"## {title}")
            for command in group:
                parts += [f"### fm2 {command.name}", f"```text\n{command_help(command)}```"]
    return "\n\n".join(parts) + "\n"
