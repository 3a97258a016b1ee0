"""Numbers as people write them: with a percent sign, a currency or a unit, and negative ones in brackets."""

import re
from collections.abc import Iterable
from typing import NamedTuple

_CURRENCY, _GAP = "$€£¥₹₩", "[ \u00a0\u202f]"
_MARKED = re.compile(
    rf"(?P<sign>[+-]?)(?:(?P<before>[{_CURRENCY}]){_GAP}?(?P<inner>[+-]?))?(?P<number>\d[\d.,]*|\.\d+)"
    rf"(?:{_GAP}?(?P<close>[%‰{_CURRENCY}])|{_GAP}(?P<after>[^\W\d_]{{1,10}}(?:/[^\W\d_]{{1,10}})?[²³]?))?"
)
"""5 %, $1,234.50, -3 €, 14 kg, 80 km/h; letters only after a space: 32A is a name."""


class Marked(NamedTuple):
    """A number without what is around it."""

    number: str
    """As it may be written without a unit; the whole text if it is not a number with one."""
    unit: str
    """Empty if there is none."""


def unmarked(text: str) -> Marked:
    """A cell as a number and a unit: ($5.00) is -5.00 and $."""
    inner = text.strip()
    negative = inner.startswith("(") and inner.endswith(")")
    match = _MARKED.fullmatch(inner[1:-1].strip() if negative else inner)
    if match is None:
        return Marked(text, "")
    signs, units = (
        [part for part in match.group(*names) if part] for names in (("sign", "inner"), ("before", "close", "after"))
    )
    if len(units) > 1 or len(signs) > 1 or (negative and signs) or not (units or negative):
        return Marked(text, "")
    return Marked(f"{'-' if negative else ''.join(signs)}{match['number']}", "".join(units))


def common_unit(texts: Iterable[str]) -> str | None:
    """What all numbers in these cells have as their unit, empty if they have none; None if that differs."""
    units = {unmarked(text).unit for text in texts}
    return units.pop() if len(units) == 1 else None
