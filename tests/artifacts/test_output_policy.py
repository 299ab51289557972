"""Whether an output may be written, resumed or replaced: one policy for all commands."""

from __future__ import annotations

import os

import pytest

from fm2 import Fm2Error
from fm2.artifacts.run_directory import SETTINGS, check_run_output
from fm2.files import (
    atomic_directory,
    atomic_file,
    check_output,
    check_replaceable,
    output_directory,
    remove_abandoned,
    remove_directory,
    temporary_directory,
    write_files,
)

NEW, EMPTY, RUN, FOREIGN, FILE = "new", "empty", "run", "foreign", "file"


@pytest.fixture
def places(tmp_path):
    """Make one path of every kind that an operation may find."""
    for name in (EMPTY, RUN, FOREIGN):
        (tmp_path / name).mkdir()
    (tmp_path / RUN / SETTINGS).write_text("")
    (tmp_path / FOREIGN / "thesis.txt").write_text("years of work")
    (tmp_path / FILE).write_text("a log")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "resume", "overwrite", "message"),
    [
        (NEW, False, False, None),
        (NEW, False, True, None),
        (NEW, True, False, "^train: no run to resume in .*new$"),
        (EMPTY, False, False, None),
        (EMPTY, False, True, None),
        (EMPTY, True, False, "^train: no run to resume in .*empty$"),
        (RUN, False, False, "run already exists; use resume=True to continue it or overwrite=True to replace it$"),
        (RUN, False, True, None),
        (RUN, True, False, None),
        (RUN, True, True, "^train: resume=True continues a run and overwrite=True replaces it; use only one of them$"),
        (NEW, True, True, "use only one of them$"),
        *(
            (name, *flags, rf"{name} is not a run \(no settings.toml\); choose another out=$")
            for name in (FOREIGN, FILE)
            for flags in ((False, False), (False, True), (True, False))
        ),
    ],
)
def test_a_run_is_written_resumed_or_replaced_only_as_asked(places, name, resume, overwrite, message):
    if message is None:
        check_run_output("train", places / name, resume, overwrite)
    else:
        with pytest.raises(Fm2Error, match=message):
            check_run_output("train", places / name, resume, overwrite)


def test_the_error_offers_only_the_options_that_the_operation_has(places):
    for options, offer in (
        ({"resume": False}, "use resume=True to continue it$"),
        ({"overwrite": False}, "use overwrite=True to replace it$"),
    ):
        with pytest.raises(Fm2Error, match=offer):
            check_output("tune", places / RUN, "search", SETTINGS, **options)


def test_a_single_file_is_replaced_only_with_overwrite(places):
    check_output("generate", places / NEW, "log", overwrite=False)
    check_output("generate", places / FILE, "log", overwrite=True)
    with pytest.raises(Fm2Error, match=r"generate: .*file already exists; use overwrite=True to replace it$"):
        check_output("generate", places / FILE, "log", overwrite=False)


def test_a_derived_run_does_not_replace_its_source(places):
    for source in (places / RUN, places / EMPTY / ".." / RUN):
        with pytest.raises(Fm2Error, match=r"^prune: .*run is the source run; choose another out=$"):
            check_run_output("prune", places / RUN, False, True, source=source)
    check_run_output("prune", places / NEW, False, False, source=places / RUN)


def test_quickly_made_files_replace_only_their_own_kind(places):
    (places / "page.html").write_text("<!doctype html> ...")
    check_replaceable(places / "page.html", "report", "HTML page", "<!doctype")
    check_replaceable(places / NEW, "report", "HTML page", "<!doctype")
    with pytest.raises(Fm2Error, match=r"file already exists and is not an earlier HTML page; choose another out=$"):
        check_replaceable(places / FILE, "report", "HTML page", "<!doctype")


def test_a_directory_appears_complete_or_not_at_all(places):
    with pytest.raises(ZeroDivisionError), atomic_directory(places / NEW, "save", "run", SETTINGS) as directory:
        (directory / SETTINGS).write_text("")
        raise ZeroDivisionError
    assert sorted(path.name for path in places.iterdir()) == sorted([EMPTY, RUN, FOREIGN, FILE])
    with atomic_directory(places / RUN, "save", "run", SETTINGS, overwrite=True) as directory:
        (directory / SETTINGS).write_text("second")
        assert (places / RUN / SETTINGS).read_text() == ""  # the old one stays until the new one is complete
    assert (places / RUN / SETTINGS).read_text() == "second"
    with pytest.raises(Fm2Error, match="foreign is not a run"):
        atomic_directory(places / FOREIGN, "save", "run", SETTINGS, overwrite=True).__enter__()
    assert (places / FOREIGN / "thesis.txt").read_text() == "years of work"


def test_a_directory_that_appears_meanwhile_is_not_replaced(places):
    with (
        pytest.raises(Fm2Error, match="new already exists; use overwrite=True to replace it"),
        atomic_directory(places / NEW, "save", "run", SETTINGS) as directory,
    ):
        (directory / SETTINGS).write_text("late")
        (places / NEW).mkdir()
        (places / NEW / SETTINGS).write_text("early")
    assert (places / NEW / SETTINGS).read_text() == "early"


