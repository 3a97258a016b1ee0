"""Damage to files, by a plain seeded mutator: bits, lines, values of JSON and YAML, headers of arrays and tensors."""

import json
import random
import struct
from collections.abc import Callable
from typing import Any

import yaml

Generator = random.Random
Mutation = Callable[[bytes, Generator], bytes]

NASTY: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 10**4, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**30, 0.5, -0.0, 1e308, 5e-324,
    float("nan"), float("inf"), float("-inf"), "", " ", "0", "1e999", "nan", "true", "null", "../../../etc/passwd",
    "/dev/zero", "/proc/self/mem", "a/b", "con", "\x00", "\x1b[31m", "[bold]x[/]", "[/x]0", "%s%n", "{}", "{0.x}",
    "<script>alert(1)</script>", "é\u202e", "名前", "x" * 300, "x" * 70_000, [], {}, [[]], [None], {"": 0}, {"a": {}},
    [0] * 1000, "os:system", "mlp-1000000000", "metareplay-model-9", "$a$", "\ud800", "2026-13-45", "1970-01-01",
)  # fmt: skip
"""Values that somebody once forgot."""
RAW_JSON = (
    "9" * 5000, "[" * 100_000, '{"a":' * 50_000, "1e999999999", "-", "NaN", '"\\ud800"', '{"a":1,"a":2}', "tru", "\x00",
)  # fmt: skip
RAW_YAML = (
    "9" * 5000, "[" * 20_000, "&a [*a]", "*nothing", "!!python/object/apply:os.system [true]", "!!binary x", "? {a: 1}",
    "&b {x: *b}", "0x" + "f" * 5000, "1:2:3", "2026-01-01", "!!set {a, b}", "{a: 1, a: 2}", "|", "<<: 1", "~", "{}",
    "&l0 [x,x,x,x,x,x,x,x,x], " + ", ".join(f"&l{n} [{','.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 9)),
)  # fmt: skip


def flip_bits(content: bytes, generator: Generator) -> bytes:
    """A few bits somewhere."""
    changed = bytearray(content)
    for _ in range(generator.choice((1, 1, 1, 2, 8))):
        if changed:
            changed[generator.randrange(len(changed))] ^= 1 << generator.randrange(8)
    return bytes(changed)


def set_bytes(content: bytes, generator: Generator) -> bytes:
    """A few bytes take extreme values."""
    changed = bytearray(content)
    width = generator.choice((1, 2, 4, 8))
    if len(changed) > width:
        at = generator.randrange(len(changed) - width)
        changed[at : at + width] = generator.choice((b"\0", b"\xff", b"\x7f", b"\x80", b"0", b"9", b"\n")) * width
    return bytes(changed)


def truncate(content: bytes, generator: Generator) -> bytes:
    """The end is missing; sometimes everything, sometimes a byte."""
    return content[: generator.choice((0, 1, 8, len(content) // 2, max(0, len(content) - 1), _at(content, generator)))]


def lengthen(content: bytes, generator: Generator) -> bytes:
    """Something follows the end."""
    return content + generator.choice((b"\0", b"\n", b"x" * 100, content, b"\xff" * 4096))


def splice(content: bytes, generator: Generator) -> bytes:
    """A part is copied to another place."""
    first, second, third = sorted(_at(content, generator) for _ in range(3))
    piece = content[second:third][:4096]
    return generator.choice((content[:first] + piece + content[first:], content[:first] + piece + content[third:]))


def cut(content: bytes, generator: Generator) -> bytes:
    """A part in the middle is missing."""
    first, second = sorted(_at(content, generator) for _ in range(2))
    return content[:first] + content[min(second, first + generator.choice((1, 2, 16, 1000))) :]


def lines(content: bytes, generator: Generator) -> bytes:
    """Lines are dropped, doubled or exchanged."""
    parts = content.split(b"\n")
    at, other = generator.randrange(len(parts)), generator.randrange(len(parts))
    kind = generator.randrange(4)
    if kind == 0:
        del parts[at]
    elif kind == 1:
        parts.insert(at, parts[other])
    elif kind == 2:
        parts[at], parts[other] = parts[other], parts[at]
    else:
        parts[at] = parts[at] * generator.choice((2, 50))
    return b"\n".join(parts)


def words(content: bytes, generator: Generator) -> bytes:
    """A word or number of a text is replaced."""
    import re

    found = list(re.finditer(rb"[\w.+-]+", content))
    if not found:
        return flip_bits(content, generator)
    match = generator.choice(found)
    value = generator.choice(NASTY)
    new = json.dumps(value) if generator.random() < 0.3 else str(value)
    return content[: match.start()] + new.encode("utf-8", "surrogatepass") + content[match.end() :]


def fields(content: bytes, generator: Generator) -> bytes:
    """Separators, quotes and encodings of a table as text."""
    kind = generator.randrange(6)
    if kind == 0:
        return content.replace(
            b",", generator.choice((b";", b"\t", b"", b",,", b"|", b"\0")), generator.choice((1, -1))
        )
    if kind == 1:
        at = _at(content, generator)
        return (
            content[:at]
            + generator.choice((b'"', b"'", b'""', b'"\n', b"\r", b"\x00", b"\xff", b"=1+1"))
            + content[at:]
        )
    if kind == 2:
        return content.decode("utf-8", "replace").encode(generator.choice(("utf-16", "utf-32", "utf-16-be", "cp037")))
    if kind == 3:
        return content.split(b"\n")[0] + generator.choice((b"", b"\n", b"\n\n\n"))
    if kind == 4:
        head, _, rest = content.partition(b"\n")
        names = head.split(b",")
        names[generator.randrange(len(names))] = generator.choice(
            (b"", names[0], b"label", b" ", b"x" * 10_000, b"\xc3")
        )
        return b",".join(names) + b"\n" + rest
    return b"\xef\xbb\xbf" + content if generator.random() < 0.5 else content.replace(b"\n", b"\r")


def json_edit(content: bytes, generator: Generator) -> bytes:
    """One value of a JSON file is exchanged, dropped, doubled or nested."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return words(content, generator)
    if generator.random() < 0.25:
        return _raw(json.dumps(mark(value, generator), indent=1), generator.choice(RAW_JSON))
    return json.dumps(edited(value, generator), indent=1).encode("utf-8", "surrogatepass")


def json_line_edit(content: bytes, generator: Generator) -> bytes:
    """The same for one line of a file of JSON lines."""
    parts = content.splitlines() or [b""]
    at = generator.randrange(len(parts))
    parts[at] = json_edit(parts[at], generator).replace(b"\n", b" ")
    return b"\n".join(parts) + b"\n"


def yaml_edit(content: bytes, generator: Generator) -> bytes:
    """One value of a YAML file is exchanged, dropped, doubled or nested."""
    try:
        value = yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError):
        return words(content, generator)
    if generator.random() < 0.3:
        return _raw(yaml.safe_dump(mark(value, generator), width=10**6), generator.choice(RAW_YAML))
    return yaml.safe_dump(edited(value, generator), allow_unicode=True).encode("utf-8", "surrogatepass")


MARK = "MARKED-PLACE"


def mark(value: Any, generator: Generator) -> Any:
    """The value with a mark in one place, where raw text will stand."""
    return edited(value, generator, lambda old: MARK)


def _raw(text: str, new: str) -> bytes:
    return text.replace(f'"{MARK}"', new).replace(MARK, new).encode("utf-8", "surrogatepass")


def edited(value: Any, generator: Generator, change: Callable[[Any], Any] | None = None) -> Any:
    """A copy in which one value anywhere is another."""
    if isinstance(value, dict) and value and generator.random() < 0.9:
        key = generator.choice(list(value))
        if change is None and generator.random() < 0.12:
            return {name: part for name, part in value.items() if name != key}
        if change is None and generator.random() < 0.08:
            return {(str(generator.choice(NASTY)) if name == key else name): part for name, part in value.items()}
        return {name: edited(part, generator, change) if name == key else part for name, part in value.items()}
    if isinstance(value, list) and value and generator.random() < 0.9:
        at = generator.randrange(len(value))
        if change is None and generator.random() < 0.2:
            return generator.choice((value[:at], value[:at] + value[at + 1 :], [*value, value[at]], value[::-1]))
        return [*value[:at], edited(value[at], generator, change), *value[at + 1 :]]
    return change(value) if change is not None else _exchanged(value, generator)


def _exchanged(value: Any, generator: Generator) -> Any:
    if generator.random() < 0.2:
        return generator.choice(([value], {"value": value}, str(value), f"{value} ", f"{value}"[::-1]))
    if isinstance(value, int | float) and not isinstance(value, bool) and generator.random() < 0.4:
        return generator.choice((value + 1, -value, value * 10**6, value / 3, value - 1))
    return generator.choice(NASTY)


def safetensors_edit(content: bytes, generator: Generator) -> bytes:
    """A value in the header, whose length is right again; the facts of a model are JSON inside JSON."""
    size = int.from_bytes(content[:8], "little")
    header, body = content[8 : 8 + size], content[8 + size :]
    if generator.random() < 0.15:
        return generator.choice((0, 1, 2**40, 2**63, size + 8, 10**8 + 1)).to_bytes(8, "little") + content[8:]
    try:
        entries = json.loads(header)
        metadata = entries.get("__metadata__", {})
        inner = [key for key, text in metadata.items() if text[:1] in "{["]
        if inner and generator.random() < 0.6:
            metadata[inner[0]] = json_edit(metadata[inner[0]].encode(), generator).decode("utf-8", "replace")
            new = json.dumps(entries).encode()
        else:
            new = json_edit(header, generator)
    except (ValueError, AttributeError, TypeError):
        new = words(header, generator)
    return len(new).to_bytes(8, "little") + new + body


def npy_edit(content: bytes, generator: Generator) -> bytes:
    """The header of a NumPy array: types, shapes and order that it does not have."""
    at = content.find(b"\x93NUMPY")
    if at < 0:
        return flip_bits(content, generator)
    size = struct.unpack("<H", content[at + 8 : at + 10])[0]
    kind = generator.choice(
        ("'<f4'", "'<f8'", "'|O'", "'<c16'", "'<M8[s]'", "'<U9'", "'|V8'", "'<i8'", "'|b1'", "[]", "1", "'x'")
    )
    order = generator.choice(("False", "True", "1", "None"))
    shape = generator.choice(
        (
            "()",
            "(48,)",
            "(48, 2)",
            "(-1, 2)",
            "(1000000000000,)",
            "(2**40,)",
            "(99999999999999999999, 2)",
            "'a'",
            "(0,)",
            "(48, 0)",
        )
    )
    text = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}"[: size - 1].ljust(size - 1) + "\n"
    return content[: at + 10] + text.encode() + content[at + 10 + size :]


def idx_edit(content: bytes, generator: Generator) -> bytes:
    """The header of an IDX file."""
    changed = bytearray(content)
    at = generator.randrange(min(16, len(changed))) if changed else 0
    changed[at : at + 1] = bytes([generator.choice((0, 1, 2, 3, 8, 9, 13, 14, 127, 255))])
    return bytes(changed)


def png_edit(content: bytes, generator: Generator) -> bytes:
    """A PNG image that claims another size or type, with the right checksum."""
    import zlib

    if content[:8] != b"\x89PNG\r\n\x1a\n":
        return set_bytes(content, generator)
    chunk = bytearray(content[12:29])
    size = generator.choice((0, 1, 6, 20_000, 2**31 - 1))
    chunk[4:12] = struct.pack(">II", size, generator.choice((size, 5, 100_000)))
    chunk[12:14] = bytes([generator.choice((1, 2, 8, 16, 7)), generator.choice((0, 2, 3, 4, 6, 9))])
    return content[:12] + bytes(chunk) + struct.pack(">I", zlib.crc32(bytes(chunk))) + content[33:]


def _at(content: bytes, generator: Generator) -> int:
    return generator.randrange(len(content) + 1)


ANYWHERE: tuple[Mutation, ...] = (flip_bits, set_bytes, truncate, lengthen, splice, cut)
BY_SUFFIX: dict[str, tuple[Mutation, ...]] = {
    ".json": (json_edit, json_edit, json_edit, json_edit, words, lines),
    ".jsonl": (json_line_edit, json_line_edit, words, lines),
    ".yaml": (yaml_edit, yaml_edit, yaml_edit, yaml_edit, words, lines),
    ".csv": (fields, fields, words, words, lines),
    ".safetensors": (safetensors_edit, safetensors_edit, safetensors_edit),
    ".npy": (npy_edit, npy_edit), ".npz": (npy_edit, npy_edit), ".png": (png_edit, png_edit), ".md": (words, lines),
    "ubyte": (idx_edit, idx_edit),
}  # fmt: skip


def mutate(name: str, content: bytes, generator: Generator) -> tuple[bytes, str]:
    """Damaged content of a file with this name, and by what."""
    apt = next((kinds for end, kinds in BY_SUFFIX.items() if name.endswith(end)), ())
    mutation = generator.choice((*ANYWHERE, *apt) if generator.random() < 0.5 else apt or ANYWHERE)
    try:
        return mutation(content, generator), mutation.__name__
    except Exception:  # damaged before, beyond recognition
        return flip_bits(content, generator), f"{mutation.__name__} failed, {flip_bits.__name__}"
