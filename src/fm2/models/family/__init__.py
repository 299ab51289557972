"""FM, FwFM, FvFM and FmFM in one framework (section 3.1 of the paper)."""

from fm2.models.family.machine import FM, FactorizationMachine, FmFM, FvFM, FwFM
from fm2.models.family.matrix import FieldMatrixInteraction

__all__ = ["FM", "FactorizationMachine", "FieldMatrixInteraction", "FmFM", "FvFM", "FwFM"]