def test_a_file_appears_complete_or_not_at_all(places):
    with pytest.raises(ZeroDivisionError), atomic_file(places / FILE) as partial:
        partial.write_text("half")
        raise ZeroDivisionError
    assert (places / FILE).read_text() == "a log"
    with atomic_file(places / FILE) as partial:
        partial.write_text("new")
    assert (places / FILE).read_text() == "new"
    assert len(list(places.iterdir())) == 4


def test_outputs_have_the_permissions_of_the_umask(places):
    before = os.umask(0o027)
    try:
        with atomic_file(places / "model.fm2") as partial:
            partial.write_text("new")
        with atomic_directory(places / NEW, "save", "run", SETTINGS) as directory:
            (directory / SETTINGS).write_text("")
    finally:
        os.umask(before)
    modes = [(places / name).stat().st_mode & 0o777 for name in ("model.fm2", NEW)]
    assert modes == [0o640, 0o750]


def test_a_temporary_file_is_never_one_that_exists(places, monkeypatch):
    names = iter(["taken", "taken", "free"])
    monkeypatch.setattr("fm2.files.secrets.token_hex", lambda size: next(names))
    (places / ".log.partial-taken").symlink_to(places / "thesis.txt")  # planted by someone else
    with atomic_file(places / "log") as partial:
        assert partial.name == ".log.partial-free"
        partial.write_text("new")
    assert (places / "log").read_text() == "new"
    assert not (places / "thesis.txt").exists()


def run_output(path, resume=False, overwrite=False):
    return output_directory("train", path, "run", SETTINGS, "another training", resume=resume, overwrite=overwrite)


def test_a_locked_directory_names_who_uses_it(places):
    with (
        run_output(places / NEW),
        pytest.raises(Fm2Error, match=r"^train: another training is running in .*new$"),
        run_output(places / NEW),
    ):
        pass
    with pytest.raises(Fm2Error, match=r"^train: cannot write to .*file: "), run_output(places / FILE):
        pass


def test_a_process_does_not_remove_the_new_directory_of_another(places, monkeypatch):
    with run_output(places / NEW):
        monkeypatch.setattr("pathlib.Path.exists", lambda path: False)  # as if it appeared a moment later
        with pytest.raises(Fm2Error, match="another training is running"), run_output(places / NEW):
            pass
        monkeypatch.undo()
        assert (places / NEW).is_dir()


def test_an_output_is_checked_again_under_its_lock(places):
    """Another process may write it between the first check and the lock."""
    with pytest.raises(Fm2Error, match="run already exists; use resume=True"), run_output(places / RUN):
        pytest.fail("the run of another process would be replaced")
    with pytest.raises(Fm2Error, match="no run to resume"), run_output(places / NEW, resume=True):
        pytest.fail("there is nothing to resume")
    assert not (places / NEW).exists()


def test_a_new_directory_disappears_if_its_first_files_cannot_be_written(places):
    with pytest.raises(ZeroDivisionError), run_output(places / NEW):
        raise ZeroDivisionError
    assert not (places / NEW).exists()
    with run_output(places / EMPTY), pytest.raises(TypeError):
        write_files(places / EMPTY, {"space.toml": "", SETTINGS: 1}, SETTINGS)  # the marker cannot be written
    assert not list((places / EMPTY).iterdir())


def test_a_directory_whose_creation_was_interrupted_is_unused(places):
    """The marker's temporary file shows it, whatever else the killed process has written."""
    (places / NEW).mkdir()
    for name in (f".{SETTINGS}.partial-killed", "race.json"):
        (places / NEW / name).write_text("half")
    with pytest.raises(Fm2Error, match="no run to resume"):
        check_run_output("train", places / NEW, True, False)
    for overwrite in (False, True):
        check_run_output("train", places / NEW, False, overwrite)
    with run_output(places / NEW):
        write_files(places / NEW, {"race.json": "whole", SETTINGS: "whole"}, SETTINGS)
    assert {path.name: path.read_text() for path in (places / NEW).iterdir()} == {
        "race.json": "whole",
        SETTINGS: "whole",
    }


def test_the_files_of_a_killed_process_are_removed_and_those_of_a_running_one_are_not(places):
    (places / ".file.partial-killed").write_text("half")
    (places / ".new.partial-killed").mkdir()
    (places / ".new.partial-killed" / "huge").write_text("half")
    with atomic_file(places / FILE) as running, temporary_directory(places / NEW) as directory:
        assert not list(places.glob(".*.partial-killed"))
        with atomic_file(places / FILE) as other, temporary_directory(places / NEW):
            other.write_text("first")
        assert running.exists()
        assert directory.is_dir()
        running.write_text("second")
    assert (places / FILE).read_text() == "second"
    assert sorted(path.name for path in places.iterdir()) == sorted([EMPTY, RUN, FOREIGN, FILE])


def test_a_directory_disappears_in_one_step(places, monkeypatch):
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)  # as if the process was killed before it
    remove_directory(places / RUN)
    assert not (places / RUN).exists()
    monkeypatch.undo()
    remove_abandoned(places)
    assert sorted(path.name for path in places.iterdir()) == sorted([EMPTY, FOREIGN, FILE])
