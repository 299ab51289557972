"""Multi-valued fields: every format gives the rows that a literal transcription of the rules gives."""

from __future__ import annotations

import math
from collections import Counter
from types import MappingProxyType

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.lists import values_of

from fm2 import Field, Fm2Error, Schema, prepare
from fm2.data.encoder import Encoder
from fm2.data.rows import EncodedRows

ALL_TRAIN = {"fractions": (1, 0, 0)}
CELLS = [["a", "b"], None, ["b"], ["c", "a", "a", "b"], ["c"], ["b", "d"]]
WEIGHTS = [[0.5, 2.0], None, [0.25], [1.0, 0.0, 3.0, 1.0], [0.0], [1.5, 4.0]]


def tags(**settings) -> Field:
    return Field("tags", **{"multivalued": True, "min_count": 1, **settings})


def schema(*fields: Field) -> Schema:
    return Schema(fields, label="y")


def pooled(weights: list[float], pooling: str) -> list[float]:
    """Return the weights after pooling, as the definition says."""
    total = {"mean": sum(weights), "sqrt": math.sqrt(sum(w * w for w in weights)), "sum": 1.0}[pooling]
    return [float(np.float32(w / total)) if total else 0.0 for w in weights]


def literal(field: Field, cells, weights=None) -> list[list[tuple[str | None, float]]]:
    """Return the weighted values of each cell, as the documentation describes them."""
    rows = []
    for cell, cell_weights in zip(cells, weights or [None] * len(cells), strict=True):
        if cell is None or (not cell and field.empty_is_missing):
            rows.append([(None, 1.0)])
            continue
        pairs = list(zip(cell, cell_weights or [1.0] * len(cell), strict=True))
        if field.max_values:
            pairs = pairs[-field.max_values :] if field.keep == "last" else pairs[: field.max_values]
        after = pooled([weight for _, weight in pairs], field.pooling)
        rows.append([(value, weight) for (value, _), weight in zip(pairs, after, strict=True)])
    return rows


def decoded(encoder: Encoder, rows: EncodedRows, field: int = 0) -> list[list[tuple[str | None, float]]]:
    vocabulary = encoder.vocabularies[field]
    return [[(vocabulary.value(id), weight) for id, weight in cell] for cell in values_of(rows, field)]


def check(source, field: Field, tmp_path, cells=CELLS, weights=None, rows=None, **columns) -> None:
    """Prepare a source and compare the rows; encode ``rows`` or the source with the result and compare as well."""
    expected = literal(field, cells, weights)
    dataset = prepare(source, schema(field, *columns.get("more", ())), tmp_path / "data", **ALL_TRAIN, overwrite=True)
    assert decoded(dataset.encoder, dataset.train.encoded) == expected
    if rows is not None or not isinstance(source, str | type(tmp_path)):
        assert decoded(dataset.encoder, dataset.encoder.encode_rows(source if rows is None else rows)) == expected
    counts = Counter(value for cell in expected for value, _ in cell)
    vocabulary = dataset.vocabularies[0]
    found = {vocabulary.value(id): int(vocabulary.counts[id - 1]) for id in range(1, len(vocabulary))}
    assert found == counts


def joined(cells, separator="|") -> list[str]:
    return ["" if cell is None else separator.join(cell) for cell in cells]


@pytest.mark.parametrize("pooling", ["mean", "sum", "sqrt"])
@pytest.mark.parametrize("limits", [{}, {"max_values": 2}, {"max_values": 1, "keep": "last"}])
@pytest.mark.parametrize("separator", ["|", ";", " ", ","])
def test_text_is_split_at_the_separator(tmp_path, pooling, limits, separator):
    path = tmp_path / "log.tsv"
    path.write_text("y\ttags\n" + "".join(f"1\t{cell}\n" for cell in joined(CELLS, separator)))
    field = tags(separator=separator, pooling=pooling, **limits)
    check(path, field, tmp_path, rows=[{"tags": cell} for cell in joined(CELLS, separator)])


