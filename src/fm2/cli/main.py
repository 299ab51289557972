"""The command line, ``fm2 COMMAND ...``: finds the command, parses its arguments, runs it and reports errors."""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from fm2 import __version__
from fm2.cli import ablation, compression, data, engine, serving, shared, studies, training
from fm2.cli.command import DEBUG, Command
from fm2.cli.completion import completion
from fm2.cli.exit_codes import FAILED, MISUSED, SUCCESS, explain
from fm2.cli.help import command_help, main_help
from fm2.cli.locations import local_arguments
from fm2.cli.order import check_order
from fm2.cli.parameters import name_options
from fm2.errors import Fm2Warning, Terminated, is_panic, name_locations, printable, suggest

# All commands, in the order and under the titles of ``fm2 --help``.
GROUPS: dict[str, tuple[Command, ...]] = {
    "Data": data.COMMANDS,
    "Training": training.COMMANDS,
    "Compression": compression.COMMANDS,
    "Serving": (*engine.COMMANDS, *serving.COMMANDS),
    "Studies": (*studies.COMMANDS, *ablation.COMMANDS),
    "Shell": (completion,),
}
COMMANDS: dict[str, Command] = {command.name: command for group in GROUPS.values() for command in group}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; ``fm2 --help`` lists the codes."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    _replace_closed_streams()
    if not words:
        print(main_help(GROUPS), file=sys.stderr, end="")
        return MISUSED
    position = next((i for i, word in enumerate(words) if not word.startswith("-")), len(words))
    general = words[:position]
    for word in general:
        check_option("fm2", word, ("-h", "--help", "--version", "--debug"))
    if "--version" in general:
        print(f"fm2 {__version__}")
        return SUCCESS
    if "-h" in general or "--help" in general:
        print(main_help(GROUPS), end="")
        return SUCCESS
    if position == len(words):
        fail("fm2", "a command is required")
    return _run(words[position], words[position + 1 :], debug="--debug" in general)


def _run(name: str, words: Sequence[str], debug: bool) -> int:
    if name not in COMMANDS:
        fail("fm2", f"unknown command '{name}'; {suggest(name, COMMANDS)}")
    command = COMMANDS[name]
    options = Parser(command).parse_args(words)
    options.words = [name, *words]
    options.debug = debug or getattr(options, "debug", False)
    _escape_unprintable_characters()
    try:
        with _termination(), _warnings_in_one_line(command), local_arguments(command, options):
            check_order(command, options)
            command.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output exited, as in `fm2 describe DATA | head`
        _discard_output()
        return FAILED
    except BaseException as error:
        if not isinstance(error, Exception | KeyboardInterrupt) and not is_panic(error):
            raise
        if options.debug and not isinstance(error, KeyboardInterrupt):
            raise
        with _without_interrupts():
            message, code = explain(error, command, options)
            if isinstance(error, OSError):
                _discard_output()  # it may be standard output that cannot be written
            print(f"fm2: {_name_options(message, command)}", file=sys.stderr)
        return code
    return SUCCESS


def _name_options(message: str, command: Command) -> str:
    """Name options instead of parameters: those of the command, or of another one that a message refers to."""
    others = itertools.chain.from_iterable(other.arguments() for other in COMMANDS.values())
    return name_options(message, [*command.arguments(), *(argument for argument in others if argument.is_option)])


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C, so that an impatient second one does not interrupt the message of the first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _termination() -> Iterator[None]:
    """Raise an exception on SIGTERM, unless the signal is ignored."""

    def terminate(*_: object) -> NoReturn:
        raise Terminated

    main_thread = threading.current_thread() is threading.main_thread()
    if not main_thread or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def _warnings_in_one_line(command: Command) -> Iterator[None]:
    """Print the warnings of fm2 as commands print their own."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_warning(message: Warning | str, category: type[Warning], *details: Any, **more: Any) -> None:
            if issubclass(category, Fm2Warning):
                shared.warn(_name_options(str(message), command))
            else:
                show(message, category, *details, **more)

        warnings.showwarning = show_warning
        warnings.simplefilter("always", Fm2Warning)
        yield


class Parser(argparse.ArgumentParser):
    """A parser for one command.

    argparse does the parsing: it ships with Python, so that a compiled model can be used with numpy alone, and imports
    three times faster than click. Help pages and suggestions come from the command's declaration. Options cannot be
    abbreviated: a prefix that is unique today may become ambiguous when an option is added.
    """

    def __init__(self, command: Command) -> None:
        super().__init__(prog=f"fm2 {command.name}", allow_abbrev=False)
        self.command = command
        self.arguments = (*command.arguments(), DEBUG)
        alternatives = None
        for argument in self.arguments:
            if argument.alternative and alternatives is None:
                alternatives = self.add_mutually_exclusive_group(required=True)
            argument.add_to(alternatives if argument.alternative else self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments; exit with an error if there are unknown options or extra arguments."""
        words: Sequence[str] = sys.argv[1:] if args is None else list(args)
        options = {name for argument in self.arguments if argument.is_option for name in argument.names}
        for word in words[: words.index("--")] if "--" in words else words:
            check_option(self.prog, word, {"-h", "--help", *options})
        parsed, extra = super().parse_known_args(words, namespace)
        if extra:
            self.error(f"unexpected argument '{extra[0]}'")
        return parsed, extra

    def format_help(self) -> str:
        """Return the help page."""
        return command_help(self.command)

    def error(self, message: str) -> NoReturn:
        """Exit with a one-line error."""
        fail(self.prog, re.sub(r"^argument ([A-Z_]+: )?", "", message))


def check_option(program: str, word: str, options: Iterable[str]) -> None:
    """Exit with an error, and the closest option, if a word looks like an option but is unknown."""
    name = word.partition("=")[0]
    if re.fullmatch(r"--?[a-zA-Z][\w-]*", name) and name not in options:
        suggestion = suggest(name, sorted(options))
        meant = f"; {suggestion}" if suggestion.startswith("did you mean") else ""
        fail(program, f"unknown option '{name}'{meant}")


def fail(program: str, message: str) -> NoReturn:
    """Exit with a one-line error; the usage of a command with eighty options would hide it."""
    hint = "" if message.endswith("?") else f"; see {program} --help"
    print(f"{program.replace(' ', ': ')}: {printable(name_locations(message))}{hint}", file=sys.stderr)
    sys.exit(MISUSED)


def _replace_closed_streams() -> None:
    """Open the null device for a standard stream that is closed; otherwise the next file would take its number.

    Standard output cannot be written then, because a result must not be lost in silence.
    """
    for number, (name, flags) in enumerate((("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _discard_output() -> None:
    """Let what is still buffered for standard output, which cannot be written, disappear."""
    with contextlib.suppress(AttributeError, OSError):
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, sys.stdout.fileno())
        os.close(descriptor)


def _escape_unprintable_characters() -> None:
    """Print an escape sequence for a character that the terminal's encoding lacks instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, io.UnsupportedOperation):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
