"""Months, quarters, weeks and years in chronological order."""

import pytest

from metareplay.data.months import NUMBERS, month_numbers
from metareplay.data.time_order import in_time_order


@pytest.mark.parametrize(
    ("names", "column", "expected"),
    [
        ("2024-02 2023-12 2024-01", None, "2023-12 2024-01 2024-02"),
        ("2024Q2 2024Q1 2023Q4", None, "2023Q4 2024Q1 2024Q2"),
        ("02/01/2024 31/12/2023", None, "31/12/2023 02/01/2024"),
        ("2021 2019 2020", None, "2019 2020 2021"),
        ("10 9 8", "month", "8 9 10"),
        ("10 9 8", "plot", None),
        ("march january february", None, "january february march"),
        ("march january february november", None, "january february march november"),
        ("oct nov dec jan feb", None, "oct nov dec jan feb"),
        ("Feb Jan", None, "Jan Feb"),
        ("wed mon", None, "mon wed"),
        ("März Januar Februar", None, "Januar Februar März"),
        ("Dez. Mrz. Okt.", None, "Mrz. Okt. Dez."),
        ("maerz JÄNNER", None, "JÄNNER maerz"),
        ("août février décembre", None, "février août décembre"),
        ("aout fevrier", None, "fevrier aout"),
        ("avr. janv. juil.", None, "janv. avr. juil."),
        ("diciembre enero agosto", None, "enero agosto diciembre"),
        ("maggio gennaio", None, "gennaio maggio"),
        ("out março setembro", None, "março setembro out"),
        ("mei maart", None, "maart mei"),
        ("oktober november december januari", None, "oktober november december januari"),
        ("marzo januar", None, None),  # of two languages
        ("Mai Winter", None, None),
        ("fri sat sun mon", None, "fri sat sun mon"),
        ("march may later", None, None),
        ("mar march", None, None),
        ("spring autumn", None, None),
        ("a", None, None),
    ],
)
def test_names_of_times(names: str, column: str | None, expected: str | None) -> None:
    assert in_time_order(names.split(), column) == (None if expected is None else expected.split())


@pytest.mark.parametrize(
    "names",
    [
        "Oct-23|Nov-23|Dec-23|Jan-24",
        "Dez 2023|Mär 2024|Okt. 2024",
        "3. Oktober 2023|15. Oktober 2023|2. Mai 2024",
        "novembre 2023|février 2024|août 2024",
        "202311|202312|202401",
        "20231130|20231201|20240102",
        "2023_11|2023_12|2024_01",
        "30-Dec-23|02-Jan-24",
        "1/13/2024 5:51 AM|1/13/2024 12:51 PM|1/13/2024 5:51 PM",
        "3Q23|4Q23|1Q24",
        "Q1|Q2|Q3",
        "W2|W9|W10",
        "Week 2|Week 9|Week 10",
        "KW 51/2023|KW 52/2023|KW 01/2024",
        "2023H2|2024H1",
        "FY22|FY23|FY24",
        "1. Quartal 2024|2. Quartal 2024",
        "Tag 2|Tag 10",
        "2009/10|2010/11|2012/13",
    ],
)
def test_notations_of_times_in_any_order(names: str) -> None:
    expected = names.split("|")
    assert in_time_order(expected) == in_time_order(expected[::-1]) == expected


@pytest.mark.parametrize(
    ("names", "column"),
    [("51 52 1 2", "week"), ("11 12 1", "Monat"), ("4 1 2", "sales_quarter"), ("W51 W52 W1", None), ("Q4 Q1", None)],
)
def test_counted_times_may_go_on_into_the_next_year(names: str, column: str | None) -> None:
    assert in_time_order(names.split(), column) == names.split()


@pytest.mark.parametrize("names", ["10 9", "202413 202301", "batch2 batch10", "W1 Q1", "Week 1|Week 01", "W1 W2/2024"])
def test_other_numbers_are_no_times(names: str) -> None:
    assert in_time_order(names.split("|") if "|" in names else names.split()) is None


def test_every_language_has_twelve_months_and_no_word_means_two() -> None:
    meanings: dict[str, set[int]] = {}
    for numbers in NUMBERS.values():
        assert sorted(set(numbers.values())) == list(range(1, 13))
        for word, number in numbers.items():
            meanings.setdefault(word, set()).add(number)
            assert month_numbers([word]) == [number]
    assert all(len(found) == 1 for found in meanings.values())