def test_quoted_cells_are_unquoted_before_they_are_split(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text('y,tags\n1,"a,x"\n0,"say ""hi"",b"\n1,b\n')
    check(path, tags(separator=","), tmp_path, cells=[["a", "x"], ['say "hi"', "b"], ["b"]])


@pytest.mark.parametrize("pooling", ["mean", "sum", "sqrt"])
@pytest.mark.parametrize("limits", [{}, {"max_values": 2, "keep": "last"}])
def test_weights_follow_the_last_colon(tmp_path, pooling, limits):
    cells = [["a:b", "c"], None, ["a:b"], ["c", "d"]]
    weights = [[0.5, 1.0], None, [2.0], [0.0, 1e-3]]
    path = tmp_path / "log.tsv"
    path.write_text("y\ttags\n1\ta:b:0.5|c\n1\t\n0\ta:b:2\n1\tc:0|d:1e-3\n")
    check(path, tags(weighted=True, pooling=pooling, **limits), tmp_path, cells, weights)


@pytest.mark.parametrize("limits", [{}, {"max_values": 2, "keep": "last"}])
def test_weights_may_be_in_a_second_column(tmp_path, limits):
    texts = ["" if cell is None else "|".join(map(str, cell)) for cell in WEIGHTS]
    path = tmp_path / "log.tsv"
    path.write_text("y\ttags\tw\n" + "".join(f"1\t{a}\t{b}\n" for a, b in zip(joined(CELLS), texts, strict=True)))
    field = tags(weight_column="w", **limits)
    check(path, field, tmp_path, weights=WEIGHTS)
    rows = [{"tags": cell, "w": weight} for cell, weight in zip(CELLS, WEIGHTS, strict=True)]
    check(path, field, tmp_path, weights=WEIGHTS, rows=rows)
    mixed = [{"tags": text, "w": weight} for text, weight in zip(joined(CELLS), WEIGHTS, strict=True)]
    check(path, field, tmp_path, weights=WEIGHTS, rows=mixed)
    check(pl.DataFrame({"y": [1] * len(CELLS), "tags": CELLS, "w": WEIGHTS}), field, tmp_path, weights=WEIGHTS)


def test_libffm_fields_may_repeat(tmp_path):
    path = tmp_path / "log.ffm"
    path.write_text("1 0:a:1 1:x:1 0:b:1\n-1 1:z:1\n0 0:b:1 1:x:1\n")
    field = Field("tags", column="0", multivalued=True, min_count=1, separator="a")
    other = Field("other", column="1", min_count=1)
    check(path, field, tmp_path, [["a", "b"], None, ["b"]], more=[other])


def test_libffm_values_are_weights(tmp_path):
    path = tmp_path / "log.ffm"
    path.write_text("1 0:a:0.5 1:x:1 0:b:2e0\n-1 1:z:1\n0 0:b:3 1:x:1\n")
    field = Field("tags", column="0", multivalued=True, weighted=True, pooling="sum", min_count=1)
    other = Field("other", column="1", min_count=1)
    check(path, field, tmp_path, [["a", "b"], None, ["b"]], [[0.5, 2], None, [3]], more=[other])


LISTS = [["1", "2"], None, [], ["3", "2", "2", None], ["1"]]
INTEGERS = [None if cell is None else [value and int(value) for value in cell] for cell in LISTS]
ARROW_TYPES = {
    "list": pa.list_(pa.string()),
    "large_list": pa.large_list(pa.large_string()),
    "integers": pa.list_(pa.int16()),
    "floats": pa.large_list(pa.float64()),
    "dictionary": pa.list_(pa.dictionary(pa.int8(), pa.string())),
    "views": pa.list_(pa.string_view()),
    "list_view": pa.list_view(pa.string()),
    "large_list_view": pa.large_list_view(pa.int64()),
}


@pytest.mark.parametrize("empty_is_missing", [False, True])
@pytest.mark.parametrize("kind", ARROW_TYPES)
def test_arrow_lists(tmp_path, kind, empty_is_missing):
    numbers = kind in ("integers", "floats", "large_list_view")
    values = pa.array([["9"], *LISTS] if not numbers else [[9], *INTEGERS], ARROW_TYPES[kind])
    table = pa.table({"y": [0] + [1] * len(LISTS), "tags": values}).slice(1)
    check(table, tags(empty_is_missing=empty_is_missing), tmp_path, LISTS)


def test_arrow_lists_of_fixed_size(tmp_path):
    cells = [["1", "2"], None, ["3", None], ["1", "1"]]
    numbers = [None if cell is None else [value and int(value) for value in cell] for cell in cells]
    values = pa.array([[7, 8], *numbers], pa.list_(pa.int64(), 2))
    check(pa.table({"y": [1] * 5, "tags": values}).slice(1), tags(max_values=1, keep="last"), tmp_path, cells)


@pytest.mark.parametrize("order", [("value", "weight"), ("weight", "value"), ("tag", "score")])
def test_arrow_lists_of_structs_have_weights(tmp_path, order):
    named = dict(zip(("value", "weight"), order if order[1] != "value" else order[::-1], strict=True))
    cells = [
        None if cell is None else [{named["value"]: v, named["weight"]: w} for v, w in zip(cell, weights, strict=True)]
        for cell, weights in zip(CELLS, WEIGHTS, strict=True)
    ]
    types = {named["value"]: pa.string(), named["weight"]: pa.float32()}
    struct = pa.struct([(name, types[name]) for name in order])
    table = pa.table({"y": [1] * 7, "tags": pa.array([cells[0], *cells], pa.list_(struct))}).slice(1)
    check(table, tags(weighted=True), tmp_path, weights=WEIGHTS)
    check(pl.DataFrame(table), tags(weighted=True), tmp_path, weights=WEIGHTS)


def test_arrow_maps_have_weights(tmp_path):
    cells = [["a", "b"], None, [], ["c"]]
    weights = [[0.5, 2.0], None, [], [3.0]]
    items = [
        None if cell is None else list(zip(cell, weight, strict=True))
        for cell, weight in zip(cells, weights, strict=True)
    ]
    table = pa.table({"y": [1] * 4, "tags": pa.array(items, pa.map_(pa.string(), pa.float64()))})
    check(table, tags(weighted=True, pooling="sqrt"), tmp_path, cells, weights)


def test_a_null_struct_is_a_missing_value_with_weight_1(tmp_path):
    struct = pa.struct([("value", pa.string()), ("weight", pa.float64())])
    values = pa.array([[{"value": "a", "weight": 3.0}, None]], pa.list_(struct))
    field = tags(weighted=True, pooling="sum")
    check(pa.table({"y": [1], "tags": values}), field, tmp_path, [["a", None]], [[3.0, 1.0]])


def test_frames_of_all_libraries_and_parquet(tmp_path):
    frame = pl.DataFrame({"y": [1] * len(CELLS), "tags": CELLS})
    check(frame, tags(), tmp_path)
    check(frame.lazy(), tags(), tmp_path)
    check(pd.DataFrame({"y": [1] * len(CELLS), "tags": CELLS}), tags(), tmp_path)
    check(frame.with_columns(pl.col("tags").list.join("|")), tags(), tmp_path)
    check(frame.with_columns(pl.col("tags").list.join("|").cast(pl.Categorical)), tags(), tmp_path)
    frame.write_parquet(tmp_path / "log.parquet")
    check(tmp_path / "log.parquet", tags(), tmp_path, rows=frame)


def encoder_of(*fields: Field, values=("a", "b", "c", "1", "2.5", "")) -> Encoder:
    from fm2.data.vocabulary import Vocabulary

    return Encoder(schema(*fields), [Vocabulary.of(values) for _ in fields])


@pytest.mark.parametrize(
    ("cell", "values"),
    [
        (["a", "b"], ["a", "b"]),
        (("b", "a"), ["b", "a"]),
        ({"c", "a", "b"}, ["a", "b", "c"]),
        (frozenset({"b"}), ["b"]),
        (np.array(["b", "a"]), ["b", "a"]),
        (np.array(["b", 1, 2.5, None], object), ["b", "1", "2.5", None]),
        (np.array([1, 2.5], np.float32), ["1", "2.5"]),
        (pd.Series(["b", "a"]), ["b", "a"]),
        ([1, 2.5, 1.0, None, b"a"], ["1", "2.5", "1", None, "a"]),
        ("a|b", ["a", "b"]),
        (1, ["1"]),
        ([], []),
        ((), []),
        (np.array([]), []),
        (None, None),
        ("", None),
        (float("nan"), None),
        (pd.NA, None),
        (["zzz", "a"], ["<unknown>", "a"]),
    ],
)
def test_python_values(cell, values):
    encoder = encoder_of(tags())
    expected = [[(value, 1.0) for value in values]] if values is not None else [[(None, 1.0)]]
    if values:
        expected = [[(value, float(np.float32(1 / len(values)))) for value in values]]
    rows = encoder.encode_rows([{"tags": cell}])
    assert decoded(encoder, rows) == expected
    assert encoder.decode(rows) == {"tags": [values if values != [None] else None]}
    assert decoded(encoder, encoder.encode_rows({"tags": [cell]})) == expected


def test_python_dicts_of_weights():
    encoder = encoder_of(tags(weighted=True, pooling="sum", max_values=2, keep="last"))
    rows = encoder.encode_rows([{"tags": {"a": 9, "b": 0.5, 1: 2}}, {"tags": {}}, {"tags": "c:3"}, {"tags": ["a:3"]}])
    expected = [[("b", 0.5), ("1", 2.0)], [], [("c", 3.0)], [("a", 3.0)]]
    assert decoded(encoder, encoder.encode_rows([{"tags": MappingProxyType({"a": 9, "b": 0.5, 1: 2})}])) == expected[:1]
    assert decoded(encoder, rows) == expected


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ([["a"]], "column 'tags': a value is a nested list; a cell must be a list of values"),
        (["a", ("b",)], "a nested list"),
        (np.array([["a"]]), "a nested list"),
        ([{"a": 1}], "a nested list"),
        ({"a": 1}, "column 'tags': a value is a dict of weights; set weighted = true for its field"),
        ([object()], "column 'tags': a value has the type 'object'"),
    ],
)
def test_python_values_that_are_not_lists_of_values(cell, message):
    with pytest.raises(Fm2Error, match=message):
        encoder_of(tags()).encode([{"tags": cell}])


