"""Shell completion, as bash performs it."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from fm2.cli.completion import SHELLS
from fm2.cli.main import main

ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
function_of() { complete -p fm2 | sed 's/.* -F \\([^ ]*\\).*/\\1/'; }
$(function_of)
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "fm2.bash"
    done = subprocess.run([sys.executable, "-m", "fm2", "completion", "bash"], capture_output=True, check=True)
    path.write_bytes(done.stdout)
    return path


@pytest.fixture
def completed(script, tmp_path):
    """Return a function that asks bash for completions of the last word, in a directory with two entries."""
    (tmp_path / "data").mkdir()
    (tmp_path / "log.tsv").touch()

    def ask(*words: str) -> set[str]:
        bash = shutil.which("bash")
        assert bash
        command = [bash, "--norc", "-c", ASK, "bash", str(script), "fm2", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return set(done.stdout.split())

    return ask


def test_commands_options_choices_and_files_are_completed(completed):
    assert completed("tr") == {"train"}
    assert {"prepare", "train", "completion"} <= completed("")
    assert completed("train", "fmfm", "data", "--learning-rate-") == {"--learning-rate-scale"}
    assert completed("train", "xdee") == {"xdeepfm"}
    assert completed("train", "fmfm", "data", "--optimizer", "ada") == {"adagrad", "adam"}
    assert completed("describe", "d") == {"data"}
    assert completed("prepare", "log") == {"log.tsv"}


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script(shell, capsys):
    assert main(["completion", shell]) == 0
    assert "prepare" in capsys.readouterr().out
