"""Names that stand for times, such as months, in chronological order."""

from collections.abc import Sequence

from metareplay.data.dates import parse_date, slashed_order
from metareplay.data.months import month_numbers

COUNTED = frozenset({"year", "quarter", "month", "week", "day", "hour", "date"})
"""Columns whose integers are times."""
YEARS = range(1900, 2200)
"""Integers that are taken for years, whatever their column is called."""
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def in_time_order(names: Sequence[str], column: str | None = None) -> list[str] | None:
    """The names of dates, months, quarters, weeks or years in chronological order; None if they are something else.

    Months without a year follow the calendar, unless they come in an order that only begins elsewhere, such as
    October to February; they may be in any of a few languages, but all in the same.
    """
    day_first = slashed_order(names)
    moments = [parse_date(name, day_first=day_first) for name in names]
    if all(moment is not None for moment in moments):
        return _sorted(names, moments)
    numbers = [int(name) if name.isdecimal() else None for name in names]
    counted = column is not None and column.lower() in COUNTED
    if all(number is not None and (counted or number in YEARS) for number in numbers):
        return _sorted(names, numbers)
    for positions, length in ((month_numbers(names) or [], 12), ([_weekday(name) for name in names], 7)):
        known = [position for position in positions if position is not None]
        if len(set(known)) == len(names):
            ahead = _sorted(names, [(position - _start(known, length)) % length for position in known])
            return ahead if ahead == list(names) else _sorted(names, known)
    return None


def _sorted(names: Sequence[str], keys: Sequence[object]) -> list[str]:
    order = sorted(range(len(names)), key=lambda index: keys[index])  # type: ignore[arg-type, return-value]
    return [names[index] for index in order]


def _weekday(name: str) -> int | None:
    matches = [number for number, day in enumerate(WEEKDAYS) if name.lower() in (day, day[:3], day[:2])]
    return matches[0] if matches else None


def _start(positions: Sequence[int], length: int) -> int:
    """The position after the longest gap, going round."""
    ordered = sorted(positions)
    gaps = [(position - before) % length for before, position in zip([ordered[-1], *ordered], ordered, strict=False)]
    return ordered[max(range(len(gaps)), key=gaps.__getitem__)]
