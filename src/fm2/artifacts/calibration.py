"""The calibration of a model: a strictly increasing map of its logits, in a file next to the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.artifacts.arrays import Arrays, Stored, open_arrays, save_arrays
from fm2.artifacts.model_file import MODEL, check_model
from fm2.artifacts.run_directory import CALIBRATION
from fm2.data.rows import EncodedRows
from fm2.errors import Fm2Error
from fm2.files import checksum
from fm2.schema import Field

FORMAT, VERSION = "fm2 calibration", 1


@dataclass(frozen=True)
class Calibration:
    """A piecewise linear map of logits, and optionally a shift of the logit for each feature of one field.

    ``knots`` has pairs of a logit and its calibrated value, both strictly increasing. The first and the last segment
    extend to infinity. ``field`` is the index of the field that ``shifts`` belong to.

    >>> halved = Calibration(np.array([[0.0, 1.0], [2.0, 2.0]]))
    >>> halved.apply(np.array([-2.0, 0.0, 4.0], np.float32), np.empty((3, 0), np.int32)).tolist()
    [0.0, 1.0, 3.0]
    """

    knots: NDArray[np.float64]  # [knots, 2]
    field: int | None = None
    shifts: NDArray[np.float32] | None = None
    method: str = ""

    def apply(self, logits: NDArray[np.float32], rows: EncodedRows | NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the calibrated logits of encoded rows."""
        return self.apply_by(logits, None if self.field is None else EncodedRows.of(rows).ids[:, self.field])

    def apply_by(self, logits: NDArray[np.float32], features: NDArray[np.int32] | None) -> NDArray[np.float64]:
        """Return the calibrated logits of rows with these features in the calibrated field."""
        calibrated = np.empty(len(logits), np.float64)
        if features is not None:
            features = np.ascontiguousarray(features, np.int32)
        _native.calibrate(self.knots.ravel(), np.ascontiguousarray(logits), features, self.shifts, calibrated)
        return calibrated

    def sections(self) -> Arrays:
        """Return the arrays of the calibration, as a compiled model stores them."""
        arrays: Arrays = {"calibration.knots": self.knots}
        if self.shifts is not None:
            arrays |= {"calibration.field": np.array([self.field], np.int32), "calibration.shifts": self.shifts}
        return arrays

    @classmethod
    def from_sections(
        cls, sections: Stored, sizes: Sequence[int], fields: Sequence[Field], method: str = ""
    ) -> Calibration:
        """Create a calibration from its arrays; raise ValueError if they are not valid for these fields and sizes."""
        knots = sections["calibration.knots"]
        if knots.dtype != np.float64 or knots.ndim != 2 or knots.shape[1] != 2:
            raise ValueError(f"the knots are {knots.dtype} {list(knots.shape)}, not pairs of float64")
        field = shifts = None
        if "calibration.shifts" in sections:
            (field,) = sections["calibration.field"].tolist()
            shifts = sections["calibration.shifts"]
            if not (type(field) is int and 0 <= field < len(sizes)):
                raise ValueError(f"there is no field {field}")
            if fields[field].is_list:
                raise ValueError(f"field '{fields[field].name}' has several values per row")
            if shifts.dtype != np.float32 or shifts.shape != (sizes[field],):
                raise ValueError(f"the shifts are {shifts.dtype} {list(shifts.shape)}, not {sizes[field]} float32")
        calibration = cls(knots, field, shifts, method)
        calibration.apply_by(np.empty(0, np.float32), None if shifts is None else np.empty(0, np.int32))  # checks it
        return calibration


def save_calibration(run: Path, calibration: Calibration) -> None:
    """Write the calibration of a run's model, and replace an earlier one."""
    values = {
        "format": FORMAT,
        "version": VERSION,
        "model": checksum(run / MODEL),
        "method": calibration.method,
    }
    save_arrays(run / CALIBRATION, calibration.sections(), values, "calibrate")


def delete_calibration(run: Path) -> None:
    """Delete the calibration of a run; raise an error if it has none."""
    check_model(run)
    try:
        (run / CALIBRATION).unlink()
    except FileNotFoundError:
        raise Fm2Error(f"calibrate: the run in {run} has no calibration to remove") from None


def read_calibration(run: Path, sizes: Sequence[int], fields: Sequence[Field]) -> Calibration | None:
    """Read the calibration of a run with these fields and sizes, or return None if there is none."""
    path = run / CALIBRATION
    if not path.is_file():
        return None
    with open_arrays(path) as (arrays, values):
        if (values["format"], values["version"]) != (FORMAT, VERSION):
            raise Fm2Error(f"{path} has an unsupported format: '{values['format']}' {values['version']}")
        if values["model"] != checksum(run / MODEL):
            raise Fm2Error(f"{path} belongs to another model than {MODEL}; fm2 calibrate --remove removes it")
        loaded = {name: arrays[name] for name in arrays}
        return Calibration.from_sections(loaded, sizes, fields, str(values["method"]))
