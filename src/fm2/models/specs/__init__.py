"""The declarations of all built-in models, grouped by what the models have in common.

To add a model, write its torch class and a :class:`~fm2.models.spec.ModelSpec` in one of these files.
"""

from __future__ import annotations

from fm2.models.specs import attention, crosses, family, linear, perceptrons, products

BUILT_IN = (
    *linear.SPECS,
    *family.SPECS,
    *perceptrons.SPECS,
    *crosses.SPECS,
    *products.SPECS,
    *attention.SPECS,
)

__all__ = ["BUILT_IN"]