def test_a_single_valued_field_rejects_collections():
    encoder = encoder_of(Field("site"), tags())
    with pytest.raises(Fm2Error, match="column 'site': a value is a list; only multi-valued fields may have several"):
        encoder.encode([{"site": ["a"], "tags": ["b"]}])


def test_cells_that_cannot_be_read_are_unknown_at_prediction():
    encoder = encoder_of(tags(weighted=True))
    rows = encoder.encode_rows([{"tags": "a:x"}, {"tags": {"a": -1}}, {"tags": {"a": math.inf}}, {"tags": "b:2"}])
    assert decoded(encoder, rows) == [[("<unknown>", 1.0)]] * 3 + [[("b", 1.0)]]


@pytest.mark.parametrize(
    "cell", ["a:3|b:x|c", ["a:3", "b:x", "c"], {"a": 3, "b": "x", "c": 1}, {"a": 3, "b": -1, "c": 1}]
)
def test_a_value_with_an_invalid_weight_is_unknown_and_the_others_stay(cell):
    encoder = encoder_of(tags(weighted=True, pooling="sum"))
    assert decoded(encoder, encoder.encode_rows([{"tags": cell}])) == [[("a", 3.0), ("<unknown>", 1.0), ("c", 1.0)]]


def test_an_invalid_weight_in_a_table_or_a_second_column_makes_its_value_unknown():
    expected = [[("a", 3.0), ("<unknown>", 1.0), ("c", 1.0)]]
    structs = [[{"value": "a", "weight": 3.0}, {"value": "b", "weight": math.inf}, {"value": "c", "weight": 1.0}]]
    encoder = encoder_of(tags(weighted=True, pooling="sum"))
    for cells in (structs, [["a:3", "b:-1", "c"]], ["a:3|b:x|c"]):
        assert decoded(encoder, encoder.encode_rows(pl.DataFrame({"tags": cells}))) == expected
    encoder = encoder_of(tags(weight_column="w", pooling="sum"))
    for weights in ("3|nan|1", [3, -2, 1]):
        assert decoded(encoder, encoder.encode_rows([{"tags": "a|b|c", "w": weights}])) == expected


