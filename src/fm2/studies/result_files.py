"""Read and write the files in which studies store their results."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fm2.errors import Fm2Error
from fm2.files import atomic_file
from fm2.studies.statistics import PredictionFiles, Statistics

PREDICTIONS = "predictions"  # the directory of the runs' predictions

Result = TypeVar("Result")


def read_results(
    file: Path, kind: str, version: tuple[str, int], operation: str, make: Callable[[dict[str, Any]], Result]
) -> Result:
    """Read a JSON file of a format and version; ``make`` turns its values into the results.

    Errors start with ``operation`` and say that the directory has no results of this ``kind``, such as "a comparison".
    """
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        found = values.pop("format"), values.pop("version")
        if found != version:
            raise Fm2Error(f"{operation}: {file}: expected format {version}, got {found}")
        return make(values)
    except FileNotFoundError as error:
        raise Fm2Error(f"{operation}: {file.parent} is not {kind} (it has no {file.name})") from error
    except OSError as error:
        raise Fm2Error(f"{operation}: {file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Fm2Error(f"{operation}: {file} is damaged or not {kind}: {error!r}") from error


class StudyResults:
    """What the results of studies share; they are dataclasses. ``rows`` has a row for every run."""

    path: Path
    rows: list[dict[str, Any]]
    statistics: Statistics | None

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The rows of runs that failed."""
        return [row for row in self.rows if row["error"]]

    @property
    def predictions(self) -> PredictionFiles:
        """The predictions of all runs on the same rows."""
        return PredictionFiles(self.path / PREDICTIONS)

    def row(self, run: str) -> dict[str, Any] | None:
        """Return the row of a run, if there is one."""
        return next((row for row in self.rows if row["run"] == run), None)

    def to_json(self, format: str, version: int) -> str:
        """Return the content of a JSON file of this format and version, which :func:`read_results` reads."""
        values = {name: value for name, value in vars(self).items() if name != "path"}
        values["statistics"] = self.statistics and self.statistics.to_dict()
        return json.dumps({"format": format, "version": version, **values}, indent=1, ensure_ascii=False) + "\n"


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows to a CSV file with a header."""
    with atomic_file(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
