"""Help pages, generated from the declarations of the commands."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from fm2.cli.command import DEBUG, Argument, Command
from fm2.cli.exit_codes import EXIT_CODES

MAX_WIDTH, NAME_WIDTH = 100, 26
NO_BREAK = "\xa0"
HELP = Argument("-h, --help", "show this page", action="help")

INTRODUCTION = "Train click-through-rate models on CPUs and serve predictions in microseconds."
LOCATIONS = (
    "Every file or directory can be a URL, such as s3://bucket/log.tsv.gz, gs://, hdfs:// or https:// "
    "(pip install -c constraints.txt '.[remote]' in a clone of fm2)."
)
EXAMPLES = """\
  fm2 prepare log.tsv --preset criteo --out data
  fm2 train fmfm data --out run
  fm2 compile run --out model.fm2"""


def main_help(groups: Mapping[str, Sequence[Command]]) -> str:
    """Return the page of ``fm2 --help``: all commands by group, examples and exit codes."""
    sections = ["usage: fm2 COMMAND ...", INTRODUCTION]
    for title, commands in groups.items():
        sections.append(f"{title}:\n" + "\n".join(f"  {command.name:<12}{command.summary}" for command in commands))
    codes = "\n".join(f"  {code:<5}{meaning}" for code, meaning in EXIT_CODES.items())
    general = (HELP, Argument("--version", "show the version", action="version"), DEBUG)
    sections += [_section("Options", general), f"Examples:\n{EXAMPLES}", f"Exit codes:\n{codes}"]
    return "\n\n".join([*sections, _wrap(LOCATIONS), "Run fm2 COMMAND --help for the options of a command."]) + "\n"


def command_help(command: Command) -> str:
    """Return the help page of a command."""
    arguments = (*command.arguments(), HELP, DEBUG)
    groups: dict[str, list[Argument]] = {"Arguments": [], "Options": []}
    for argument in arguments:
        default_group = "Options" if argument.is_option else "Arguments"
        groups.setdefault(argument.group or default_group, []).append(argument)
    sections = [_usage(command.name, arguments), _wrap(command.description)]
    sections += [_section(title, members) for title, members in groups.items() if members]
    sections += [f"Example:\n  {command.example}", *([_wrap(command.notes)] if command.notes else [])]
    return "\n\n".join(sections) + "\n"


def _usage(name: str, arguments: Iterable[Argument]) -> str:
    """Return the usage line: everything that is required, then "[options]"."""
    listed = list(arguments)
    alternatives = " | ".join(argument.usage for argument in listed if argument.alternative)
    parts = [argument.usage for argument in listed if not argument.is_option]
    parts += [f"({alternatives})"] if alternatives else []
    parts += [argument.usage for argument in listed if argument.required]
    program = f"usage: fm2 {name} "
    unbroken = [part.replace(" ", NO_BREAK).replace(f"{NO_BREAK}|{NO_BREAK}", f"{NO_BREAK}| ") for part in parts]
    usage = _wrap(" ".join([program.rstrip(), *unbroken, "[options]"]), following=" " * len(program))
    return usage.replace(NO_BREAK, " ")


def _section(title: str, arguments: Sequence[Argument]) -> str:
    return f"{title}:\n" + "\n".join(_entry(argument) for argument in arguments)


def _entry(argument: Argument) -> str:
    head = "  " + (argument.usage if argument.takes_value else ", ".join(argument.names))
    text = argument.help + _default(argument)
    margin = " " * NAME_WIDTH
    lines = textwrap.wrap(text, _width(), initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False)
    if len(head) + 2 <= NAME_WIDTH:
        lines[0] = head.ljust(NAME_WIDTH) + lines[0].lstrip()
        return "\n".join(lines)
    return "\n".join([*_wrap(head, following="      ").split("\n"), *lines])


def _default(argument: Argument) -> str:
    """Return the default as the help page shows it; where it is not a value, the help text itself describes it."""
    if "(default:" in argument.help or not argument.takes_value or argument.default in (None, []):
        return ""
    return f" (default: {argument.default})"


def _wrap(text: str, following: str = "") -> str:
    return "\n".join(textwrap.wrap(text, _width(), subsequent_indent=following, break_on_hyphens=False))


def _width() -> int:
    return min(shutil.get_terminal_size().columns - 2, MAX_WIDTH)
