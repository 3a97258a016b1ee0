"""The names of months in several languages, in full and as they are usually abbreviated."""

import unicodedata
from collections.abc import Sequence

NAMES = {
    "English": "january jan|february feb|march mar|april apr|may|june jun|july jul|august aug|september sept sep|"
    "october oct|november nov|december dec",
    "German": "januar jan janner jaenner|februar feb feber|marz maerz mar mrz|april apr|mai|juni jun|juli jul|"
    "august aug|september sept sep|oktober okt|november nov|dezember dez",
    "French": "janvier janv jan|fevrier fevr fev|mars mar|avril avr|mai|juin|juillet juil|aout aou|"
    "septembre sept sep|octobre oct|novembre nov|decembre dec",
    "Spanish": "enero ene|febrero feb|marzo mar|abril abr|mayo may|junio jun|julio jul|agosto ago|"
    "septiembre setiembre sept sep set|octubre oct|noviembre nov|diciembre dic",
    "Italian": "gennaio gen genn|febbraio feb febbr|marzo mar|aprile apr|maggio mag|giugno giu|luglio lug|agosto ago|"
    "settembre sett set|ottobre ott|novembre nov|dicembre dic",
    "Portuguese": "janeiro jan|fevereiro fev|marco mar|abril abr|maio mai|junho jun|julho jul|agosto ago|"
    "setembro set|outubro out|novembro nov|dezembro dez",
    "Dutch": "januari jan|februari feb|maart mrt|april apr|mei|juni jun|juli jul|augustus aug|september sept sep|"
    "oktober okt|november nov|december dec",
}
"""Without accents; the twelve months of a language are in order."""
NUMBERS = {
    language: {word: number for number, words in enumerate(names.split("|"), 1) for word in words.split()}
    for language, names in NAMES.items()
}

_ANY_LANGUAGE = {word: number for numbers in NUMBERS.values() for word, number in numbers.items()}


def month_number(word: str) -> int | None:
    """1 to 12 for a month in any of the languages, in any case, with accents or not; None for any other word."""
    return _ANY_LANGUAGE.get(plain_word(word))


def month_numbers(words: Sequence[str]) -> list[int] | None:
    """1 to 12 for words that are all months of one language, in any case, with accents or not; None for others."""
    plain = [plain_word(word) for word in words]
    for numbers in NUMBERS.values():
        if all(word in numbers for word in plain):
            return [numbers[word] for word in plain]
    return None


def plain_word(word: str) -> str:
    """In small letters, without accents and without the full stop of an abbreviation."""
    decomposed = unicodedata.normalize("NFKD", word.strip().casefold())
    return "".join(char for char in decomposed if not unicodedata.combining(char)).removesuffix(".")
