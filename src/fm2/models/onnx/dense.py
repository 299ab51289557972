"""The dense part of a network as an ONNX graph: from the gathered rows of its tables to a number per row."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fm2.errors import Fm2Error, require
from fm2.models.base import GatheredModel
from fm2.models.onnx.nodes import Nodes
from fm2.models.onnx.rules import Translation

CHECKED_ROWS, TOLERANCE = 4, 1e-4
OUTPUT = "logits"


class DensePart(nn.Module):
    """A network without its linear weights, and without its bias unless its method ``score`` is its own.

    ``names`` are the tables whose rows it takes; ``bias`` is what has to be added to its result.
    """

    def __init__(self, model: GatheredModel) -> None:
        super().__init__()
        self.model = model
        self.names = [name for name in model.tables if name != "linear"]
        self._own_score = type(model).score is not GatheredModel.score
        self.bias = 0.0 if self._own_score else float(model.bias.detach())

    def forward(self, *rows: Tensor) -> Tensor:
        if not self._own_score:
            return self.model.network(*rows)
        tables = dict(zip(self.names, rows, strict=True))
        if "linear" in self.model.tables:
            tables["linear"] = rows[0][:, :1] * 0
        return self.model.score(**tables)

    def check(self) -> None:
        """Raise an error unless the logit is the sum of this part, its bias and the linear weights."""
        source = torch.Generator().manual_seed(0)
        tables = {
            name: torch.randn(CHECKED_ROWS, table.width, generator=source) for name, table in self.model.tables.items()
        }
        with torch.no_grad():
            expected = self.model.eval().score(**tables)
            linear = tables["linear"].sum(1) if "linear" in tables else torch.zeros(())
            found = self(*(tables[name] for name in self.names)) + self.bias + linear
        if not self.names or not torch.allclose(found, expected, TOLERANCE, TOLERANCE):
            raise Fm2Error(
                f"compile: {self.model.name} cannot be compiled: its logit is not the sum of linear weights and a "
                "function of embeddings; use fm2 export to write it as ONNX"
            )


def dense_graph(part: DensePart) -> bytes:
    """Return the ONNX graph of a dense part, whose inputs are named after the tables."""
    graph = Nodes(require("onnx", "onnx", f"compile: {part.model.name} is a network, and compiling it"))
    widths = {name: part.model.tables[name].width for name in part.names}
    for name, width in widths.items():
        graph.add_input(name, graph.onnx.TensorProto.FLOAT, width)
    result = Translation(graph, part, widths, f"compile: {part.model.name}").result()
    graph.node("Identity", result, out=OUTPUT)
    model = graph.model(part.model.name, OUTPUT)
    graph.onnx.checker.check_model(model)
    serialized: bytes = model.SerializeToString()
    return serialized
