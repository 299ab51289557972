"""The united framework of the factorization machines' family (section 3.1 of the paper)."""

from fm2.models.family.machine import FM, FactorizationMachine, FmFM, FvFM, FwFM

__all__ = ["FM", "FactorizationMachine", "FmFM", "FvFM", "FwFM"]
