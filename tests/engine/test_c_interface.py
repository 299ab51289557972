"""The C interface scores like Python; errors are a status with a message, never a crash."""

from __future__ import annotations

import ctypes
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.helpers.crosses import SCHEMA as CROSS_SCHEMA
from tests.helpers.crosses import log_of
from tests.helpers.list_models import compiled as compile_weights
from tests.helpers.list_models import literal_logits, make_weights
from tests.helpers.lists import random_rows, values_of
from tests.helpers.mixed import SCHEMA, mixed
from tests.helpers.networks import pruned_run, random_run
from tests.helpers.planted import QUICK

import fm2
from fm2.data.rows import EncodedRows, Lists
from fm2.engine.compile import compile
from fm2.engine.scorer import load

ROOT = Path(__file__).parents[2]
OK, MISUSED, BAD_MODEL = 0, 1, 2
LOGITS = 1
MANY = 2**64 - 1


@pytest.fixture(scope="module")
def library(capi):
    library = ctypes.CDLL(str(capi / "libfm2.so"))
    library.fm2_last_error.restype = ctypes.c_char_p
    library.fm2_close.restype = None
    pointer, size, flags = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint
    library.fm2_open.argtypes = [ctypes.c_char_p, ctypes.c_int, pointer]
    library.fm2_close.argtypes = [pointer]
    library.fm2_field_count.argtypes = library.fm2_column_count.argtypes = [pointer, pointer]
    library.fm2_field_size.argtypes = library.fm2_column_name.argtypes = [pointer, size, pointer]
    library.fm2_score_ids.argtypes = [pointer, pointer, size, size, flags, size, pointer]
    library.fm2_ranker_open.argtypes = [pointer, pointer, size, pointer]
    library.fm2_ranker_close.restype, library.fm2_ranker_close.argtypes = None, [pointer]
    library.fm2_rank_ids.argtypes = [pointer, pointer, size, pointer, size, size, flags, size, pointer]
    library.fm2_score_values.argtypes = [pointer, pointer, pointer, size, size, flags, size, pointer]
    return library


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    run = fm2.train("fmfm", fm2.prepare(mixed(2000), SCHEMA, folder / "data"), folder / "run", dim=4, **QUICK)
    return compile(run.path, folder / "model.fm2").path


@pytest.fixture
def handle(library, model):
    opened = ctypes.c_void_p()
    assert library.fm2_open(str(model).encode(), 1, ctypes.byref(opened)) == OK
    yield opened
    library.fm2_close(opened)


def test_the_example_prints_what_python_predicts(capi, model, tmp_path):
    scorer, rows = load(model), mixed(700, seed=1)
    written = tmp_path / "rows.tsv"
    rows.select(scorer.columns).write_csv(written, separator="\t", include_header=False, quote_style="never")
    done = subprocess.run([capi / "fm2_score_example", model, written], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.array(done.stdout.split(), np.float32), scorer.predict(rows), rtol=1e-6)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [("a\tb\n", "fm2_score_values: expected 5 values per row, got 2"), (None, "cannot open the file of rows")],
)
def test_the_example_reports_errors(capi, model, tmp_path, rows, reason):
    written = tmp_path / "rows.tsv"
    if rows is not None:
        written.write_text(rows)
    done = subprocess.run([capi / "fm2_score_example", model, written], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert reason in done.stderr


def test_the_header_compiles_as_c89_and_cpp98(tmp_path):
    for language, standard in (("c", "c89"), ("c++", "c++98")):
        command = ["cc", "-fsyntax-only", "-x", language, f"-std={standard}", "-Wall", "-Werror", "-pedantic"]
        source = f'#include "{ROOT / "native" / "capi" / "fm2.h"}"\nint main(void) {{ return fm2_open(0, 0, 0); }}\n'
        subprocess.run([*command, "-Wno-long-long", "-"], input=source, text=True, check=True)


def test_only_the_interface_is_exported(capi):
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", capi / "libfm2.so"], capture_output=True, text=True, check=True
    ).stdout
    assert all(line.split()[-1].startswith("fm2_") for line in symbols.splitlines())


