"""Dates as people write them, and as the numbers a person would choose: days, and the time of year, week and day."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from metareplay.data.months import NUMBERS

EPOCH = np.datetime64("2000-01-01", "s")
DAY = np.timedelta64(1, "D")
YEAR_DAYS = 365.2425

_TIME = r"(?:[T ](?P<H>\d{1,2}):(?P<M>\d{2})(?::(?P<S>\d{2})(?:[.,]\d+)?)?(?P<zone>Z|[+-]\d{2}:?\d{2})?)?"
_WORD = r"(?P<word>[A-Za-z]{3,9})\.?"
_FORMATS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?P<Y>\d{{4}})-(?P<m>\d{{1,2}})-(?P<d>\d{{1,2}}){_TIME}",  # 2024-01-31, 2024-01-31T12:30:00Z
        rf"(?P<Y>\d{{4}})/(?P<m>\d{{1,2}})/(?P<d>\d{{1,2}}){_TIME}",  # 2024/01/31
        rf"(?P<d>\d{{1,2}})\.(?P<m>\d{{1,2}})\.(?P<Y>\d{{4}}){_TIME}",  # 31.01.2024
        rf"(?P<first>\d{{1,2}})/(?P<second>\d{{1,2}})/(?P<Y>\d{{4}}){_TIME}",  # 31/01/2024 or 01/31/2024
        rf"(?P<d>\d{{1,2}})[ -]{_WORD},?[ -](?P<Y>\d{{4}}){_TIME}",  # 31 January 2024, 31-Jan-2024
        rf"{_WORD} (?P<d>\d{{1,2}}),? (?P<Y>\d{{4}}){_TIME}",  # January 31, 2024
        r"(?P<Y>\d{4})[-/](?P<m>\d{1,2})",  # 2024-01
        r"(?P<m>\d{1,2})/(?P<Y>\d{4})",  # 01/2024
        rf"{_WORD}[ -](?P<Y>\d{{4}})",  # Jan 2024
        rf"(?P<Y>\d{{4}})[ -]{_WORD}",  # 2024 Jan
        r"(?P<Y>\d{4})[ -]?[Qq](?P<quarter>[1-4])",  # 2024Q1
        r"[Qq](?P<quarter>[1-4])[ -/]?(?P<Y>\d{4})",  # Q1 2024
        r"(?P<Y>\d{4})-?[Ww](?P<week>\d{1,2})",  # 2024-W05
    )
)
SLASHED = _FORMATS[3]


def month_number(word: str) -> int | None:
    """1 to 12 for an English month or its abbreviation; None for any other word."""
    return NUMBERS["English"].get(word.lower())


def parse_date(text: str, *, day_first: bool | None = None) -> datetime | None:
    """The date, or the first day of the month, quarter or week that a text names; None if it names none.

    ``day_first`` says what 01/02/2024 means; None leaves dates of this form unread.
    """
    text = text.strip()
    match = next((match for pattern in _FORMATS if (match := pattern.fullmatch(text))), None)
    if match is None:
        return None
    parts = match.groupdict()
    try:
        if parts.get("week"):
            return datetime.fromisocalendar(int(parts["Y"]), int(parts["week"]), 1)
        month, day = _month_and_day(parts, day_first)
        hour, minute, second = (int(parts.get(key) or 0) for key in "HMS")
        moment = datetime(int(parts["Y"]), month, day, hour, minute, second)
    except (ValueError, LookupError):
        return None
    zone = parts.get("zone")
    return moment if zone is None else moment - _offset(zone)


def _month_and_day(parts: Mapping[str, str | None], day_first: bool | None) -> tuple[int, int]:
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
    if zone == "Z":
        return timedelta(0)
    hours, minutes = int(zone[1:3]), int(zone[-2:])
    return timedelta(hours=hours, minutes=minutes) * (-1 if zone[0] == "-" else 1)


def slashed_order(texts: Sequence[str]) -> bool | None:
    """Whether dates such as 31/01/2024 begin with the day; None if there are none, or none that tells."""
    pairs = [
        (int(match["first"]), int(match["second"])) for text in texts if (match := SLASHED.fullmatch(text.strip()))
    ]
    if any(first > 12 for first, _ in pairs):
        return True
    return False if any(second > 12 for _, second in pairs) else None


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
