"""The declarations of all built-in models.

To add a model, write its torch class and a :class:`~fm2.models.spec.ModelSpec` in one of these files.
"""

from fm2.models.specs import deep, shallow

BUILT_IN = (*shallow.SPECS, *deep.SPECS)
