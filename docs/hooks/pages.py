"""What nobody writes: the page of all commands, which the parser itself knows, and the order of the pages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

from mkdocs.structure.files import File, Files

from fm2.cli.help import command_help
from fm2.cli.main import GROUPS

COMMANDS_PAGE = "commands.md"
# What is read first stands first; pages that are not named here follow by name.
ORDER = (
    "index",
    "data",
    "training",
    "deep",
    "comparison",
    "reproduction",
    "report",
    "tuning",
    "tracking",
    "sklearn",
    "compression",
    "engine",
    "serving",
    "command-line",
    "commands",
    "api",
    "mathematics",
    "measuring",
)


def on_config(config: Any) -> Any:
    """Order the pages."""
    there = {path.stem for path in Path(config["docs_dir"]).glob("*.md")} | {Path(COMMANDS_PAGE).stem}
    named = [name for name in ORDER if name in there]
    config["nav"] = [f"{name}.md" for name in [*named, *sorted(there - set(named))]]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the page of all commands."""
    files.append(File.generated(config, COMMANDS_PAGE, content=commands_page()))
    return files


def commands_page() -> str:
    """Write the help of every command, chapter by chapter."""
    with mock.patch.dict(os.environ, {"COLUMNS": "80"}):
        parts = ["# All commands", "What `fm2 COMMAND --help` says."]
        for title, group in GROUPS.items():
            parts.append(f"## {title}")
            for command in group:
                parts += [f"### fm2 {command.name}", f"```text\n{command_help(command)}```"]
    return "\n\n".join(parts) + "\n"
