"""Dates as people write them, and as the numbers a person would choose: days, and the time of year, week and day.

Months may be in any language of ``data.months``: none of their words means two months. Years of two digits are those
from 1969 to 2068.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from metareplay.data.months import month_number

EPOCH = np.datetime64("2000-01-01", "s")
DAY = np.timedelta64(1, "D")
YEAR_DAYS = 365.2425
FIRST_OF_SHORT = 69
"""The earliest of the years that are written with two digits: 1969."""
Parts = Mapping[str, str | None]
"""The parts of a date as written."""

_CLOCK = r"(?P<H>\d{1,2}):(?P<M>\d{2})(?::(?P<S>\d{2})(?:[.,]\d+)?)?(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?"
_TIME = rf"(?:(?:T|,? ){_CLOCK}(?: ?(?P<zone>Z|UTC|[+-]\d{{2}}:?\d{{2}}))?)?"
_WORD = r"(?P<word>[^\W\d_]{3,10})\.?"
_YEAR, _SHORT, _ANY_YEAR = r"(?P<Y>\d{4})", r"(?P<y>\d{2})", r"(?:(?P<Y>\d{4})|(?P<y>\d{2}))"
_FORMATS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_YEAR}-(?P<m>\d{{1,2}})-(?P<d>\d{{1,2}}){_TIME}",  # 2024-01-31, 2024-01-31T12:30:00Z
        rf"{_YEAR}/(?P<m>\d{{1,2}})/(?P<d>\d{{1,2}}){_TIME}",  # 2024/01/31
        rf"(?P<d>\d{{1,2}})\.(?P<m>\d{{1,2}})\.{_YEAR}{_TIME}",  # 31.01.2024
        rf"(?P<first>\d{{1,2}})/(?P<second>\d{{1,2}})/{_ANY_YEAR}{_TIME}",  # 31/01/2024 or 1/31/24 5:30 PM
        rf"(?P<d>\d{{2}})\.(?P<m>\d{{2}})\.{_SHORT}{_TIME}",  # 31.01.24
        rf"(?P<d>\d{{1,2}})(?:\. ?|[ -]| de ){_WORD},?(?:[ -]| de ){_ANY_YEAR}{_TIME}",  # 31 January 2024, 31-Jan-24
        rf"{_WORD} (?P<d>\d{{1,2}}),? {_YEAR}{_TIME}",  # January 31, 2024
        rf"{_YEAR}[-/_](?P<m>\d{{1,2}})",  # 2024-01
        rf"(?P<m>\d{{1,2}})[-/_]{_YEAR}",  # 01/2024
        rf"{_WORD}(?:,? | de |[-/_])?{_YEAR}",  # Jan 2024
        rf"{_WORD}(?:-| ?['\u2019]){_SHORT}",  # Jan-24, as spreadsheets write it
        rf"{_YEAR}[ /_-]?{_WORD}",  # 2024 Jan
        rf"{_YEAR}[ /_-]?[Qq](?P<quarter>[1-4])",  # 2024Q1
        rf"[Qq](?P<quarter>[1-4])(?:[ /_-]?{_YEAR}|[ /'-]{_SHORT})",  # Q1 2024, Q1/24
        rf"(?P<quarter>[1-4])[Qq] ?{_ANY_YEAR}",  # 1Q24
        rf"{_YEAR}[ _-]?[Ww](?P<week>\d{{1,2}})",  # 2024-W05
    )
)
SLASHED = _FORMATS[3]


def parse_date(text: str, *, day_first: bool | None = None) -> datetime | None:
    """The date, or the first day of the month, quarter or week that a text names; None if it names none.

    ``day_first`` says what 01/02/2024 means; None leaves dates of this form unread.
    """
    text = unicodedata.normalize("NFC", text.strip())
    match = next((match for pattern in _FORMATS if (match := pattern.fullmatch(text))), None)
    if match is None:
        return None
    parts = match.groupdict()
    try:
        year = _year(parts)
        if parts.get("week"):
            return datetime.fromisocalendar(year, int(parts["week"]), 1)
        moment = datetime(year, *_month_and_day(parts, day_first), *_clock(parts))
    except (ValueError, LookupError):
        return None
    zone = parts.get("zone")
    return moment if zone is None else moment - _offset(zone)


def _year(parts: Parts) -> int:
    """The year; 69 is 1969 and 68 is 2068."""
    if (short := parts.get("y")) is not None:
        return 1900 + int(short) if int(short) >= FIRST_OF_SHORT else 2000 + int(short)
    return int(parts["Y"] or 0)


def _clock(parts: Parts) -> tuple[int, int, int]:
    """Hour, minute and second; an error if 13 is said to be before or after noon."""
    hour, minute, second = (int(parts.get(key) or 0) for key in "HMS")
    if half := parts.get("half"):
        if not 1 <= hour <= 12:
            raise ValueError(f"{hour} is no hour of half a day")
        hour = hour % 12 + 12 * (half in "Pp")
    return hour, minute, second


def _month_and_day(parts: Parts, day_first: bool | None) -> tuple[int, int]:
    """Month and day; an error if there are none."""
    first, second, word, quarter = (parts.get(key) for key in ("first", "second", "word", "quarter"))
    if first and second:
        if day_first is None:
            raise ValueError("ambiguous")
        return (int(second), int(first)) if day_first else (int(first), int(second))
    if quarter:
        return 3 * int(quarter) - 2, 1
    month = month_number(word) if word else int(parts["m"] or 0)
    return month or 0, int(parts.get("d") or 1)


def _offset(zone: str) -> timedelta:
    if zone in ("Z", "UTC"):
        return timedelta(0)
    hours, minutes = int(zone[1:3]), int(zone[-2:])
    return timedelta(hours=hours, minutes=minutes) * (-1 if zone[0] == "-" else 1)


def slashed_order(texts: Sequence[str]) -> bool | None:
    """Whether dates such as 31/01/2024 begin with the day; None if there are none, or none that tells.

    31/01/24 does not: it may begin with the year.
    """
    found = [match for text in texts if (match := SLASHED.fullmatch(text.strip()))]
    if any(int(match["first"]) > 12 and match["Y"] for match in found):
        return True
    return False if any(int(match["second"]) > 12 for match in found) else None


def as_dates(texts: Sequence[str | None], *, day_first: bool | None = None) -> np.ndarray | None:
    """Texts as datetime64 in seconds, NaT where missing (N,); None if any of them is not a date."""
    moments: dict[str | None, np.datetime64] = {None: np.datetime64("NaT", "s")}
    for text in texts:
        if text not in moments:
            moment = parse_date(str(text), day_first=day_first)
            if moment is None:
                return None
            moments[text] = np.datetime64(moment, "s")
    return np.array([moments[text] for text in texts], dtype="datetime64[s]")


def from_datetime(value: datetime) -> np.datetime64:
    """A date of Python as datetime64; with a time zone, in UTC."""
    plain = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo is not None else value
    return np.datetime64(plain, "s")


def written_dates(values: np.ndarray) -> list[str | None]:
    """Dates (N,) as text: 2024-01-31, with the time of day if any has one; None where missing."""
    days = values.astype("datetime64[D]")
    with_time = bool(((values != days) & ~np.isnat(values)).any())
    texts = np.datetime_as_string(values if with_time else days).tolist()
    return [None if missing else text for text, missing in zip(texts, np.isnat(values).tolist(), strict=True)]


def _days(values: np.ndarray) -> np.ndarray:
    return (values - EPOCH) / DAY  # (N,), float64, NaN where missing


def _circle(share: np.ndarray) -> np.ndarray:
    return np.stack([np.sin(2 * np.pi * share), np.cos(2 * np.pi * share)], axis=1)  # (N,) -> (N, 2)


def _of_year(values: np.ndarray) -> np.ndarray:
    return _circle((values - values.astype("datetime64[Y]")) / DAY / YEAR_DAYS)


def _of_week(values: np.ndarray) -> np.ndarray:
    return _circle((np.floor(_days(values)) + 5) % 7 / 7)  # 2000-01-01 was a Saturday: 0 is Monday


def _of_day(values: np.ndarray) -> np.ndarray:
    return _circle(_days(values) % 1)


PARTS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "days": lambda values: _days(values)[:, None],  # (N,) -> (N, 1)
    "year": _of_year,
    "week": _of_week,
    "day": _of_day,
}
"""What a date becomes: days since 2000-01-01; the time of the year, the weekday and the time of day as points on a
circle (sine, cosine), so that December is next to January."""
PART_WIDTHS = {"days": 1, "year": 2, "week": 2, "day": 2}
"""The number of inputs of each."""


def useful_parts(values: np.ndarray) -> list[str]:
    """The parts of some dates (N,) that can say something: no weekday for months, no time of day for days."""
    values = values[~np.isnat(values)]
    days = values.astype("datetime64[D]")
    parts = ["days"]
    if bool((days != days.astype("datetime64[Y]")).any()):
        parts.append("year")
    if bool((days != days.astype("datetime64[M]")).any()):
        parts.append("week")
    return [*parts, "day"] if bool((values != days).any()) else parts


def encode_dates(values: np.ndarray, parts: Sequence[str]) -> np.ndarray:
    """Dates (N,) as inputs (N, D), float32; NaN where missing."""
    return np.concatenate([PARTS[part](values) for part in parts], axis=1).astype(np.float32)
