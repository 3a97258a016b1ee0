"""What the OpenAPI description says beyond what the code's signatures do."""

from typing import Any

DESCRIPTION = (
    "A model that learned task after task. `POST /predict` answers with label, task, probabilities and uncertainties; "
    "which task an input belongs to is inferred unless it is named. Errors are JSON with one sentence: "
    '`{"error": "..."}`.'
)

_ROWS: dict[str, Any] = {
    "type": "object",
    "required": ["rows"],
    "properties": {
        "rows": {
            "type": "array",
            "description": "Objects with the names of columns, or arrays in the model's order or shape.",
            "items": {"oneOf": [{"type": "object"}, {"type": "array", "items": {}}]},
        },
        "task": {"type": "string", "description": "Name of the task, if it is known."},
        "criterion": {"type": "string", "description": "How the task is inferred."},
    },
}
_FILE = {"type": "string", "format": "binary"}
_FORM = {"type": "object", "properties": {"file": {"type": "array", "items": _FILE}}}

PREDICT: dict[str, Any] = {
    "parameters": [
        {"name": name, "in": "query", "required": False, "schema": {"type": "string"}, "description": words}
        for name, words in (
            ("task", "Name of the task, if it is known; else it is inferred."),
            ("criterion", "How the task is inferred; default: as the model does by itself."),
        )
    ],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": _ROWS,
                "example": {"rows": [{"size": 1.5, "colour": "red"}, {"size": 2.5, "colour": "blue"}]},
            },
            "text/csv": {"schema": {"type": "string"}, "example": "size,colour\n1.5,red\n2.5,blue\n"},
            "image/png": {"schema": _FILE},
            "image/jpeg": {"schema": _FILE},
            "multipart/form-data": {"schema": _FORM},
        },
    },
}

_EXAMPLES: dict[str, Any] = {
    "type": "object",
    "required": ["rows"],
    "properties": {
        "rows": {"type": "array", "items": {}, "description": "Objects with a label, or arrays together with labels."},
        "labels": {"type": "array", "items": {}, "description": "One for each row, where rows are arrays."},
    },
}
LEARN: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "text/csv": {"schema": {"type": "string"}, "example": "size,colour,product\n1.5,red,a\n2.5,blue,b\n"},
            "application/json": {
                "schema": _EXAMPLES,
                "example": {"rows": [{"size": 1.5, "colour": "red", "product": "a"}]},
            },
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "description": "PNG or JPEG images: the name of each field is the label of its files.",
                    "additionalProperties": {"type": "array", "items": {"type": "string", "format": "binary"}},
                }
            },
            "application/zip": {
                "schema": {"type": "string", "format": "binary", "description": "Images in a folder for each label."}
            },
        },
    }
}

_ERROR = {
    "content": {
        "application/json": {
            "schema": {"type": "object", "properties": {"error": {"type": "string"}}},
            "example": {"error": "the body is not JSON"},
        }
    }
}
_NUMBER = {"type": "number"}
_PROBABILITIES = {"type": ["object", "null"], "additionalProperties": _NUMBER}
_PREDICTION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "label": {"description": "The predicted class."},
        "mean": {"description": "Regression: the predicted value, or a list of them."},
        "std": {"description": "Regression: standard deviation of the target, with noise."},
        "lower": {"description": "Regression: lower end of the prediction interval (inference.coverage); may be null."},
        "upper": {"description": "Regression: its upper end."},
        "task": {"type": "string"},
        "task_probabilities": {**_PROBABILITIES, "description": "By task; null if the task was given."},
        "probabilities": {**_PROBABILITIES, "description": "By class."},
        "known": {"type": ["boolean", "null"], "description": "Whether the input resembles those of its task."},
        "total": {**_NUMBER, "description": "Total uncertainty in nats."},
        "aleatoric": {**_NUMBER, "description": "The part inherent in the data."},
        "epistemic": {**_NUMBER, "description": "The part that more data would remove."},
        "file": {"type": "string", "description": "The name of an uploaded image."},
    },
}
_ANSWER = {
    "type": "object",
    "properties": {
        "generation": {"type": "integer", "description": "Which model answered, counted from the server's start."},
        "predictions": {"type": "array", "items": _PREDICTION},
        "warnings": {"type": "array", "items": {"type": "string"}},
    },
}
_WORDS = {
    400: "The body is not JSON.",
    401: "The token is missing or wrong.",
    404: "The task is unknown.",
    413: "Too many bytes, rows or pixels.",
    415: "This type of body cannot be read.",
    422: "The inputs do not fit the model; the message says how.",
    503: "Too many requests wait; try again after the seconds in Retry-After.",
    504: "The request took too long.",
}
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "One prediction per input.", "content": {"application/json": {"schema": _ANSWER}}},
    **{status: {"description": words, **_ERROR} for status, words in _WORDS.items()},
}
