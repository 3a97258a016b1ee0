"""Cells as written in a text file, as columns: numbers (also with decimal commas), booleans, dates, or text."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from metareplay.data.columns import Column, Decimal, objects
from metareplay.data.dates import SLASHED, as_dates, slashed_order
from metareplay.data.units import common_unit, unmarked

MISSING = frozenset({"", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "<NA>", "#N/A"})
"""Text that stands for a missing value."""
CODE = re.compile(r"0[0-9]+")
"""Looks like a number but is probably meant as a name."""
COMMA = re.compile(r"[+-]?(\d+|[1-9]\d{0,2}(\.\d{3})+),\d+([eE][+-]?\d+)?")
"""A number with a decimal comma: 0,5 or 1.234,5."""
COMMA_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")
"""A number with commas between thousands: 1,234 or 1,234.5."""
POINT_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")
"""A number with points between thousands, if the decimal sign is a comma: 1.234 or 1.234.567."""
POINT = re.compile(r"[+-]?\d*\.\d+")
"""A number with a decimal point, or perhaps with one between thousands."""
TRUTH = {"true": True, "false": False}


class TextFormat(NamedTuple):
    """How a text file is to be read; None where that is to be detected."""

    decimal: Decimal | None = None
    day_first: bool | None = None
    """What 01/02/2024 means."""
    encoding: str | None = None


DETECTED = TextFormat()
"""Everything is detected."""


def text_column(
    name: str, cells: Sequence[str | None], where: Callable[[int], str], form: TextFormat = DETECTED
) -> Column:
    """A column of cells as written; text is doubtful if most cells are numbers, or if dates are ambiguous."""
    texts = [None if cell is None or cell in MISSING else cell for cell in cells]
    numbers = as_numbers(texts)
    if numbers is not None:
        coded = any(CODE.fullmatch(text) for text in set(texts) if text is not None)
        return Column("number", numbers, codes=objects(texts) if coded else None)
    first = {text: row for row, text in reversed(list(enumerate(texts))) if text is not None}
    seen = list(dict.fromkeys(text for text in texts if text is not None))
    if all(text.lower() in TRUTH for text in seen):
        return Column("number", truths(texts), codes=objects(texts))
    unit = common_unit(seen)
    bare = {text: text if unit is None else unmarked(text).number for text in seen}
    decimal = decimal_sign(list(bare.values()), form.decimal)
    plain = as_numbers([None if text is None else plain_number(bare[text], decimal) for text in texts])
    if plain is not None and list(bare) != list(bare.values()):
        return Column("number", plain, codes=objects(texts), decimal=decimal, unit=unit or None)
    if plain is not None and decimal is not None:
        return Column("number", plain, decimal=decimal)
    day_first = form.day_first if form.day_first is not None else slashed_order(seen)
    dates = as_dates(texts, day_first=day_first)
    if dates is not None:
        slashed = any(SLASHED.fullmatch(text) for text in seen)
        return Column("date", dates, codes=objects(texts), day_first=day_first if slashed else None)
    return Column(
        "text", objects(texts), doubt_of(name, {bare[text]: first[text] for text in reversed(seen)}, where, decimal)
    )


def decimal_sign(seen: Sequence[str], hint: Decimal | None) -> Decimal | None:
    """The decimal sign of numbers with commas; None if there are none, or if 1,234 alone may be either."""
    commas = {text for text in seen if COMMA.fullmatch(text)}
    groups = {text for text in seen if COMMA_GROUPS.fullmatch(text)}
    if commas - groups:
        return "comma"
    if groups - commas or (commas and any(map(is_pointed, seen))):  # 1,234,567 or 1,234.5; 1,234 beside 0.5
        return "point"
    return hint if commas else None


def is_pointed(text: str) -> bool:
    """Whether a number has a decimal point that cannot be between thousands: 0.5, not 1.234."""
    return POINT.fullmatch(text) is not None and POINT_GROUPS.fullmatch(text) is None


def plain_number(text: str, decimal: Decimal | None) -> str:
    """A number as Python writes it, if the text is one with this decimal sign."""
    if decimal == "comma":
        if COMMA.fullmatch(text):
            return text.replace(".", "").replace(",", ".")
        return text.replace(".", "") if POINT_GROUPS.fullmatch(text) else text
    return text.replace(",", "") if decimal == "point" and COMMA_GROUPS.fullmatch(text) else text


def truths(texts: Sequence[str | None]) -> np.ndarray:
    """True and false as values (N,): bool, or float64 if some are missing."""
    values = [np.nan if text is None else float(TRUTH[text.lower()]) for text in texts]
    return np.array(values, dtype=bool if None not in texts else np.float64)


def doubt_of(name: str, seen: Mapping[str, int], where: Callable[[int], str], decimal: Decimal | None) -> str | None:
    """Why text is probably meant as something else; None if it is not. ``seen``: the first row of each text."""
    words = {text for text in seen if as_numbers([plain_number(text, decimal)]) is None}
    commas = {text for text in words if COMMA.fullmatch(text)}  # with an unknown decimal sign
    ambiguous = {text for text in seen if SLASHED.fullmatch(text)}
    if commas and words == commas:
        odd, advice = (
            commas,
            "has a comma, which may be a decimal comma or a thousands separator; "
            "say which with --set data.decimal=comma or data.decimal=point",
        )
    elif ambiguous and all(as_dates([text], day_first=True) is not None for text in seen):
        odd, advice = (
            ambiguous,
            "may begin with the day or the month; say which with --set data.dates=day-first or data.dates=month-first",
        )
    elif 2 * len(words) < len(seen):  # mostly numbers: a typo, not a category
        odd = words
        advice = "is not a number, but most others are; correct it, or leave it empty if the value is missing"
    else:
        return None
    text = min(odd, key=seen.__getitem__)
    return f"{where(seen[text])}: the cell {text!r} in column {name!r} {advice}"


def as_numbers(texts: Sequence[str | None]) -> np.ndarray | None:
    """Text as float64, NaN where missing; None if any of it is not a number."""
    try:
        return np.array(["nan" if text is None else text for text in texts], dtype=np.str_).astype(np.float64)
    except ValueError:
        return None


def typed_text(cells: Sequence[str | None], form: TextFormat = DETECTED) -> Column:
    """A column whose type is text: dates, booleans and decimal commas are recognised, plain numbers stay text."""
    column = text_column("", cells, str, form)
    texts = [None if cell is None or cell in MISSING else cell for cell in cells]
    if column.kind == "text" or as_numbers(texts) is not None:
        return Column("text", objects(cells))
    return column
