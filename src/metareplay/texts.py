"""YAML and JSON that may come from anyone: the one place where they are read, whatever they hold."""

import json
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import Resolver
from yaml.scanner import Scanner

from metareplay.limits import limits, refuse_beyond

_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_OPEN, _CLOSE = b"[{", b"]}"
_NOT_BRACKETS = bytes(set(range(256)) - set(_OPEN + _CLOSE))
_STEP = np.zeros(256, dtype=np.int64)
_STEP[list(_OPEN)], _STEP[list(_CLOSE)] = 1, -1


LONGEST_INTEGER = 4096
"""Bits."""


class TextError(ValueError):
    """What is wrong with a text, in words that fit into a sentence."""


def read_text(path: Path, limit: str) -> str:
    """The text of a file in UTF-8; ``limit`` names how many megabytes it may have. Devices are never read."""
    kind = path.stat().st_mode
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise TextError("it is a device or a FIFO, not a file")
    content = path.read_bytes()
    _refuse_large(len(content), limit)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextError(f"byte {error.start} is not UTF-8 text") from error


def read_json_file(path: Path, *, nan: bool = True) -> Any:
    """The content of a JSON file; a TextError says what is wrong with it."""
    return read_json(read_text(path, "json_mb"), nan=nan)


def read_json(text: str | bytes, *, nan: bool = True) -> Any:
    """The content of a JSON text. Refused: duplicate keys, deep nesting, endless numbers, and NaN unless allowed."""
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    _refuse_large(len(content), "json_mb")
    _refuse_deep(content)
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=None if nan else _refuse_constant)
    except TextError:
        raise
    except (ValueError, RecursionError) as error:
        raise TextError(_words(error, text)) from error


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping whose keys are all different: of two equal ones, one would be lost."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        raise TextError(f"the key {next(name for name in names if names.count(name) > 1)!r} is given twice")
    return mapping


def _refuse_constant(name: str) -> None:
    raise TextError(f"{name} is not a number")


def _refuse_large(size: int, limit: str) -> None:
    refuse_beyond(limit, size / 1e6, "the text is too large, in megabytes", TextError)


def _refuse_deep(content: bytes) -> None:
    """Refuse deep nesting before anything is built; only brackets outside strings count."""
    most = limits().nesting
    if content.count(b"[") + content.count(b"{") <= most:
        return
    brackets = _STRINGS.sub(b"", content).translate(None, _NOT_BRACKETS)
    depth = int(_STEP[np.frombuffer(brackets, dtype=np.uint8)].cumsum().max(initial=0))
    refuse_beyond("nesting", depth, "lists and mappings are nested too deeply", TextError)


def read_yaml_file(path: Path) -> Any:
    """The content of a YAML file; a TextError says what is wrong with it, and where."""
    return read_yaml(read_text(path, "yaml_mb"))


def read_yaml(text: str) -> Any:
    """The content of a YAML text. Refused: duplicate keys, cycles, deep nesting, and aliases that expand without
    limit."""
    _refuse_large(len(text), "yaml_mb")
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _Census().size(node)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except TextError:
        raise
    except Exception as error:  # the library lets whatever its converters raise through: KeyError, IndexError, ...
        raise TextError(_words(error, text)) from error


class _PurePythonEvents(Reader, Scanner, Parser):
    """Cuts a text into events where PyYAML was built without libyaml."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)


_Events: Any = _PurePythonEvents
if yaml.__with_libyaml__:
    _Events = yaml.cyaml.CParser  # type: ignore[attr-defined]


class _Loader(Composer, _Events, SafeConstructor, Resolver):
    """YAML's plain values; a key that is given twice is an error, as the first would be lost.

    Events come from libyaml, six times faster; nodes are put together in Python, where deep nesting raises an error.
    """

    def __init__(self, text: str) -> None:
        _Events.__init__(self, text)
        Composer.__init__(self)
        SafeConstructor.__init__(self)
        Resolver.__init__(self)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[str] = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if isinstance(name, str) and name in seen:
                words = f"the key {name!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, words, key.start_mark)
            seen |= {name} if isinstance(name, str) else set()
        return super().construct_mapping(node, deep)


def _integer(loader: _Loader, node: Any) -> int:
    """A number of reasonable length: one in another base than ten may have any, and cannot even be printed."""
    value: int = loader.construct_yaml_int(node)
    if value.bit_length() > LONGEST_INTEGER:
        raise yaml.constructor.ConstructorError(None, None, "a number has too many digits", node.start_mark)
    return value


_Loader.add_constructor("tag:yaml.org,2002:int", _integer)


class _Census:
    """Counts the values of a YAML text as if its aliases were written out."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._open: set[int] = set()

    def size(self, node: Any, level: int = 0) -> int:
        """Of one node with all that it holds."""
        if isinstance(node, yaml.ScalarNode):
            return 1
        if id(node) in self._open:
            raise TextError(f"line {node.start_mark.line + 1}: the value contains itself")
        refuse_beyond("nesting", level, "lists and mappings are nested too deeply", TextError)
        if id(node) not in self._sizes:
            self._open.add(id(node))
            parts = [part for pair in node.value for part in (pair if isinstance(pair, tuple) else (pair,))]
            self._sizes[id(node)] = 1 + sum(self.size(part, level + 1) for part in parts)
            self._open.discard(id(node))
        refuse_beyond("values", self._sizes[id(node)], "there are too many values", TextError)
        return self._sizes[id(node)]


def _words(error: Exception, text: str | bytes) -> str:
    """What is wrong with a text, and where."""
    if isinstance(error, RecursionError):
        return "lists and mappings are nested too deeply"
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark and problem:
        ends = mark.line >= len(text.splitlines())  # libyaml marks the line after the last
        return f"{'at the end' if ends else f'line {mark.line + 1}, column {mark.column + 1}'}: {problem}"
    words = (str(error).splitlines() or [""])[0]
    if "digits" in words and isinstance(error, ValueError):
        return "a number has too many digits"
    return words if isinstance(error, ValueError | yaml.YAMLError) and words else f"a value cannot be read ({words})"
