"""Numbers with units, percent signs, currencies and brackets."""

from pathlib import Path

import numpy as np
import pandas
import pytest

from metareplay import ContinualClassifier
from metareplay.data.cells import DETECTED, text_column
from metareplay.data.columns import Column
from metareplay.data.detecting import Detector, Texts
from metareplay.data.units import unmarked
from metareplay.errors import DataError, DataWarning


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        ("5 %", "5", "%"),
        ("0.5%", "0.5", "%"),
        ("$1,234.50", "1,234.50", "$"),
        ("-$3", "-3", "$"),
        ("$-3", "-3", "$"),
        ("3,50\u00a0€", "3,50", "€"),
        ("($5.00)", "-5.00", "$"),
        ("(0.5)", "-0.5", ""),
        ("14 kg", "14", "kg"),
        ("80 km/h", "80", "km/h"),
        ("12 m²", "12", "m²"),
    ],
)
def test_numbers_are_taken_out_of_what_is_around_them(text: str, number: str, unit: str) -> None:
    assert unmarked(text) == (number, unit)


@pytest.mark.parametrize("text", ["5", "32A", "Line 5", "5 % of 3", "$5 €", "(-5)", "()", "kg", "1st", "2 of 3", "-"])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert unmarked(text) == (text, "")


def column(cells: list[str | None]) -> Column:
    """As read from a file; the same in pieces."""
    whole = text_column("c", cells, str)
    for cut in range(1, len(cells)):
        pieces: list[Texts] = [cells[:cut], cells[cut:]]
        detector = Detector("c")
        for piece in pieces:
            detector.add(piece)
        if detector.again(DETECTED):
            detector = Detector("c", thorough=True)
            for piece in pieces:
                detector.add(piece)
        kind = detector.kind(DETECTED, str)
        found = [kind.column(piece) for piece in pieces]
        assert {part.kind for part in found} == {whole.kind}
        assert {(part.unit, part.decimal) for part in found} == {(whole.unit, whole.decimal)}
        assert np.array_equal(
            np.concatenate([part.values for part in found]), whole.values, equal_nan=whole.kind == "number"
        )
    return whole


@pytest.mark.parametrize(
    ("cells", "values", "unit"),
    [
        (["5 %", "12.5 %", None], [5, 12.5, np.nan], "%"),
        (["1.234,50 €", "-3,00 €"], [1234.5, -3], "€"),
        (["$1,200", "($50)", "$3.5"], [1200, -50, 3.5], "$"),
        (["2", "(0.5)", "1"], [2, -0.5, 1], None),
    ],
)
def test_columns_of_numbers_with_one_unit(cells: list[str | None], values: list[float], unit: str | None) -> None:
    found = column(cells)
    assert found.kind == "number"
    assert found.unit == unit
    assert np.array_equal(found.values, values, equal_nan=True)
    assert found.names.tolist() == cells  # as labels they are names


@pytest.mark.parametrize("cells", [["5 kg", "300 g"], ["5 %", "low"], ["1 room", "2 rooms"], ["5", "5 %"]])
def test_units_that_differ_are_words(cells: list[str | None]) -> None:
    assert column(cells).kind == "text"


def shop(rows: int = 60) -> pandas.DataFrame:
    """The label follows from a share and a price, both written for people."""
    random = np.random.default_rng(0)
    share, price = random.integers(0, 40, rows), random.integers(-9, 10, rows) * 50
    prices = [f"(${-value:,})" if value < 0 else f"${value:,}" for value in price]
    label = np.where(share / 10 + price / 300 > 2, "high", "low")
    return pandas.DataFrame({"share": [f"{value} %" for value in share], "price": prices, "label": label})


def test_units_are_part_of_the_model(tmp_path: Path) -> None:
    frame = shop()
    model = ContinualClassifier("sp-dirac", "mlp-20", settings={"training.iterations": 200})
    model.learn_task(frame, "label", name="may")
    assert model.input_shape == (2,)
    assert model.score(frame, "label") > 0.9
    model.save(tmp_path / "model")
    same = ContinualClassifier.load(tmp_path / "model")
    assert np.array_equal(same.predict(frame), model.predict(frame))
    assert np.array_equal(same.predict(frame.astype({"share": "category"})), model.predict(frame))
    with pytest.warns(DataWarning, match="column 'share': numbers without '%' were taken to be in this unit"):
        numbers = same.predict(frame.assign(share=[float(text[:-1]) for text in frame["share"]]))
    assert np.array_equal(numbers, model.predict(frame))
    with pytest.raises(
        DataError, match="column 'price' has numbers with '€', but numbers with '\\$' in the training data"
    ):
        same.predict(frame.assign(price="5 €"))


def test_a_unit_where_there_was_none_is_refused() -> None:
    frame = shop().assign(share=np.linspace(0, 0.4, 60))
    model = ContinualClassifier("sp-dirac", "mlp-4", settings={"training.iterations": 2})
    model.learn_task(frame, "label", name="may")
    with pytest.raises(DataError, match="numbers with '%', but numbers without a unit in the training"):
        model.predict(frame.assign(share="5 %"))


def test_a_comma_that_may_be_either_is_a_question() -> None:
    found = column(["$1,200", "$3"])
    assert found.kind == "text"
    assert found.doubt is not None
    assert "the cell '1,200' in column 'c' has a comma, which may be a decimal comma" in found.doubt
    assert column(["1,200", "0.5"]).values.tolist() == [1200, 0.5]
    assert column(["1,200", "1.234"]).doubt is not None
