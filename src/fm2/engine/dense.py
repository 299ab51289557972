"""The dense part of a compiled network, computed by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.engine.graph_check import check_graph
from fm2.errors import Fm2Error, require

Floats = NDArray[np.float32]
# Computed at once. The result does not depend on the number of threads, and intermediate results stay in the cache.
BLOCK_ROWS = 256
GRAPH = "network.onnx"  # the section of the graph
FATAL = 4  # log level of ONNX Runtime


class DensePart:
    """A function of the embeddings [rows, width] of a network that returns a number per row.

    Each call of ONNX Runtime uses one thread; up to ``threads`` of them (0: one per processor) compute blocks of a
    large batch. Any number of threads may use the same object.
    """

    def __init__(self, graph: bytes, width: int, path: Path, threads: int = 0) -> None:
        self._path, self._threads = path, threads or _native.default_threads()
        runtime = require("onnxruntime", "serve", f"load: {path} is a network, and scoring it")
        try:
            check_graph(graph)
            self._session = _open_session(runtime, graph)
            self._run = self._session.run
            widths = list(_input_widths(self._session))
            if sum(widths) != width:
                raise ValueError(f"its inputs have {sum(widths)} columns, and the embeddings {width}")
            if len(self._session.get_outputs()) != 1:
                raise ValueError("it must have one output")
        except Exception as error:  # ONNX Runtime has exceptions of its own
            raise self._invalid(error) from error
        self._names = [each.name for each in self._session.get_inputs()]
        self._ends = [0, *np.cumsum(widths).tolist()]
        self(np.zeros((2, width), np.float32))

    def __call__(self, embeddings: Floats) -> Floats:
        if len(embeddings) <= BLOCK_ROWS:
            return self._compute(embeddings)
        blocks = [embeddings[begin : begin + BLOCK_ROWS] for begin in range(0, len(embeddings), BLOCK_ROWS)]
        if self._threads == 1:
            return np.concatenate([self._compute(block) for block in blocks])
        with ThreadPoolExecutor(min(self._threads, len(blocks))) as pool:  # a lasting pool would not survive a fork
            return np.concatenate(list(pool.map(self._compute, blocks)))

    def _compute(self, embeddings: Floats) -> Floats:
        if len(self._names) == 1:
            inputs = {self._names[0]: embeddings}
        else:
            columns = zip(self._names, pairwise(self._ends), strict=True)
            inputs = {name: np.ascontiguousarray(embeddings[:, begin:end]) for name, (begin, end) in columns}
        try:
            (numbers,) = self._run(None, inputs)
        except Exception as error:
            raise self._invalid(error) from error
        if numbers.shape != (len(embeddings),) or numbers.dtype != np.float32:
            raise self._invalid(f"its result is {numbers.dtype} {list(numbers.shape)}, not a float32 per row")
        result: Floats = numbers
        return result

    def _invalid(self, reason: object) -> Fm2Error:
        line = (str(reason).splitlines() or [type(reason).__name__])[0]
        return Fm2Error(f"load: {self._path}: not a valid compiled model: its ONNX graph: {line}")


def _open_session(runtime: Any, graph: bytes) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = FATAL
    return runtime.InferenceSession(graph, options, providers=["CPUExecutionProvider"], enable_fallback=False)


def _input_widths(session: Any) -> Iterator[int]:
    for each in session.get_inputs():
        if each.type != "tensor(float)" or len(each.shape) != 2 or type(each.shape[1]) is not int:
            raise ValueError(f"its input is {each.type} {each.shape}, not float32 [rows, columns]")
        yield each.shape[1]