def test_cells_that_cannot_be_read_at_all_are_one_unknown_value():
    encoder = encoder_of(tags(weight_column="w"))
    rows = [{"tags": "a|b", "w": "1"}, {"tags": "|".join(["a"] * 70_000)}, {"tags": 'a|"b|c"'}]
    assert decoded(encoder, encoder.encode_rows(rows)) == [[("<unknown>", 1.0)]] * 3


@pytest.mark.parametrize("cell", [["a:0.5", "b:2", "c"], ("a:0.5", "b:2", "c"), {"a:0.5", "b:2", "c"}, "a:0.5|b:2|c"])
def test_items_of_a_weighted_list_may_have_weights(tmp_path, cell):
    encoder = encoder_of(tags(weighted=True, pooling="sum"))
    expected = [("a", 0.5), ("b", 2.0), ("c", 1.0)]
    assert decoded(encoder, encoder.encode_rows([{"tags": cell}])) == [expected]
    items = pl.DataFrame({"y": [0, 1], "tags": [["a:0.5", "b:2", "c"], None]})
    check(items, tags(weighted=True), tmp_path, [["a", "b", "c"], None], [[0.5, 2.0, 1.0], None])
    plain = encoder_of(tags(), values=("a:0.5", "b:2", "c"))  # without weighted, a colon is part of the value
    assert plain.decode(plain.encode([{"tags": cell}])) == {"tags": [["a:0.5", "b:2", "c"]]}


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_many_rows_are_encoded_in_order_by_any_number_of_threads(threads):
    encoder = encoder_of(Field("site"), tags(), Field("more", multivalued=True, column="tags", pooling="sum"))
    random = np.random.default_rng(0)
    cells = [random.choice(["a", "b", "c", "x"], random.integers(0, 4)).tolist() for _ in range(5000)]
    frame = pl.DataFrame({"site": ["a"] * 5000, "tags": cells}, schema={"site": pl.String, "tags": pl.List(pl.String)})
    rows = encoder.encode_rows(frame, threads)
    single = encoder.encode_rows(frame.to_dicts())
    for field in (1, 2):
        assert values_of(rows, field) == values_of(single, field)
        assert rows.ids[:, field].tolist() == list(range(5000))
    assert encoder.decode(rows)["more"] == [[v if v != "x" else "<unknown>" for v in cell] for cell in cells]