def test_fields_and_columns_can_be_queried(library, handle, model):
    count, size, name = ctypes.c_size_t(), ctypes.c_int32(), ctypes.c_char_p()
    scorer = load(model)
    assert library.fm2_field_count(handle, ctypes.byref(count)) == OK
    sizes = []
    for field in range(count.value):
        assert library.fm2_field_size(handle, field, ctypes.byref(size)) == OK
        sizes.append(size.value)
    assert sizes == scorer.native.sizes
    assert library.fm2_column_count(handle, ctypes.byref(count)) == OK
    names = []
    for column in range(count.value):
        assert library.fm2_column_name(handle, column, ctypes.byref(name)) == OK
        names.append(name.value.decode())
    assert names == scorer.columns


def score_ids(library, handle, ids, flags=0, threads=0):
    scores = np.full(len(ids), np.nan, np.float32)
    status = library.fm2_score_ids(handle, ids.ctypes.data, *ids.shape, flags, threads, scores.ctypes.data)
    return status, scores


def test_many_threads_score_ids_with_one_model(library, handle, model):
    scorer = load(model)
    ids = scorer.encode(mixed(3000, seed=2))
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda threads: score_ids(library, handle, ids, threads=threads % 3), range(32)))
    for status, scores in results:
        assert status == OK
        np.testing.assert_allclose(scores, scorer.predict(ids), rtol=1e-6)
    status, logits = score_ids(library, handle, ids, LOGITS)
    assert status == OK
    np.testing.assert_array_equal(logits, scorer.logits(ids))


@pytest.mark.parametrize("with_lengths", [False, True])
def test_values_are_scored(library, handle, model, with_lengths):
    scorer, rows = load(model), mixed(5000, seed=3)
    table = rows.select(scorer.columns).rows()
    texts = [value.encode() or None for row in table for value in row]
    lengths = None
    if with_lengths:  # then texts need no zero byte at the end
        lengths = (ctypes.c_size_t * len(texts))(*[len(text or b"") for text in texts])
        texts = [text and text + b" and more" for text in texts]
    values = (ctypes.c_char_p * len(texts))(*texts)
    scores = np.empty(len(rows), np.float32)
    status = library.fm2_score_values(handle, values, lengths, *(len(rows), len(table[0])), 0, 0, scores.ctypes.data)
    assert status == OK, library.fm2_last_error()
    np.testing.assert_allclose(scores, scorer.predict(rows), rtol=1e-6)


def test_invalid_files_are_rejected(library, model, tmp_path):
    original = model.read_bytes()
    (tmp_path / "short.fm2").write_bytes(original[:-100])
    (tmp_path / "empty.fm2").write_bytes(b"")
    (tmp_path / "changed.fm2").write_bytes(original[:-100] + bytes([original[-100] ^ 1]) + original[-99:])
    for name, reason in {
        "nothing.fm2": b"No such file",
        "short.fm2": b"expected",
        "empty.fm2": b"too short",
        "changed.fm2": b"checksum",
        ".": b"not a file",
    }.items():
        opened = ctypes.c_void_p(1)
        assert library.fm2_open(str(tmp_path / name).encode(), 1, ctypes.byref(opened)) == BAD_MODEL
        assert opened.value is None
        assert reason in library.fm2_last_error()


