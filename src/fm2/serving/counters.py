"""Counters in shared memory: one file per worker, which every worker can read.

A model version has a block of words at the same place of each file. A worker that replaces a killed one continues its
file, so that sums never decrease.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FILE_BYTES = 64 << 20  # a file with holes: only the pages of existing blocks take memory
WORD = 8

# The words of a block.
REQUESTS, ROWS, FAILURES, PARSE_NS, SCORE_NS, TOTAL_NS, PREDICTED, CANARY = range(8)
SHADOW_ROWS, SHADOW_FAILURES, SHADOW_DROPPED, OUTCOMES = range(8, 12)
# These words are floating point numbers.
PREDICTIONS, SHADOW_DIFFERENCE, SHADOW_SQUARES, OUTCOME_CLICKS, OUTCOME_PREDICTIONS, OUTCOME_LOSS = range(16, 22)
KINDS = ("predict", "infer", "rank", "explain")
KIND = 24
PARSE_TIMES, SCORE_TIMES, TOTAL_TIMES, REASONS, FIELDS = 32, 64, 96, 128, 160

# Times are counted in powers of two: bucket i has those below 2^(i + FIRST_BITS) ns, the last one all others.
BUCKETS, FIRST_BITS = 26, 10
BOUNDS = [2 ** (bits + FIRST_BITS) * 1e-9 for bits in range(BUCKETS - 1)]
REASON_NAMES = (
    *("invalid_json", "invalid_request", "unknown_column", "invalid_value", "invalid_tensor", "too_many_rows"),
    *("too_many_values", "unknown_catalog", "out_of_memory", "model_failed", "body_too_large", "unauthorized"),
    *("forbidden", "not_found", "method_not_allowed", "slow_sender", "timeout", "overloaded"),
    *("not_ready", "internal_error", "other"),
)
REASON_INDEX = {name: REASONS + index for index, name in enumerate(REASON_NAMES)}
SERVER_BLOCK, SERVER_WORDS = 0, FIELDS  # requests that belong to no model


def block_words(fields: int) -> int:
    """Return the size of the block of a model with so many fields."""
    return FIELDS + 2 * fields


class Block:
    """The counters of a model version in this worker.

    ``words`` and ``floats`` are two views of the same memory; a number is in one of them only.
    """

    __slots__ = ("fields", "floats", "words")

    def __init__(self, memory: memoryview, offset: int, fields: int) -> None:
        part = memory[offset * WORD : (offset + block_words(fields)) * WORD]
        self.words = part.cast("Q")
        self.floats = part.cast("d")
        array: NDArray[np.uint64] = np.frombuffer(part, np.uint64)
        self.fields = array[FIELDS:]

    def count(self, kind: int, reply: Any, total_ns: int) -> None:
        """Count a request of a kind that native code has answered."""
        words = self.words
        words[KIND + kind] += 1
        words[REQUESTS] += 1
        words[TOTAL_NS] += total_ns
        words[TOTAL_TIMES + bucket(total_ns)] += 1
        if reply.status != 200:
            self.fail(reply.reason)
            return
        parse_ns, score_ns = reply.parse_ns, reply.score_ns
        words[ROWS] += reply.rows
        words[PARSE_NS] += parse_ns
        words[SCORE_NS] += score_ns
        words[PARSE_TIMES + bucket(parse_ns)] += 1
        words[SCORE_TIMES + bucket(score_ns)] += 1
        words[PREDICTED] += reply.predictions  # of a ranking: only the best are returned
        self.floats[PREDICTIONS] += reply.probability_sum

    def fail(self, reason: str) -> None:
        """Count a failure."""
        self.words[FAILURES] += 1
        self.words[REASON_INDEX.get(reason, REASON_INDEX["other"])] += 1


def bucket(nanoseconds: int) -> int:
    """Return the bucket of a time.

    >>> [bucket(1), bucket(1023), bucket(1024), bucket(10**12)]
    [0, 0, 1, 25]
    """
    index = nanoseconds.bit_length() - FIRST_BITS
    return 0 if index < 0 else index if index < BUCKETS else BUCKETS - 1


class Counters:
    """The counter file of this worker, and sums over all workers."""

    def __init__(self, directory: Path, workers: int) -> None:
        self._directory = directory
        for slot in range(4 * workers + 4):  # while workers are replaced, there are more of them
            descriptor = os.open(directory / f"counters-{slot}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            os.ftruncate(descriptor, FILE_BYTES)
            self._lock = descriptor  # held until the process ends
            self._memory = memoryview(mmap.mmap(descriptor, FILE_BYTES))
            self.server = self.block(SERVER_BLOCK, 0)
            return
        raise RuntimeError("no counter file is free")

    def block(self, offset: int, fields: int) -> Block:
        """Return the block at an offset, in words."""
        return Block(self._memory, offset, fields)

    def total(self, offset: int, fields: int) -> Total:
        """Return the sums of a block over all workers."""
        words = np.zeros(block_words(fields), np.uint64)
        floats = np.zeros(block_words(fields), np.float64)
        for path in self._directory.glob("counters-*"):
            with path.open("rb") as file:
                file.seek(offset * WORD)
                data = file.read(words.nbytes)
            if len(data) == words.nbytes:
                words += np.frombuffer(data, np.uint64)
                floats += np.nan_to_num(np.frombuffer(data, np.float64))
        return Total(words.tolist(), floats.tolist())


class Total:
    """Sums over all workers, by the indices of a block's words."""

    def __init__(self, words: list[int], floats: list[float]) -> None:
        self.words = words
        self.floats = floats

    def times(self, start: int) -> list[int]:
        """Return the counts of a histogram."""
        return self.words[start : start + BUCKETS]

    def field(self, index: int) -> tuple[int, int]:
        """Return how many values of a field were seen and how many of them were unknown."""
        return self.words[FIELDS + 2 * index], self.words[FIELDS + 2 * index + 1]
