"""Find and run the code blocks of the documentation."""

from __future__ import annotations

import configparser
import doctest
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.helpers.servers import Server

import fm2
from fm2.cli.main import main

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^( *)(`{3,})(\w*)[^\n`]*\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
S3, IN_MEMORY = "s3://", "memory://"  # tests do not use the network
DOCTEST_FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@dataclass(frozen=True)
class Block:
    """A code block and its position."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> Iterator[str]:
        """Yield the commands of a shell block, without comments, one line each."""
        if "<<" in self.text:  # a here-document spans several lines
            yield self.text
            return
        command = ""
        for line in self.text.replace("\\\n", " ").splitlines():
            command = f"{command}\n{line}" if command else line
            try:
                found = words(command)
            except ValueError:  # a quoted text spans several lines
                continue
            if found:
                yield command.strip()
            command = ""
        assert not command, f"{self}: a quotation mark is missing"


def pages() -> list[Path]:
    """Return the pages of the documentation, the README and the contributing guide."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_of(path: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    text = path.read_text(encoding="utf-8")
    page = str(path.relative_to(ROOT))
    return [
        Block(page, text.count("\n", 0, found.start()) + 2, found[3], textwrap.dedent(found[4]))
        for found in FENCE.finditer(text)
    ]


def words(command: str) -> list[str]:
    """Split a command into words and shell operators, without comments.

    >>> words("fm2 rank m '{}' a.jsonl | head  # ten")
    ['fm2', 'rank', 'm', '{}', 'a.jsonl', '|', 'head']
    """
    reader = shlex.shlex(command, posix=True, punctuation_chars=";<>|&")
    reader.whitespace_split = True
    return list(reader)


class Runner:
    """Runs blocks in the current directory. Python blocks share a namespace, in which ``fm2`` is imported.

    ``fm2 serve`` runs in the background, on a free port, until the next one or the end of the page. ``skipped`` are
    prefixes of commands that cannot run; ``smaller`` maps words to replacements that run faster.
    """

    def __init__(self, skipped: Iterable[str], smaller: Mapping[str, str]) -> None:
        self._names: dict[str, Any] = {"__name__": "page", "fm2": fm2}
        self._skipped = tuple(skipped)
        self._smaller = smaller
        self._server: Server | None = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        if self._server:
            self._server.__exit__()

    def run(self, block: Block) -> None:
        """Run a block, or parse it if it cannot run."""
        kinds: dict[str, Callable[[Block], None]] = {
            "sh": self._shell,
            "python": self._python,
            "toml": _toml,
            "json": _json,
            "yaml": _yaml,
            "ini": _ini,
            "c": _c,
            "text": lambda block: None,  # output
        }
        assert block.language in kinds, f"{block}: add a language to the fence: {', '.join(kinds)}"
        kinds[block.language](block)

    def _shell(self, block: Block) -> None:
        for command in block.commands():
            given = words(command)
            if command.startswith(self._skipped):
                continue
            if given[:2] == ["fm2", "serve"]:
                self.__exit__()
                self._server = Server(Path.cwd(), *given[2:])
            elif given[0] == "fm2" and not set(given) & {";", "<", ">", ">>", "|", "&", "&&"}:
                code = _exit_code([self._smaller.get(word, word).replace(S3, IN_MEMORY) for word in given[1:]])
                assert code == 0, f"{block}: {command}"
            else:
                path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
                Path(".curlrc").write_text("fail-with-body\n")
                environment = {**os.environ, "PATH": path, "CURL_HOME": str(Path.cwd())}
                command = self._with_port(command)
                done = subprocess.run(["bash", "-ec", command], env=environment, capture_output=True, text=True)
                assert done.returncode == 0, f"{block}: {command}\n{done.stderr}{done.stdout}"

    def _python(self, block: Block) -> None:
        if block.text.startswith(">>>"):
            test = doctest.DocTestParser().get_doctest(block.text, self._names, str(block), block.page, block.line - 1)
            said: list[str] = []
            doctest.DocTestRunner(optionflags=DOCTEST_FLAGS).run(test, out=said.append, clear_globs=False)
            assert not said, "".join(said)
            self._names.update(test.globs)
        else:
            text = self._with_port(block.text).replace(S3, IN_MEMORY)
            code = compile("\n" * (block.line - 1) + text, block.page, "exec")
            exec(code, self._names)

    def _with_port(self, text: str) -> str:
        """Replace the default port by that of the server of this page."""
        return text.replace("localhost:8000", f"localhost:{self._server.port}") if self._server else text


def _exit_code(arguments: list[str]) -> int:
    """Run fm2 in this process, which has already imported torch."""
    try:
        return main(arguments)
    except SystemExit as left:  # after --help or a usage error
        return int(left.code or 0)


def _toml(block: Block) -> None:
    """Parse the block and write it to the file named in its first line."""
    tomllib.loads(block.text)
    named = re.match(r"# (\S+\.toml)\b", block.text)
    if named:
        Path(named[1]).write_text(block.text, encoding="utf-8")


def _json(block: Block) -> None:
    json.loads(block.text)


def _yaml(block: Block) -> None:
    yaml.safe_load(block.text)


def _ini(block: Block) -> None:
    configparser.ConfigParser().read_string(block.text)


def _c(block: Block) -> None:
    """Check the syntax with a C compiler: includes first, the rest inside a function."""
    lines = block.text.splitlines(keepends=True)
    includes = "".join(line for line in lines if line.startswith("#include"))
    body = "".join(line for line in lines if not line.startswith("#include"))
    command = ["cc", "-std=c11", "-Wall", "-Werror", "-fsyntax-only", "-x", "c", f"-I{ROOT / 'native' / 'capi'}", "-"]
    source = f"{includes}int main(void) {{\n{body}return 0;\n}}\n"
    done = subprocess.run(command, input=source, capture_output=True, text=True)
    assert done.returncode == 0, f"{block}: {done.stderr}"
