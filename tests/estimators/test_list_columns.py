"""Classifiers with list columns: tables of all libraries, inferred fields, parameters."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone

from fm2 import Field, FmFMClassifier
from fm2.estimators import saving
from fm2.estimators.fields import column_names, make_schema
from fm2.estimators.inputs import InputError, read_table

CELLS = [["a", "b"], [], None, ["b"]]
SITES = ["x", "y", "x", "y"]
ARROW_LISTS = pd.ArrowDtype(pa.list_(pa.string()))
TABLES = {
    "polars": pl.DataFrame({"site": SITES, "tags": CELLS}),
    "pyarrow": pa.table({"site": SITES, "tags": CELLS}),
    "pandas": pd.DataFrame({"site": SITES, "tags": CELLS}),
    "pandas of arrow": pd.DataFrame(
        {"site": SITES, "tags": pd.Series(CELLS, dtype=pd.ArrowDtype(pa.list_(pa.string())))}
    ),
    "sets": pd.DataFrame({"site": SITES, "tags": [{"b", "a"}, set(), None, frozenset(["b"])]}),
    "arrays": pd.DataFrame({"site": SITES, "tags": [np.array(["a", "b"]), np.array([]), None, ("b",)]}),
    "rows": [["x", ["a", "b"]], ["y", []], ["x", None], ["y", ["b"]]],
}


@pytest.mark.parametrize("kind", TABLES)
def test_lists_of_any_library_are_multivalued(kind):
    table = read_table(FmFMClassifier(), TABLES[kind], ["site", "tags"], reset=True)
    assert table["tags"].to_list() == CELLS
    site, tags = make_schema(table, None, None).fields
    assert (site.multivalued, tags.multivalued, tags.weighted) == (False, True, False)
    assert make_schema(table, {"tags": "categorical"}, None).fields[1] == tags


@pytest.mark.parametrize(
    "cells",
    [
        pd.Series([{"a": 0.5, "b": 2}, {}, None, {"b": 1}]),
        pd.Series([[{"value": "a", "weight": 0.5}], [], None, [{"value": "b", "weight": 1}]]),
        pa.array([[("a", 0.5), ("b", 2)], [], None, [("b", 1)]], pa.map_(pa.string(), pa.float64())),
    ],
    ids=["dicts", "structs", "maps"],
)
def test_weights_of_values_are_recognized(cells):
    frame = pa.table({"tags": cells}) if isinstance(cells, pa.Array) else pd.DataFrame({"tags": cells})
    table = read_table(FmFMClassifier(), frame, None, reset=True)
    assert table["tags"].len() == 4 and table["tags"].null_count() == 1
    (tags,) = make_schema(table, None, None).fields
    assert (tags.multivalued, tags.weighted) == (True, True)


def test_a_dict_of_weights_is_a_list_of_pairs():
    table = read_table(FmFMClassifier(), pd.DataFrame({"tags": [{"a": 0.5, 7: 2}, {}]}), None, reset=True)
    assert table["tags"].to_list() == [[{"value": "a", "weight": 0.5}, {"value": "7", "weight": 2}], []]


def test_columns_without_any_value_are_lists_of_text():
    table = read_table(FmFMClassifier(), pd.DataFrame({"tags": [[], None, []]}), None, reset=True)
    assert table["tags"].dtype == pl.List(pl.String)


def test_lists_next_to_single_values_are_an_error():
    with pytest.raises(InputError, match="X has lists and single values in column 'tags'; make every cell a list"):
        read_table(FmFMClassifier(), pd.DataFrame({"tags": [["a"], "b"]}), None, reset=True)


def test_a_column_of_weights_is_no_field():
    tags = Field("tags", multivalued=True, weight_column="weights")
    table = TABLES["polars"].with_columns(weights=pl.Series([[0.5, 1.0], [], None, [2.0]]))
    assert make_schema(table, {"tags": tags}, None).names == ("site", "tags")
    assert make_schema(table, {"tags": tags, "weights": "categorical"}, None).names == ("site", "tags", "weights")
    assert column_names([Field("site"), tags]) == ["site", "tags", "weights"]


def test_parameters_with_list_fields_can_be_cloned_and_stored():
    fields = {"tags": Field("tags", multivalued=True, separator=";", pooling="sqrt", max_values=3, keep="last")}
    classifier = FmFMClassifier(fields=fields)
    assert clone(classifier).get_params()["fields"] == fields
    assert saving._from_json(saving._to_json(fields)) == fields
