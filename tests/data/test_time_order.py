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


def test_every_language_has_twelve_months_and_no_word_means_two() -> None:
    meanings: dict[str, set[int]] = {}
    for numbers in NUMBERS.values():
        assert sorted(set(numbers.values())) == list(range(1, 13))
        for word, number in numbers.items():
            meanings.setdefault(word, set()).add(number)
            assert month_numbers([word]) == [number]
    assert all(len(found) == 1 for found in meanings.values())
