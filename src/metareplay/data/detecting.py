"""What a column of text holds, determined piece by piece: the same as if all its cells were there at once."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from metareplay.data.cells import (
    CODE,
    COMMA,
    COMMA_GROUPS,
    TRUTH,
    TextFormat,
    as_numbers,
    doubt_of,
    is_pointed,
    plain_number,
    truths,
)
from metareplay.data.columns import Column, Decimal, objects
from metareplay.data.dates import SLASHED, as_dates, slashed_order
from metareplay.data.units import unmarked

MOST_SEEN = 100_000
"""Different cells that are kept of a column that may still be of dates or numbers."""
Texts = Sequence[str | None]


class ColumnKind(NamedTuple):
    """How the cells of a column become values."""

    kind: str
    """``number``, ``truth``, ``date`` or ``text``."""
    coded: bool = False
    decimal: Decimal | None = None
    marked: bool = False
    """Whether numbers have a unit, or negative ones are in brackets."""
    unit: str | None = None
    day_first: bool | None = None
    slashed: bool = False
    doubt: str | None = None

    def column(self, texts: Texts) -> Column:
        """Some of the cells as a column."""
        if self.kind == "truth":
            return Column("number", truths(texts), codes=objects(texts))
        if self.kind == "number":
            bare = [t and unmarked(t).number for t in texts] if self.marked else texts
            numbers = as_numbers([t and plain_number(t, self.decimal) for t in bare])
            assert numbers is not None  # all cells were tried
            codes = objects(texts) if self.coded else None
            return Column("number", numbers, codes=codes, decimal=self.decimal, unit=self.unit)
        if self.kind == "date":
            dates = as_dates(texts, day_first=self.day_first)
            assert dates is not None
            return Column("date", dates, codes=objects(texts), day_first=self.day_first if self.slashed else None)
        return Column("text", objects(texts), self.doubt)


class Detector:
    """Sees the cells of one column, and decides at the end."""

    def __init__(self, name: str, *, thorough: bool = False) -> None:
        self.name, self.thorough = name, thorough
        self.rows, self.missing, self.numbers, self.coded = 0, False, True, False
        self.skipped = False
        """Whether cells were seen whose texts were not kept: they may be needed if later ones change the picture."""
        self.seen: dict[str, int] = {}
        """Different cells, and the first row of each."""
        self._truth = True
        self._written, self._bare = _Signs(), _Signs()
        """Of the cells as they are, and without units."""
        self._units: set[str] = set()
        self._marked = False
        self._dates: dict[bool | None, bool] = {None: True, True: True, False: True}
        self._orders: set[bool] = set()
        self._slashed = False
        self.moments: dict[bool | None, np.ndarray] = {}
        """Some dates that have all the parts that any has."""

    def add(self, texts: Texts) -> None:
        """See further cells; None where missing."""
        first = {text: row for row, text in reversed(list(enumerate(texts, self.rows))) if text is not None}
        self.missing |= None in texts
        self.rows += len(texts)
        if self.numbers and as_numbers(texts) is None:
            self.numbers = False
        if self.numbers:
            self.coded = self.coded or any(map(CODE.fullmatch, first))
            if not self.thorough:
                self._pass_over(bool(first))
                return
        for text in sorted(first, key=first.__getitem__):
            self.seen.setdefault(text, first[text])
        self._try(list(first))
        if len(self.seen) > MOST_SEEN and self._undecided() and not self.thorough:
            self.skipped, self.seen = True, {}

    def _pass_over(self, some: bool) -> None:
        """Numbers are neither words for true and false nor dates; their texts are not kept."""
        if some:
            self._units.add("")
            self.skipped, self._truth, self._dates = True, False, dict.fromkeys(self._dates, False)

    def _undecided(self) -> bool:
        numbers = self._written.possible or (self._bare.possible and len(self._units) == 1)
        return self._truth or numbers or any(self._dates.values())

    def _try(self, texts: list[str]) -> None:
        """Keep what all cells may be."""
        self._truth = self._truth and all(text.lower() in TRUTH for text in texts)
        marked = [unmarked(text) for text in texts]
        bare = [cell.number for cell in marked]
        self._units.update(cell.unit for cell in marked)
        self._marked |= bare != texts
        self._written.add(texts)
        self._bare.add(bare)
        slashed = [text for text in texts if SLASHED.fullmatch(text)]
        self._slashed |= bool(slashed)
        if (order := slashed_order(slashed)) is not None:
            self._orders.add(order)
        if any(self._dates.values()):
            self._try_dates(texts, bool(slashed))

    def _try_dates(self, texts: list[str], slashed: bool) -> None:
        """Keep the orders in which all cells may be dates; without slashes the order makes no difference."""
        found = as_dates(texts, day_first=True)
        for order in (order for order, alive in self._dates.items() if alive):
            dates = found if order is True or not slashed else as_dates(texts, day_first=order)
            self._dates[order] = dates is not None
            if dates is not None:
                self.moments[order] = _telling(np.concatenate([self.moments.get(order, dates[:0]), dates]))

    def again(self, form: TextFormat) -> bool:
        """Whether the column must be seen once more, thoroughly, since it is not what it seemed to be."""
        return self.skipped and self._kind(form.day_first, form.decimal).kind == "text"

    def kind(self, form: TextFormat, where: Callable[[int], str]) -> ColumnKind:
        """What the column is."""
        found = self._kind(form.day_first, form.decimal)
        if found.kind != "text":
            return found
        seen = self.seen
        if self._signs is self._bare:
            seen = {unmarked(text).number: row for text, row in reversed(seen.items())}
        return found._replace(doubt=doubt_of(self.name, seen, where, self._signs.sign(form.decimal)))

    def _kind(self, day_first: bool | None, hint: Decimal | None = None) -> ColumnKind:
        if self.numbers:
            return ColumnKind("number", self.coded)
        if self._truth:
            return ColumnKind("truth")
        decimal = self._signs.sign(hint)
        if self._signs.plain[decimal]:
            if self._marked and len(self._units) == 1:
                unit = next(iter(self._units)) or None
                return ColumnKind("number", coded=True, decimal=decimal, marked=True, unit=unit)
            if decimal is not None:
                return ColumnKind("number", decimal=decimal)
        if day_first is None and self._orders:
            day_first = True in self._orders
        if self._dates[day_first]:
            return ColumnKind("date", day_first=day_first, slashed=self._slashed)
        return ColumnKind("text")

    @property
    def _signs(self) -> "_Signs":
        """Units count only if all cells have the same."""
        return self._bare if len(self._units) == 1 else self._written

    def sample(self, kind: ColumnKind) -> Column:
        """A few cells from which a column is described as from all of them."""
        gap: list[str | None] = [None] if self.missing else []
        if kind.kind == "date":
            none = np.full(len(gap), np.datetime64("NaT"), dtype="datetime64[s]")
            values = np.concatenate([self.moments[kind.day_first], none])
            first = kind.day_first if kind.slashed else None
            return Column("date", values, codes=objects([]), day_first=first)
        if kind.kind == "text":
            return Column("text", objects([*self.seen, *gap]), kind.doubt)
        any_number = self.skipped or bool(self.seen)
        return Column("number", np.array([0.0 if any_number else np.nan]), decimal=kind.decimal, unit=kind.unit)


class _Signs:
    """What decimal sign numbers have, seen piece by piece."""

    def __init__(self) -> None:
        self._comma, self._group, self._either, self._pointed = False, False, False, False
        self.plain: dict[Decimal | None, bool] = {None: True, "comma": True, "point": True}
        """Whether all cells are numbers with this sign."""

    @property
    def possible(self) -> bool:
        """Whether all cells may be numbers."""
        return any(self.plain.values())

    def add(self, texts: Sequence[str]) -> None:
        """See further cells."""
        commas = {text for text in texts if COMMA.fullmatch(text)}
        groups = {text for text in texts if COMMA_GROUPS.fullmatch(text)}
        self._comma |= bool(commas - groups)
        self._group |= bool(groups - commas)
        self._either |= bool(commas)
        self._pointed = self._pointed or any(map(is_pointed, texts))
        for sign in (sign for sign, alive in self.plain.items() if alive):
            self.plain[sign] = as_numbers([plain_number(text, sign) for text in texts]) is not None

    def sign(self, hint: Decimal | None) -> Decimal | None:
        """As ``cells.decimal_sign``."""
        if self._comma:
            return "comma"
        return "point" if self._group or (self._either and self._pointed) else hint if self._either else None


def _telling(dates: np.ndarray) -> np.ndarray:
    """A few of some dates (N,) that together have the same useful parts."""
    days = dates.astype("datetime64[D]")
    tests = (days != days.astype("datetime64[Y]"), days != days.astype("datetime64[M]"), dates != days)
    rows = [0, *(int(test.argmax()) for test in tests)] if len(dates) else []
    return dates[rows]
