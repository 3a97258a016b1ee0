"""Dates as people write them."""

import numpy as np
import pytest

from metareplay.data.dates import as_dates, parse_date, slashed_order, written_dates


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("2024-01-31", "2024-01-31T00:00:00"),
        ("2024-1-3 7:05", "2024-01-03T07:05:00"),
        ("2024-01-31T23:30:00+02:00", "2024-01-31T21:30:00"),
        ("2024/01/31", "2024-01-31T00:00:00"),
        ("31.1.2024", "2024-01-31T00:00:00"),
        ("31 January 2024", "2024-01-31T00:00:00"),
        ("31-Jan-2024", "2024-01-31T00:00:00"),
        ("Sept 5, 2024", "2024-09-05T00:00:00"),
        ("2024-03", "2024-03-01T00:00:00"),
        ("03/2024", "2024-03-01T00:00:00"),
        ("mar 2024", "2024-03-01T00:00:00"),
        ("2024 March", "2024-03-01T00:00:00"),
        ("2024Q3", "2024-07-01T00:00:00"),
        ("q4 2024", "2024-10-01T00:00:00"),
        ("2024-W05", "2024-01-29T00:00:00"),
        ("2024 W05", "2024-01-29T00:00:00"),
        ("1. März 2024", "2024-03-01T00:00:00"),
        ("1 de agosto de 2024", "2024-08-01T00:00:00"),
        ("Dez. 2023", "2023-12-01T00:00:00"),
        ("février 2024", "2024-02-01T00:00:00"),
        ("fe\u0301vrier 2024", "2024-02-01T00:00:00"),  # the accent as a character of its own
        ("2024_03", "2024-03-01T00:00:00"),
        ("03-2024", "2024-03-01T00:00:00"),
        ("Mar/2024", "2024-03-01T00:00:00"),
        ("Mar2024", "2024-03-01T00:00:00"),
        ("Mar-24", "2024-03-01T00:00:00"),
        ("Mar '24", "2024-03-01T00:00:00"),
        ("31-Jan-24", "2024-01-31T00:00:00"),
        ("31-Jan-69", "1969-01-31T00:00:00"),
        ("31.01.24", "2024-01-31T00:00:00"),
        ("1Q24", "2024-01-01T00:00:00"),
        ("Q4/23", "2023-10-01T00:00:00"),
        ("2024-01-31 12:05 AM", "2024-01-31T00:05:00"),
        ("2024-01-31 12:05:09 pm", "2024-01-31T12:05:09"),
        ("2024-01-31, 7:05 p.m.", "2024-01-31T19:05:00"),
        ("2024-01-31 07:05:00 UTC", "2024-01-31T07:05:00"),
        ("2024-01-31 07:05 +02:00", "2024-01-31T05:05:00"),
    ],
)
def test_dates_months_quarters_and_weeks(text: str, iso: str) -> None:
    moment = parse_date(text)
    assert moment is not None
    assert moment.isoformat() == iso


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2024",
        "march",
        "2024-13-01",
        "31.02.2024",
        "1-2",
        "Foo 2024",
        "2024Q5",
        "2024-W60",
        "13/13/10",
        "3.12.11",
        "Jan 24",
        "24-Jan",
        "Q124",
        "2024-01-31 13:05 PM",
        "2024-01-31 0:05 AM",
    ],
)
def test_what_is_no_date(text: str) -> None:
    assert parse_date(text, day_first=True) is None


def test_slashes_are_ambiguous_until_one_date_tells() -> None:
    assert slashed_order(["01/02/2024"]) is None
    assert slashed_order(["01/02/2024", "13/02/2024"]) is True
    assert slashed_order(["01/02/2024", "02/13/2024"]) is False
    assert as_dates(["01/02/2024"]) is None
    assert slashed_order(["31/12/23"]) is None  # or 2031-12-23
    assert slashed_order(["12/31/23 5:30 PM"]) is False
    assert parse_date("31/12/23", day_first=True) == parse_date("2023-12-31")


def test_dates_are_written_with_a_time_only_if_they_have_one() -> None:
    days = np.array(["2024-01-31", "NaT"], dtype="datetime64[s]")
    assert written_dates(days) == ["2024-01-31", None]
    assert written_dates(days + np.timedelta64(1, "h")) == ["2024-01-31T01:00:00", None]
