"""What a setting allows, in words: as a cell of the reference, and as a sentence that refuses a value."""

from collections.abc import Mapping
from typing import Any, cast

from pydantic import ValidationError

from metareplay.errors import listed
from metareplay.settings import Settings

Schema = Mapping[str, Any]


def shown(value: Any) -> str:
    """A default as it would be written in a YAML file."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{', '.join(shown(element) for element in value)}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def allowed(schema: Schema, definitions: Mapping[str, Schema]) -> str:
    """What a JSON schema allows, in words."""
    if "$ref" in schema:
        return allowed(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return " or ".join(allowed(choice, definitions) for choice in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    if schema["type"] == "array":
        if "prefixItems" in schema:
            return f"[{', '.join(allowed(item, definitions) for item in schema['prefixItems'])}]"
        return f"list ({allowed(schema['items'], definitions)} each)"
    if schema["type"] in ("integer", "number"):
        return _interval(schema)
    return {"boolean": "true or false", "string": "text", "null": "null"}[schema["type"]]


def _interval(schema: Schema) -> str:
    """A kind of number and its bounds."""
    noun = schema["type"]
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    if high is None and below is None:
        if above == 0 or (noun == "integer" and low == 1):
            return f"positive {noun}"
        bound = f" ≥ {low}" if low is not None else f" > {above}" if above is not None else ""
        return f"{noun}{bound}"
    left = f"({above}" if above is not None else f"[{low}" if low is not None else "(-∞"
    right = f"{below})" if below is not None else f"{high}]"
    return f"{noun} in {left}, {right}"


def refused_value(error: ValidationError, values: Mapping[str, Any], config: type[Settings]) -> tuple[str, str]:
    """The key that a validation error is about, and a sentence about it: the given value, and what it must be."""
    first = error.errors()[0]
    names = [str(name) for name in first["loc"]]
    key = next((key for end in (1, 2) if (key := ".".join(names[:end])) in values), ".".join(names))
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] != "value_error" and key in values:
        message = _requirement(config, key)
    return key, f"{key}{_given(values[key]) if key in values else ''}: {message[0].lower()}{message[1:]}"


def _given(value: Any) -> str:
    return f"={shown(value) if value is None or isinstance(value, bool) else repr(value)}"


def _requirement(config: type[Settings], key: str) -> str:
    group, _, name = key.rpartition(".")
    settings = cast(type[Settings], config.model_fields[group].annotation) if group else config
    schema = settings.model_json_schema()
    form = schema["properties"][name]
    if "pattern" in form:
        return f"is not allowed ({form['description']})"
    return f"must be {required(form, schema.get('$defs', {}))}"


def required(schema: Schema, definitions: Mapping[str, Schema]) -> str:
    """What a JSON schema requires, to complete ``must be ...``."""
    return listed(_choices(schema, definitions))


def _choices(schema: Schema, definitions: Mapping[str, Schema]) -> list[str]:
    if "$ref" in schema:
        return _choices(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return [words for choice in schema["anyOf"] for words in _choices(choice, definitions)]
    if "enum" in schema:
        return [str(choice) for choice in schema["enum"]]
    if schema["type"] == "array":
        return [_required_list(schema, definitions)]
    if schema["type"] in ("integer", "number"):
        article = "an" if (words := _required_number(schema)).startswith("integer") else "a"
        return [f"{article} {words}"]
    return [{"boolean": "true or false", "string": "text", "null": "null"}[schema["type"]]]


def _required_list(schema: Schema, definitions: Mapping[str, Schema]) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(required(item, definitions) for item in schema['prefixItems'])}]"
    items = schema["items"]
    if items.get("type") in ("integer", "number"):
        return f"a list of {_required_number(items, plural='s')}"
    return f"a list of {'pairs ' if 'prefixItems' in items else ''}{required(items, definitions)}"


def _required_number(schema: Schema, plural: str = "") -> str:
    """A kind of number and its bounds, as a phrase."""
    noun = f"{schema['type']}{plural}"
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f"{noun} from {low:g} to {high:g}"
    if high is None and below is None:
        if above == 0 or (schema["type"] == "integer" and low == 1):
            return f"positive {noun}"
        if low == 0:
            return f"non-negative {noun}"
    lower = f"of at least {low:g}" if low is not None else f"above {above:g}" if above is not None else ""
    upper = f"at most {high:g}" if high is not None else f"below {below:g}" if below is not None else ""
    return " ".join(filter(None, (noun, " and ".join(filter(None, (lower, upper))))))
