"""JSON Schemas of requests and answers, for the OpenAPI description."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
VALUE: Schema = {
    "description": "A value; null is a missing value, a list or an object of weights is for multi-valued columns.",
    "type": ["string", "number", "boolean", "array", "object", "null"],
}
ROW: Schema = {"type": "object", "additionalProperties": VALUE, "description": "Values by column."}
COLUMNS: Schema = {"type": "object", "additionalProperties": {"type": "array", "items": VALUE}}
PROBABILITY: Schema = {"type": "number", "minimum": 0, "maximum": 1}


def array(items: Schema) -> Schema:
    """Return the schema of an array."""
    return {"type": "array", "items": items}


def record(required: dict[str, Schema], **optional: Schema) -> Schema:
    """Return the schema of an object."""
    return {"type": "object", "properties": {**required, **optional}, "required": list(required)}


def mapping(values: Schema) -> Schema:
    """Return the schema of an object with any keys."""
    return {"type": "object", "additionalProperties": values}


def nullable(schema: Schema) -> Schema:
    """Return the schema of a value that may be null."""
    return {"anyOf": [schema, {"type": "null"}]}


def reference(name: str) -> Schema:
    """Return a reference to a schema."""
    return {"$ref": f"#/components/schemas/{name}"}


ANSWERED = {"model": TEXT, "version": TEXT}
ITEM: Schema = {**ROW, "properties": {"id": {"type": ["string", "integer"]}}, "required": ["id"]}
TENSOR = record({"name": TEXT, "datatype": TEXT, "shape": array(COUNT)}, data=array({}), parameters=mapping({}))
SIGNATURE = record({"name": TEXT, "datatype": TEXT, "shape": array({"type": "integer"})})
TIMES = record({"bounds": array(NUMBER), "counts": array(COUNT)})

SCHEMAS: dict[str, Schema] = {
    "Error": record({"error": TEXT}, column=TEXT),
    "PredictRequest": {
        "oneOf": [record({"rows": array(ROW)}, id=TEXT), record({"columns": COLUMNS}, id=TEXT)],
        "examples": [{"rows": [{"site": "news", "ad": "ad1"}]}],
    },
    "PredictResponse": record({**ANSWERED, "probabilities": array(PROBABILITY)}, id=TEXT),
    "RankRequest": record(
        {"context": ROW},
        candidates={"anyOf": [array(ROW), record({"columns": COLUMNS})]},
        catalog=TEXT,
        top=COUNT,
        id=TEXT,
    ),
    "RankResponse": record(
        {**ANSWERED, "indices": array(COUNT), "probabilities": array(PROBABILITY)}, items=array(TEXT), id=TEXT
    ),
    "ExplainRequest": record({"row": ROW}),
    "Explanation": record(
        {
            **ANSWERED,
            "bias": NUMBER,
            "fields": mapping(NUMBER),
            "pairs": array({"type": "array", "prefixItems": [TEXT, TEXT, NUMBER]}),
            "values": mapping(
                array(record({"value": nullable(TEXT), "weight": NUMBER, "linear": NUMBER, "pairs": NUMBER}))
            ),
            "row": mapping(nullable(TEXT)),
            "logit": NUMBER,
            "probability": PROBABILITY,
            "calibrated": nullable(PROBABILITY),
        }
    ),
    "OutcomesRequest": record({"probabilities": array(PROBABILITY), "clicks": array(PROBABILITY)}),
    "Outcomes": record({"accepted": COUNT}),
    "Version": record(
        {
            "version": TEXT,
            "label": {"enum": ["", "canary", "shadow", "inactive"]},
            "share": nullable(NUMBER),
            "loaded": NUMBER,
            "model": TEXT,
            "plan": TEXT,
            "dtype": TEXT,
            "bytes": COUNT,
            "fields": COUNT,
            "features": COUNT,
            "calibrated": FLAG,
            "explainable": FLAG,
            "metrics": nullable(mapping(NUMBER)),
            "checksum": TEXT,
        }
    ),
    "Models": record({"models": array(record({"name": TEXT, "versions": array(reference("Version"))}))}),
    "Column": record(
        {
            "name": TEXT,
            "kind": TEXT,
            "multivalued": FLAG,
            "weighted": FLAG,
            "size": nullable(COUNT),
            "values": array({}),
        },
        weights_of=nullable(TEXT),
        format=nullable(TEXT),
        separator=nullable(TEXT),
    ),
    "Model": {
        "allOf": [
            reference("Version"),
            record(
                {
                    "name": TEXT,
                    "versions": array(reference("Version")),
                    "catalogs": array(reference("Catalog")),
                    "columns": array(reference("Column")),
                    "labels": mapping(TEXT),
                    "rejected": mapping(TEXT),
                }
            ),
        ]
    },
    "Stats": record(
        {
            "time": NUMBER,
            "started": NUMBER,
            "models": mapping(
                mapping(
                    record(
                        {
                            "requests": COUNT,
                            "rows": COUNT,
                            "failures": COUNT,
                            "latency": TIMES,
                            "unknown": mapping(record({"values": COUNT, "unknown": COUNT})),
                        }
                    )
                )
            ),
        }
    ),
    "Traffic": record(
        {},
        serving=TEXT,
        labels=mapping(TEXT),
        canary=nullable(record({"version": TEXT, "share": PROBABILITY})),
        shadow=nullable(record({"version": TEXT})),
    ),
    "Catalogs": record({"catalogs": array(reference("Catalog"))}),
    "Catalog": record({"name": TEXT, "candidate": array(TEXT), "items": COUNT}, ids=array(TEXT)),
    "CatalogRequest": record({"candidate": array(TEXT), "items": array(ITEM)}),
    "ItemsRequest": record({"items": array(ITEM)}),
    "PruneRequest": record({"ids": array(TEXT)}),
    "ModelMetadata": record(
        {
            "name": TEXT,
            "versions": array(TEXT),
            "platform": TEXT,
            "inputs": array(SIGNATURE),
            "outputs": array(SIGNATURE),
        }
    ),
    "InferRequest": record({"inputs": array(TENSOR)}, id=TEXT, outputs=array(mapping({})), parameters=mapping({})),
    "InferResponse": record({"model_name": TEXT, "model_version": TEXT, "outputs": array(TENSOR)}, id=TEXT),
    "Index": array(record({"name": TEXT, "version": TEXT, "state": TEXT, "reason": TEXT})),
    "LoadRequest": record({}, parameters=mapping({})),
}