def test_encode_returns_ids_only_if_no_field_is_multi_valued():
    assert isinstance(encoder_of(Field("site")).encode([{"site": "a"}]), np.ndarray)
    encoder = encoder_of(tags())
    rows = encoder.encode([{"tags": "a"}])
    assert isinstance(rows, EncodedRows)
    assert encoder.encode(rows) is rows
    with pytest.raises(Fm2Error, match="decode: field 'tags' is multi-valued; pass EncodedRows with its lists"):
        encoder.decode(rows.ids)
    with pytest.raises(Fm2Error, match="decode: a row refers to an invalid list of field 'tags'"):
        encoder.decode(EncodedRows(np.array([[7]], np.int32), rows.lists))


characters = st.characters(exclude_characters='|":\t\n\r\0[](){}', exclude_categories=["Cs"])
words = st.text(characters, min_size=1, max_size=12)
plain = words.filter(
    lambda text: text not in ("True", "False") and not text.endswith(".0") and text == text.strip(" \t")
)
cells_of_words = st.lists(st.none() | st.lists(plain, min_size=1, max_size=6), min_size=1, max_size=20)


@settings(max_examples=60, deadline=None)
@given(cells_of_words, st.sampled_from(["mean", "sum", "sqrt"]))
def test_text_lists_and_rows_agree(tmp_path_factory, cells, pooling):
    folder = tmp_path_factory.mktemp("round_trip")
    path = folder / "log.tsv"
    path.write_text("y\ttags\n" + "".join(f"1\t{cell}\n" for cell in joined(cells)), encoding="utf-8")
    field = tags(pooling=pooling)
    check(path, field, folder, cells, rows=[{"tags": cell} for cell in cells])
    check(pl.DataFrame({"y": [1] * len(cells), "tags": cells}), field, folder, cells)
    dataset = prepare(path, schema(field), folder / "data", **ALL_TRAIN, overwrite=True)
    assert dataset.decode(dataset.train.encoded)["tags"] == cells