def test_invalid_arguments_are_rejected(library, handle, model):
    ids = load(model).encode(mixed(3))
    fields, scores = ids.shape[1], np.empty(3, np.float32)
    at, out, there = ids.ctypes.data, scores.ctypes.data, ctypes.byref(ctypes.c_uint64())
    values = (ctypes.c_char_p * 5)()
    lengths = (ctypes.c_size_t * 5)(*[MANY] * 5)
    values[0] = b"a"
    for call, arguments, reason in (
        ("open", (None, 1, there), "path is NULL"),
        ("open", (b"x", 1, None), "model is NULL"),
        ("field_count", (None, there), "model is NULL"),
        ("field_count", (handle, None), "count is NULL"),
        ("field_size", (handle, fields, there), "there is no field 6"),
        ("field_size", (handle, 0, None), "size is NULL"),
        ("column_count", (None, there), "model is NULL"),
        ("column_name", (handle, MANY, there), "there is no column"),
        ("column_name", (None, 0, there), "model is NULL"),
        ("score_ids", (None, at, 3, fields, 0, 0, out), "model is NULL"),
        ("score_ids", (handle, None, 3, fields, 0, 0, out), "ids is NULL"),
        ("score_ids", (handle, at, 3, fields, 0, 0, None), "scores is NULL"),
        ("score_ids", (handle, at, 3, fields - 1, 0, 0, out), "expected 6 ids per row, got 5"),
        ("score_ids", (handle, at, MANY, fields, 0, 0, out), "too many rows: 18446744073709551615"),
        ("score_ids", (handle, at, 3, fields, 8, 0, out), "unknown flags 8"),
        ("score_ids", (handle, at, 3, fields, 0, MANY, out), "threads must be between 0 and 1024"),
        ("score_values", (handle, None, None, 1, 5, 0, 0, out), "values is NULL"),
        ("score_values", (handle, values, None, 1, 6, 0, 0, out), "expected 5 values per row, got 6"),
        ("score_values", (handle, values, None, MANY // 8, 5, 0, 0, out), "too many rows"),
        ("score_values", (handle, values, lengths, 1, 5, 0, 0, out), "a value is too long"),
    ):
        assert getattr(library, f"fm2_{call}")(*arguments) == MISUSED, (call, reason)
        assert library.fm2_last_error().decode().startswith(f"fm2_{call}: ")
        assert reason in library.fm2_last_error().decode()
    assert library.fm2_score_ids(handle, None, 0, fields, 0, 0, None) == OK  # no rows, no scores
    library.fm2_close(None)


@pytest.mark.parametrize("wrong", [-1, 10**6, -(2**31)])
@pytest.mark.parametrize("row", [0, 2999])
def test_ids_outside_their_field_are_rejected(library, handle, model, wrong, row):
    ids = load(model).encode(mixed(3000))
    ids[row, 3] = wrong
    assert score_ids(library, handle, ids)[0] == MISUSED
    assert f"row {row} has id {wrong} in field 3" in library.fm2_last_error().decode()


def test_error_messages_are_per_thread(library):
    assert library.fm2_open(None, 1, None) == MISUSED
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(library.fm2_last_error).result() == b""


def test_candidates_are_scored_like_complete_rows(library, handle, model):
    scorer, rows = load(model), load(model).encode(mixed(300, seed=2))
    fields = rows.shape[1]
    context = np.array([2, 0], np.uintp)
    candidate_fields = [field for field in range(fields) if field not in context]
    ranker = ctypes.c_void_p()
    assert library.fm2_ranker_open(handle, context.ctypes.data, 2, ctypes.byref(ranker)) == OK
    rows[:, context] = rows[0, context]
    context_ids, candidates = np.ascontiguousarray(rows[0, context]), np.ascontiguousarray(rows[:, candidate_fields])
    scores = np.empty(300, np.float32)

    def rank(ids, context_width=2, candidate_width=fields - 2, flags=0):
        return library.fm2_rank_ids(
            ranker, ids, context_width, candidates.ctypes.data, 300, candidate_width, flags, 0, scores.ctypes.data
        )

    assert rank(context_ids.ctypes.data) == OK
    np.testing.assert_allclose(scores, scorer.predict(rows), atol=1e-6)
    assert rank(context_ids.ctypes.data, flags=LOGITS) == OK
    np.testing.assert_allclose(scores, scorer.logits(rows), atol=1e-5)
    for arguments in (
        (None,),
        (context_ids.ctypes.data, 3),
        (context_ids.ctypes.data, 2, fields),
        (context_ids.ctypes.data, 2, fields - 2, 8),
    ):
        assert rank(*arguments) == MISUSED
    context_ids[0] = 10**6
    assert rank(context_ids.ctypes.data) == MISUSED
    assert b"has id 1000000 in field 2" in library.fm2_last_error()
    library.fm2_ranker_close(ranker)
    repeated, unknown = np.array([0, 0], np.uintp), np.array([99], np.uintp)
    for context_fields, count in ((repeated, 2), (unknown, 1), (context, 0), (context, MANY)):
        assert library.fm2_ranker_open(handle, context_fields.ctypes.data, count, ctypes.byref(ranker)) == MISUSED
        assert ranker.value is None
    assert library.fm2_ranker_open(None, None, 0, ctypes.byref(ranker)) == MISUSED
    library.fm2_ranker_close(None)


class CLists(ctypes.Structure):
    _fields_ = [
        ("field", ctypes.c_size_t),
        ("offsets", ctypes.c_void_p),
        ("ids", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("values", ctypes.c_size_t),
    ]


class CRows(ctypes.Structure):
    _fields_ = [
        ("ids", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
        ("fields", ctypes.c_size_t),
        ("lists", ctypes.POINTER(CLists)),
        ("list_fields", ctypes.c_size_t),
    ]


def as_c_rows(rows: EncodedRows, *, weighted: bool = True) -> CRows:
    """Rows whose list r belongs to row r; the arrays must outlive them."""
    lists = [
        CLists(field, *(array.ctypes.data for array in (table.offsets, table.ids)), None, len(table.ids))
        for field, table in rows.lists.items()
    ]
    for entry, table in zip(lists, rows.lists.values(), strict=True):
        entry.weights = table.weights.ctypes.data if weighted and table.weights is not None else None
    return CRows(rows.ids.ctypes.data, *rows.ids.shape, (CLists * len(lists))(*lists), len(lists))


@pytest.fixture(scope="module")
def list_model(tmp_path_factory):
    weights = make_weights("fmfm", [4, 9, 3, 5], [7, 30, 5, 12], [1, 3], pooling="mean")
    return weights, compile_weights(weights, tmp_path_factory.mktemp("lists"), "cached")


@pytest.fixture
def list_handle(library, list_model):
    library.fm2_score_rows.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_uint,
        ctypes.c_size_t,
        ctypes.c_void_p,
    ]
    library.fm2_rank_rows.argtypes = [*[ctypes.c_void_p] * 3, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p]
    library.fm2_field_is_list.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    opened = ctypes.c_void_p()
    assert library.fm2_open(str(list_model[1].path).encode(), 1, ctypes.byref(opened)) == OK
    yield opened
    library.fm2_close(opened)


def list_rows(count: int) -> EncodedRows:
    rows = random_rows([7, 30, 5, 12], [1, 3], count, longest=6).compact()
    return EncodedRows(
        rows.ids,
        {field: Lists(table.offsets, table.ids, np.abs(table.value_weights())) for field, table in rows.lists.items()},
    )


def pooled(rows: EncodedRows, *, weighted: bool) -> EncodedRows:
    """Divide the weights of each list by their sum, as the model's pooling does."""
    lists = {}
    for field, table in rows.lists.items():
        weights = table.value_weights() if weighted else np.ones(len(table.ids), np.float32)
        numbers = np.repeat(np.arange(len(table)), table.sizes)
        sums = np.bincount(numbers, weights, minlength=len(table))
        lists[field] = Lists(table.offsets, table.ids, (weights / sums[numbers]).astype(np.float32))
    return EncodedRows(rows.ids, lists)


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_with_lists_are_pooled_and_scored(library, list_handle, list_model, weighted):
    rows = list_rows(600)
    scores = np.empty(600, np.float32)
    garbled = rows.ids.copy()
    garbled[:, [1, 3]] = -7  # the columns of lists are not read
    given = as_c_rows(EncodedRows(garbled, rows.lists), weighted=weighted)
    status = library.fm2_score_rows(list_handle, ctypes.byref(given), LOGITS, 0, scores.ctypes.data)
    assert status == OK, library.fm2_last_error()
    expected = literal_logits(list_model[0], pooled(rows, weighted=weighted))
    np.testing.assert_allclose(scores, expected, atol=2e-5)
    is_list = ctypes.c_int()
    found = []
    for field in range(4):
        assert library.fm2_field_is_list(list_handle, field, ctypes.byref(is_list)) == OK
        found.append(is_list.value)
    assert found == [0, 1, 0, 1]


def test_the_example_with_lists_prints_what_python_predicts(capi, list_model, tmp_path):
    program, rows = tmp_path / "score_lists", pooled(list_rows(40), weighted=False)
    source, header = ROOT / "examples" / "score_lists.c", ROOT / "native" / "capi"
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{header}"]
    libraries = [f"-L{capi}", "-lfm2", f"-Wl,-rpath,{capi}"]
    subprocess.run(["cc", *flags, source, "-o", program, *libraries], check=True)
    cells = [[",".join(str(id) for id, _ in values) or "-" for values in values_of(rows, field)] for field in range(4)]
    written = tmp_path / "rows.txt"
    written.write_text("".join(" ".join(row) + "\n" for row in zip(*cells, strict=True)))
    done = subprocess.run([program, list_model[1].path, written], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.array(done.stdout.split(), np.float32), list_model[1].predict(rows), rtol=1e-5)
    written.write_text("1 2 3\n")
    done = subprocess.run([program, list_model[1].path, written], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "score_lists: fm2_score_rows: expected 4 ids per row, got 3\n")


def test_cells_of_multi_valued_fields_are_split(library, list_handle, list_model):
    rows = [
        {"f0": "v1", "f1": "v3|v0|x", "f2": "v2", "f3": "v1"},
        {"f0": "v0", "f1": None, "f2": None, "f3": "v1|v1|v4"},
    ]
    texts = [value and value.encode() for row in rows for value in row.values()]
    scores = np.empty(2, np.float32)
    values = (ctypes.c_char_p * 8)(*texts)
    assert library.fm2_score_values(list_handle, values, None, 2, 4, 0, 0, scores.ctypes.data) == OK
    np.testing.assert_allclose(scores, list_model[1].predict(rows), rtol=1e-6)


def test_cells_of_interpolated_and_standardized_numbers_are_read(library, tmp_path):
    random = np.random.default_rng(0)
    log = {"click": random.integers(0, 2, 500), "price": random.lognormal(size=500).round(2)}
    transforms = ("interpolate", "linear")
    fields = [fm2.Field(name, "numeric", column="price", transform=name) for name in transforms]
    dataset = fm2.prepare(pl.DataFrame(log), fm2.Schema(fields, label="click"), tmp_path / "data")
    run = fm2.train("fmfm", dataset, tmp_path / "run", dim=4, **QUICK)
    scorer = load(compile(run.path, tmp_path / "model.fm2").path)
    cells = ["0.7", "1e3", "-1", "", "cheap", None]
    opened, scores = ctypes.c_void_p(), np.empty(len(cells), np.float32)
    assert library.fm2_open(str(scorer.path).encode(), 1, ctypes.byref(opened)) == OK
    values = (ctypes.c_char_p * len(cells))(*(None if cell is None else cell.encode() for cell in cells))
    assert library.fm2_score_values(opened, values, None, len(cells), 1, 0, 0, scores.ctypes.data) == OK
    library.fm2_close(opened)
    rows = [{"price": cell} for cell in cells]
    np.testing.assert_allclose(scores, scorer.predict(rows), rtol=1e-6)
    np.testing.assert_allclose(scores, run.predict(rows), rtol=1e-5)
    assert len(set(scores.tolist())) == 4  # training had neither missing nor unknown prices


def test_candidates_with_lists_are_ranked(library, list_handle, list_model):
    rows = list_rows(90)
    rows.ids[:, [0, 1]] = rows.ids[0, [0, 1]]
    expected = list_model[1].predict(pooled(rows, weighted=True))
    context = EncodedRows(np.ascontiguousarray(rows.ids[:1, [1, 0]]), {0: rows.lists[1].take([0])})
    candidates = EncodedRows(np.ascontiguousarray(rows.ids[:, [2, 3]]), {1: rows.lists[3]})
    fields, ranker, scores = np.array([1, 0], np.uintp), ctypes.c_void_p(), np.empty(90, np.float32)
    assert library.fm2_ranker_open(list_handle, fields.ctypes.data, 2, ctypes.byref(ranker)) == OK
    given = [as_c_rows(side) for side in (context, candidates)]
    status = library.fm2_rank_rows(ranker, *map(ctypes.byref, given), 0, 0, scores.ctypes.data)
    assert status == OK, library.fm2_last_error()
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    two = as_c_rows(EncodedRows(np.zeros((2, 2), np.int32), {0: rows.lists[1].take([0, 1])}))
    assert library.fm2_rank_rows(ranker, ctypes.byref(two), ctypes.byref(given[1]), 0, 0, scores.ctypes.data) == MISUSED
    assert b"expected one context, got 2" in library.fm2_last_error()
    library.fm2_ranker_close(ranker)


def test_invalid_lists_are_rejected(library, list_handle):
    rows = list_rows(3)
    scores = np.empty(3, np.float32)

    def fails(change, reason):
        given = as_c_rows(rows)
        kept = change(given)
        assert library.fm2_score_rows(list_handle, ctypes.byref(given), 0, 0, scores.ctypes.data) == MISUSED
        assert library.fm2_last_error().decode().startswith("fm2_score_rows: ")
        assert reason in library.fm2_last_error().decode()
        return kept

    def wrong(name, array):
        def change(given):
            setattr(given.lists[0], name, array.ctypes.data)
            return array

        return change

    def number(name, value, of_rows=False):
        return lambda given: setattr(given if of_rows else given.lists[0], name, value)

    count = len(rows.lists[1].ids)
    fails(wrong("ids", np.full(count, 30, np.int32)), "in field 1; it must be between 0 and 29")
    fails(wrong("weights", np.full(count, -1, np.float32)), "a weight of field 1 is -1.000000, not a number")
    fails(wrong("weights", np.full(count, np.nan, np.float32)), "not a number of 0 or more")
    fails(wrong("offsets", np.array([0, 1, 1 << 40, 2], np.int64)), "are out of range")
    fails(wrong("offsets", np.array([0, -1, 1, 2], np.int64)), "are out of range")
    fails(number("offsets", None), "the offsets of field 1 are NULL")
    fails(number("ids", None), "the ids of field 1 are NULL")
    fails(number("values", 0), "are out of range")
    fails(number("values", MANY), "has too many values")
    fails(number("field", 9), "there are lists for column 9; the rows have 4")
    fails(number("field", 3), "there are two lists for column 3")
    fails(number("field", 0), "field 0 is not multi-valued, but the rows have lists for it")
    fails(number("list_fields", 1, of_rows=True), "field 3 is multi-valued, but the rows have no lists for it")
    fails(number("list_fields", 99, of_rows=True), "the rows have lists for 99 fields")
    fails(number("lists", None, of_rows=True), "lists is NULL")
    fails(number("ids", None, of_rows=True), "ids is NULL")
    assert library.fm2_score_rows(list_handle, None, 0, 0, scores.ctypes.data) == MISUSED
    assert score_ids(library, list_handle, rows.ids)[0] == MISUSED
    assert b"field 1 is multi-valued, but the rows have no lists for it" in library.fm2_last_error()


def test_crosses_are_scored_and_ranked(library, tmp_path):
    fields = [field for field in CROSS_SCHEMA.fields if not field.multivalued]
    dataset = fm2.prepare(log_of(1500), CROSS_SCHEMA.replace(fields=fields), tmp_path / "data")
    run = fm2.train("fmfm", dataset, tmp_path / "run", dim=4, **QUICK)
    scorer = load(compile(run.path, tmp_path / "model.fm2").path)
    handle = ctypes.c_void_p()
    assert library.fm2_open(str(tmp_path / "model.fm2").encode(), 1, ctypes.byref(handle)) == OK
    rows = log_of(200, seed=4)
    cells = [value.encode() for row in rows.select(scorer.columns).iter_rows() for value in row]
    values, scores = (ctypes.c_char_p * len(cells))(*cells), np.empty(200, np.float32)
    columns = len(scorer.columns)
    assert library.fm2_score_values(handle, values, None, 200, columns, 0, 1, scores.ctypes.data) == OK
    expected = scorer.predict(rows)
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    ids = scorer.encode(rows.with_columns(user=pl.lit("u1")))
    names = list(dataset.schema.names)
    context = np.array([names.index("user")], np.uintp)
    ranker = ctypes.c_void_p()
    assert library.fm2_ranker_open(handle, context.ctypes.data, 1, ctypes.byref(ranker)) == OK
    candidates = np.delete(ids, names.index("user"), axis=1)
    candidates[:, 0] = -7  # user_item, which is not read
    candidates = np.ascontiguousarray(candidates)
    context_ids = np.ascontiguousarray(ids[0, context])
    width = len(names) - 1
    pointers = (context_ids.ctypes.data, 1, candidates.ctypes.data, 200, width)
    assert library.fm2_rank_ids(ranker, *pointers, 0, 1, scores.ctypes.data) == OK
    np.testing.assert_allclose(scores, scorer.predict(ids), atol=1e-6)
    library.fm2_ranker_close(ranker)
    wrong = np.array([names.index("user_item")], np.uintp)
    assert library.fm2_ranker_open(handle, wrong.ctypes.data, 1, ctypes.byref(ranker)) == MISUSED
    assert b"a cross with a field of the candidates" in library.fm2_last_error()
    library.fm2_close(handle)


def test_a_network_is_refused_unless_it_is_sparse(library, tmp_path):
    data = fm2.prepare(mixed(600), SCHEMA, tmp_path / "data")
    dense = compile(random_run("widedeep", data, tmp_path / "dense").path, tmp_path / "dense.fm2").path
    opened = ctypes.c_void_p()
    assert library.fm2_open(str(dense).encode(), 1, ctypes.byref(opened)) == BAD_MODEL
    reason = "this network needs ONNX Runtime, which the C interface does not have; use fm2.load in Python"
    assert library.fm2_last_error().decode() == f"fm2_open: {dense}: {reason}"
    assert not opened
    sparse = compile(pruned_run("deeplight", data, tmp_path / "sparse").path, tmp_path / "sparse.fm2").path
    assert library.fm2_open(str(sparse).encode(), 1, ctypes.byref(opened)) == OK
    ids, scores = np.array(data.train.ids[:100]), np.empty(100, np.float32)
    pointers = ids.ctypes.data, 100, ids.shape[1], 0, 1, scores.ctypes.data
    assert library.fm2_score_ids(opened, *pointers) == OK
    np.testing.assert_allclose(scores, load(sparse).predict(ids), atol=1e-6)
    library.fm2_close(opened)
