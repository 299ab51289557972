"""The keeper's models: opening and verifying files, noticing changes, choosing versions."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fm2.engine.scorer import Scorer, load
from fm2.errors import Fm2Error, suggest
from fm2.serving.catalogs import remove_files
from fm2.serving.counters import FILE_BYTES, SERVER_WORDS, WORD, block_words
from fm2.serving.logs import Log
from fm2.serving.settings import Settings
from fm2.serving.sources import Signature, scan, signature, version_key
from fm2.serving.state import ModelState, State, VersionState

Key = tuple[str, str]  # model, version


@dataclass
class Opened:
    """A file that is being served. The descriptor keeps it available if its name disappears."""

    descriptor: int
    signature: Signature


class Repository:
    """Finds the files of models and adds verified ones to the state.

    A file is looked at once it has not changed between two looks, so that one that is being written is not opened. A
    file that is refused is not looked at again until it changes.
    """

    def __init__(self, settings: Settings, state: State, log: Log) -> None:
        self.state = state
        self.retired: list[Callable[[], None]] = []  # what to close once no worker uses it
        self._settings = settings
        self._log = log
        self._opened: dict[Key, Opened] = {}
        self._last_seen: dict[Key, Signature] = {}
        self._refused: dict[Key, Signature] = {}
        self._blocks: dict[tuple[str, str, int], int] = {}
        self._next_block = SERVER_WORDS
        self._watched = settings.watch or any(not source.name for source in settings.sources)

    def start(self, again: bool = False) -> None:
        """Load all models. At the first start, a file that was named on the command line must be valid."""
        named = set() if again else {source.name for source in self._settings.sources}
        for (name, version), path in self._wanted(scan(self._settings.sources)):
            if not self._is_unloaded(name):
                self._replace(name, version, path, is_required=name in named)

    def blocks(self) -> list[list[Any]]:
        """Return the places of all counters: model, version, number of fields, offset."""
        return [[*key, offset] for key, offset in self._blocks.items()]

    def restore_blocks(self, blocks: list[list[Any]]) -> None:
        """Use the places of a previous keeper."""
        for name, version, fields, offset in blocks:
            self._blocks[name, version, fields] = offset
            self._next_block = max(self._next_block, offset + block_words(fields))

    def look(self, on_open: Callable[[str, str, Scorer], None]) -> bool:
        """Look for new, changed and removed files; return whether the state has changed."""
        if not self._watched:
            return False
        files = scan(self._settings.sources)
        changed = False
        for key, path in self._wanted(files):
            seen = signature(path)
            if seen is None:
                continue
            settled = self._last_seen.get(key) == seen
            self._last_seen[key] = seen
            current = self._opened.get(key)
            if not settled or self._refused.get(key) == seen or (current and current.signature == seen):
                continue
            if not self._is_unloaded(key[0]):
                self._replace(*key, path, on_open)
                changed = True  # also if it was refused: the state has the reason
        changed |= self._forget_refused(files)
        return self._remove(files) or changed

    def load(self, name: str, on_open: Callable[[str, str, Scorer], None]) -> list[str]:
        """Load a model from its files now, also one that was unloaded; return why files were refused."""
        files = {key: path for key, path in scan(self._settings.sources).items() if key[0] == name}
        if not files:
            known = sorted({*self.state.models, *(found for found, _ in scan(self._settings.sources))})
            raise Fm2Error(f"unknown model '{name}'; {suggest(name, known)}" if known else f"unknown model '{name}'")
        model = self.state.models.setdefault(name, ModelState())
        model.unloaded = False
        refused = []
        for key, path in self._wanted(files):
            current = self._opened.get(key)
            is_new = current is None or current.signature != signature(path)
            if is_new and not self._replace(*key, path, on_open):
                refused.append(model.rejected[key[1]])
        return refused

    def unload(self, name: str) -> None:
        """Stop serving a model until it is loaded again."""
        model = self.state.models[name]
        model.unloaded = True
        for version in list(model.versions):
            self._drop(name, version)

    def _wanted(self, files: dict[Key, Path]) -> Iterable[tuple[Key, Path]]:
        """Return the newest versions of each model and those with a role, oldest first."""
        for name in sorted({name for name, _ in files}):
            versions = sorted((version for found, version in files if found == name), key=version_key)
            model = self.state.models.get(name, ModelState())
            kept = {
                *versions[-self._settings.versions :],
                *model.labels.values(),
                model.shadow,
                (model.canary or ("",))[0],
            }
            yield from (((name, version), files[name, version]) for version in versions if version in kept)

    def _replace(
        self,
        name: str,
        version: str,
        path: Path,
        on_open: Callable[[str, str, Scorer], None] | None = None,
        is_required: bool = False,
    ) -> bool:
        """Open a file in place of the one that is served; return False if it is refused.

        If it is required, that is an error instead.
        """
        began = time.monotonic()
        model = self.state.models.setdefault(name, ModelState())
        descriptor = -1
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            found = signature(descriptor)
            assert found is not None
            scorer = _open(descriptor, path)
            if signature(descriptor) != found:
                raise Fm2Error(f"{path} changed while it was read; write to another name and rename the file")
            block = self._block(name, version, len(scorer.schema.fields))
        except (OSError, Fm2Error) as error:
            if descriptor >= 0:
                os.close(descriptor)
            if is_required:
                raise Fm2Error(str(error)) from error
            self._refuse(name, version, path, str(error))
            return False
        opened = Opened(descriptor, found)
        self._warn_if_overwritten(name, version, path, opened)
        previous = model.versions.get(version)
        self._drop(name, version)
        self._opened[name, version] = opened
        location = f"/proc/{os.getpid()}/fd/{descriptor}"
        state = VersionState(location, str(path), scorer.fingerprint, found.bytes, time.time(), block)
        model.versions[version] = state
        model.rejected.pop(version, None)
        if on_open:
            model.swaps += 1
            on_open(name, version, scorer)
        seconds = round(time.monotonic() - began, 3)
        self._log("info", "replaced" if previous else "loaded", model=name, version=version, file=path, seconds=seconds)
        return True

    def _refuse(self, name: str, version: str, path: Path, reason: str) -> None:
        seen = signature(path)
        if seen is not None:
            self._refused[name, version] = seen
        model = self.state.models[name]
        model.rejected[version] = reason
        kept = "the previous file keeps serving" if version in model.versions else "it is not served"
        self._log("error", f"refused a file; {kept}", model=name, version=version, file=path, reason=reason)

    def _warn_if_overwritten(self, name: str, version: str, path: Path, opened: Opened) -> None:
        current = self._opened.get((name, version))
        if current and current.signature[:2] == opened.signature[:2]:
            advice = "rename new files into place: overwriting one changes the model that is being served"
            self._log("warning", advice, model=name, version=version, file=path)

    def _remove(self, files: dict[Key, Path]) -> bool:
        """Drop versions whose files were removed, but never the last version of a model."""
        gone = [key for key in self._opened if key not in files and len(self.state.models[key[0]].versions) > 1]
        newest = {key for key, _ in self._wanted(files)}
        gone += [key for key in self._opened if key in files and key not in newest]
        for name, version in gone:
            if len(self.state.models[name].versions) > 1:
                self._drop(name, version)
                self._log("info", "removed", model=name, version=version)
        return bool(gone)

    def _forget_refused(self, files: dict[Key, Path]) -> bool:
        """Forget refused files that were removed, and models that have no other file."""
        gone = [key for key in self._refused if key not in files]
        for name, version in gone:
            del self._refused[name, version]
            model = self.state.models[name]
            model.rejected.pop(version, None)
            if not model.versions and not model.rejected and not model.unloaded:
                del self.state.models[name]
        return bool(gone)

    def _drop(self, name: str, version: str) -> None:
        dropped = self.state.models[name].versions.pop(version, None)
        self.state.models[name].rejected.pop(version, None)
        for catalog in dropped.catalogs.values() if dropped else ():
            self.retired.append(functools.partial(remove_files, catalog))
        opened = self._opened.pop((name, version), None)
        if opened:
            self.retired.append(lambda: os.close(opened.descriptor))

    def _is_unloaded(self, name: str) -> bool:
        return name in self.state.models and self.state.models[name].unloaded

    def _block(self, name: str, version: str, fields: int) -> int:
        """Return the place of the counters of a version; it keeps them if its file is replaced."""
        if (name, version, fields) not in self._blocks:
            if (self._next_block + block_words(fields)) * WORD > FILE_BYTES:
                raise Fm2Error("there are no more counters for new versions; restart the server")
            self._blocks[name, version, fields] = self._next_block
            self._next_block += block_words(fields)
        return self._blocks[name, version, fields]


def _open(descriptor: int, path: Path) -> Scorer:
    """Open and verify a model through a descriptor; messages name the file."""
    location = f"/proc/self/fd/{descriptor}"
    try:
        return load(location, threads=1)
    except Fm2Error as error:
        raise Fm2Error(str(error).replace(location, str(path))) from error
