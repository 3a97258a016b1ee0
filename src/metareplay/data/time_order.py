"""Names that stand for times, such as months, in chronological order."""

import re
from collections.abc import Sequence

from metareplay.data.dates import parse_date, slashed_order
from metareplay.data.months import month_numbers, plain_word

_UNITS = {
    0: "year yr fy jahr gj annee ano anno jaar date datum day tag jour dia giorno dag hour stunde heure hora ora uur",
    2: "half h hj halbjahr semester semestre",
    4: "quarter qtr q quartal trimestre kwartaal",
    12: "month monat mois mes mese maand",
    53: "week wk w cw kw woche semaine semana settimana",
}
CYCLES = {word: cycle for cycle, words in _UNITS.items() for word in words.split()}
"""Words for times that are counted, without accents, and after how many of them a year is over; 0 if they go on."""
YEARS = range(1900, 2200)
"""Integers that are taken for years, whatever their column is called."""
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_TOKENS = re.compile(r"[^\W\d_]+|\d+")


def in_time_order(names: Sequence[str], column: str | None = None) -> list[str] | None:
    """The names of dates, months, quarters, weeks or years in chronological order; None if they are something else.

    Months, quarters and weeks without a year follow the calendar, unless they come in an order that only begins
    elsewhere, such as October to February. Months alone may be in any of a few languages, but all in the same.
    """
    day_first = slashed_order(names)
    moments = [parse_date(name, day_first=day_first) for name in names]
    if all(moment is not None for moment in moments):
        return _sorted(names, moments)
    numbers = [int(name) for name in names if name.isdecimal() and name.isascii()]
    if len(numbers) == len(names):
        return _integers(names, numbers, column)
    for positions, length in ((month_numbers(names) or [], 12), ([_weekday(name) for name in names], 7)):
        known = [position for position in positions if position is not None]
        if len(set(known)) == len(names):
            return _around(names, known, length)
    return _seasons(names) or _counted(names)


def _integers(names: Sequence[str], numbers: Sequence[int], column: str | None) -> list[str] | None:
    """Years, months such as 202401, days such as 20240131, and whatever a column called month, week, ... holds."""
    words = [plain_word(token) for token in _TOKENS.findall(column or "")]
    cycle = next((CYCLES[word] for word in words if word in CYCLES), None)
    if cycle and max(numbers) <= cycle:
        return _around(names, numbers, cycle)
    if cycle is not None or all(number in YEARS for number in numbers):
        return _sorted(names, numbers)
    dashed = [f"{name[:4]}-{name[4:6]}" + (f"-{name[6:]}" if name[6:] else "") for name in names]
    days = [parse_date(text) for text in dashed]
    dates = len({len(name) for name in names}) == 1 and len(names[0]) in (6, 8)
    if dates and all(day is not None and day.year in YEARS for day in days):
        return _sorted(names, numbers)
    return None


def _seasons(names: Sequence[str]) -> list[str] | None:
    """Years such as 2023/24."""
    found = [re.fullmatch(r"(\d{4})[/-](\d{2})", name) for name in names]
    years = [int(match[1]) for match in found if match and (int(match[1]) + 1) % 100 == int(match[2])]
    return _sorted(names, years) if len(years) == len(names) else None


def _counted(names: Sequence[str]) -> list[str] | None:
    """Counted times, all with the same word for them: Week 9, KW 51/2023, 2024H1, FY23."""
    keys: list[tuple[int, ...]] = []
    words: set[str] = set()
    for name in names:
        tokens = [plain_word(token) for token in _TOKENS.findall(name)]
        numbers = [int(token) for token in tokens if token.isdecimal()]
        words.update(token for token in tokens if not token.isdecimal())
        years = [number for number in numbers if number in YEARS] if len(numbers) == 2 else []
        if len(tokens) - len(numbers) != 1 or len(numbers) not in (1, 2) or len(years) != len(numbers) - 1:
            return None
        keys.append((*years, *(number for number in numbers if number not in years)))
    cycle = CYCLES.get(words.pop()) if len(words) == 1 else None
    if cycle is None or len({len(key) for key in keys}) != 1 or len(set(keys)) != len(names):
        return None
    if cycle and len(keys[0]) == 1 and max(keys)[0] <= cycle:
        return _around(names, [number for (number,) in keys], cycle)
    return _sorted(names, keys)


def _around(names: Sequence[str], positions: Sequence[int], length: int) -> list[str]:
    """Positions on a circle: as they come if they only begin elsewhere, otherwise sorted."""
    ahead = _sorted(names, [(position - _start(positions, length)) % length for position in positions])
    return ahead if ahead == list(names) else _sorted(names, positions)


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
