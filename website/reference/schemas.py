"""Files and their schemas: every typed file, key by key, from the classes that read and write it."""

import ast
import inspect
import json
from functools import cache
from textwrap import dedent
from typing import Any

from pydantic import BaseModel

from metareplay.experiments.results import Results
from metareplay.experiments.tuning.definition import Definition
from metareplay.learner.history import HistoryEntry
from metareplay.report.records import Record
from website.reference.text import code, from_docstring, paragraphs, table

FILES: dict[str, tuple[type[BaseModel], str]] = {
    "results.json": (Results, "What a finished run found out ([a run's folder](../appendix/runs.md#a-runs-folder))."),
    "history.json": (HistoryEntry, "A list of such entries: what happened to a model ([on disk](../model_files.md))."),
    "records of figures": (Record, "Measured figures, in results/ ([results](../results.md))."),
    "study.yaml": (Definition, "What a search of settings looks for ([tuning](../tuning.md))."),
}


@cache
def attribute_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The strings below the attributes of a class and of those it inherits from."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if kind is BaseModel or not issubclass(kind, BaseModel):
            continue
        (body,) = ast.parse(dedent(inspect.getsource(kind))).body
        assert isinstance(body, ast.ClassDef)
        for line, after in zip(body.body, body.body[1:], strict=False):
            match line, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = inspect.cleandoc(text)
    return found


def models_of(model: type[BaseModel]) -> list[type[BaseModel]]:
    """A class and those of its attributes, each once, in the order in which they are met."""
    found = [model]
    for entry in model.model_fields.values():
        for part in _classes(entry.annotation):
            found += [kind for kind in models_of(part) if kind not in found]
    return found


def _classes(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in getattr(annotation, "__args__", ()) for found in _classes(part)]


def described_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema, with the strings below attributes as descriptions."""
    schema = model.model_json_schema(by_alias=True)
    for kind in models_of(model):
        form = schema if kind is model else schema["$defs"].get(kind.__name__, {})
        for name, text in attribute_docstrings(kind).items():
            key = kind.model_fields[name].alias or name if name in kind.model_fields else name
            if key in form.get("properties", {}):
                form["properties"][key].setdefault("description", text)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def kind_in_words(form: dict[str, Any]) -> str:
    """The type of a key."""
    if "$ref" in form:
        name = form["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in form:
        return " or ".join(kind_in_words(choice) for choice in form["anyOf"])
    if "const" in form:
        return f"always {code(json.dumps(form['const']))}"
    if "enum" in form:
        return " or ".join(code(json.dumps(choice)) for choice in form["enum"])
    if form.get("type") == "array":
        items = form.get("items") or (form.get("prefixItems") or [{}])[0]
        return f"list of ({kind_in_words(items)})" if "anyOf" in items else f"list of {kind_in_words(items)}"
    if form.get("type") == "object":
        values = form.get("additionalProperties")
        if not isinstance(values, dict) or not values:
            return "object"
        words = kind_in_words(values)
        return f"object of ({words})" if "anyOf" in values else f"object of {words}"
    return str(form.get("type", "anything"))


def _model(model: type[BaseModel], schema: dict[str, Any], whole: dict[str, Any]) -> list[str]:
    required = schema.get("required", [])
    rows = [
        (code(key), kind_in_words(form), f"{'Required. ' if key in required else ''}{_told(form, whole)}")
        for key, form in schema.get("properties", {}).items()
    ]
    about = from_docstring(model.__doc__)
    return [f"### {model.__name__}", about, table(("key", "type", "meaning"), rows)]


def _told(form: dict[str, Any], whole: dict[str, Any]) -> str:
    """What a key means: its own words, or those of the object that it holds."""
    if "description" not in form:
        inner = next((choice for choice in [form, *form.get("anyOf", [])] if "$ref" in choice), {"$ref": ""})
        form = whole.get("$defs", {}).get(inner["$ref"].rpartition("/")[2], {})
    return from_docstring(form.get("description", ""))


def schema_files() -> dict[str, str]:
    """The schemas themselves, as files of the site."""
    return {
        f"reference/schemas/{_file(name)}": json.dumps(described_schema(model), indent=1) + "\n"
        for name, (model, _) in FILES.items()
    }


def _file(name: str) -> str:
    return f"{name.split(' ')[0].removesuffix('.json').removesuffix('.yaml')}.schema.json"


def page() -> str:
    """What is written, and how it is to be read."""
    blocks = [
        "# Files and schemas",
        "Everything that is written is safetensors, JSON or YAML, and replaced in one step; nothing is pickled. "
        "The folder of [a run](../appendix/runs.md#a-runs-folder) and that of [a model](../model_files.md) have pages "
        "of their own. Here are the typed files, key by key, each with its JSON schema.",
    ]
    for name, (model, about) in FILES.items():
        schema = described_schema(model)
        blocks += [f"## {name}", f"{about} [JSON schema](schemas/{_file(name)})."]
        for kind in models_of(model):
            form = schema if kind is model else schema["$defs"].get(kind.__name__, {})
            blocks += _model(kind, form, schema)
    return paragraphs(*blocks)
