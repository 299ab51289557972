"""A runtime of MLServer that scores with a compiled model; it runs in the environment of ``make peers``."""

from __future__ import annotations

import os
import site
from typing import Any

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse

site.addsitedir(os.environ["FM2_SITE"])  # fm2 from the environment of the benchmark, everything else from this one


class CompiledModel(MLModel):  # type: ignore[misc]
    """The model: one tensor per column, one probability per row."""

    async def load(self) -> bool:
        """Open the model."""
        import fm2

        self._scorer = fm2.load(os.environ["FM2_MODEL"], threads=1)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Score a request."""
        columns: dict[str, Any] = {tensor.name: StringCodec.decode_input(tensor) for tensor in payload.inputs}
        probabilities = self._scorer.predict(columns)
        output = NumpyCodec.encode_output("probability", np.asarray(probabilities))
        return InferenceResponse(model_name=self.name, outputs=[output])
