"""The form of a text table: how its cells are parted, and how its numbers are written. Public."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

BadRows = Literal["refuse", "leave out"]
SEPARATORS = (",", ";", "\t", "|")
_BLANKS = " \u00a0\u202f\u2009"  # what parts thousands where a blank does
_POINTED = re.compile(
    r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:inf|infinity|nan)", re.I | re.A
)
# These words say that a cell has no value; blanks around them do not count.
MISSING_WORDS = frozenset(("", "NA", "N/A", "NaN", "nan", "null", "NULL"))
# Among numbers these words say that there is none; in lower case.
NO_NUMBER = frozenset(
    ("", "na", "n/a", "#n/a", "nan", "null", "nil", "none", "-", "--", ".", "?", "#null!", "<na>")
)
# These numbers often stand for no value, where all others are far from them.
MISSING_NUMBERS = (
    *(-1.0, -7.0, -8.0, -9.0, -88.0, -99.0, -999.0, -9999.0, -99999.0),
    *(-9.9, -99.9, -99.99, -999.9, -999.99, -9999.9, -9999.99),
    *(77.0, 88.0, 99.0, 777.0, 888.0, 999.0, 9999.0, 99999.0, 99.9, 99.99, 999.9, 999.99),
)


@dataclass(frozen=True, slots=True)
class TableForm:
    """The form of a CSV or an Excel sheet, as the run file states it.

    separator: None: the first of comma, semicolon, tab and bar that gives the header the columns.
    decimal, thousands: of numbers in text. encoding: None: UTF-8, or what a byte order mark says.
    header: whether the first line names the columns; without one they are called 1, 2, 3, …
    sheet: of an Excel workbook. None: its only one.
    """

    separator: str | None = None
    decimal: str = "."
    thousands: str = ""
    encoding: str | None = None
    header: bool = True
    sheet: str | None = None

    @property
    def plain_numbers(self) -> bool:
        """Whether numbers are written as in most files: a point, and nothing between thousands."""
        return self.decimal == "." and not self.thousands

    def stated(self) -> dict[str, object]:
        """Return what differs from the usual form."""
        usual = asdict(TableForm())
        return {key: value for key, value in asdict(self).items() if value != usual[key]}

    def number(self, text: str) -> float | None:
        """Return the number that `text` writes in this form, nan for no value; None: it is none.

        >>> TableForm(decimal=",", thousands=".").number("1.234,5")
        1234.5
        >>> TableForm().number("1,5") is None
        True
        """
        if text.casefold() in NO_NUMBER:
            return float("nan")
        plain = text
        if self.thousands:
            plain = self._without_thousands(plain)
        if self.decimal != ".":
            if "." in plain:
                return None
            plain = plain.replace(self.decimal, ".")
        if not _POINTED.fullmatch(plain):
            return _TRUTH.get(text.casefold())
        return float(plain)

    def _without_thousands(self, text: str) -> str:
        if self.thousands in _BLANKS:
            mark = f"[{_BLANKS}]"
        else:
            mark = re.escape(self.thousands)
        decimal = re.escape(self.decimal)
        if re.fullmatch(rf"[+-]?\d{{1,3}}(?:{mark}\d{{3}})+(?:{decimal}\d*)?", text, re.A):
            return re.sub(mark, "", text)
        return text


USUAL = TableForm()
_TRUTH = {"true": 1.0, "false": 0.0}


def encoding_called(name: str) -> str:
    """Return what Python calls an encoding. Raises ValueError for a name of none."""
    try:
        return codecs.lookup(name).name
    except LookupError as error:
        raise ValueError("is no encoding") from error


def hint(text: str, form: TableForm, others_read: Iterable[str] = ()) -> str:
    """Return what to set for a text that is no number in this form. Quotes nothing of it.

    others_read: texts of the same column that are numbers in this form. Where some have a decimal
    mark, the column is written in two ways, and no setting reads both.
    """
    others = (
        (TableForm(decimal=","), 'data.decimal = ","'),
        (TableForm(decimal="."), 'data.decimal = "."'),
        (TableForm(thousands=","), 'data.thousands = ","'),
        (TableForm(decimal=",", thousands="."), 'data.decimal = "," and data.thousands = "."'),
        (TableForm(decimal=",", thousands=" "), 'data.decimal = "," and data.thousands = " "'),
    )
    fitting = [keys for other, keys in others if other != form and other.number(text) is not None]
    if fitting and any(form.decimal in other for other in others_read):
        return (
            "the column has numbers in two ways of writing, and no setting reads both: write all "
            f"with the decimal mark {form.decimal!r}, and nothing between thousands"
            + f" but {form.thousands!r}"
            * bool(form.thousands)
        )
    if fitting:
        return (
            f"as numbers are written there, set {' or '.join(fitting[:2])}; it holds for all files "
            f"of the run, so where others have the decimal mark {form.decimal!r}, write this one so"
        )
    if re.search(r"\d[-/.]\d+[-/.]\d|\d:\d", text):
        return 'a date needs date = "%Y-%m-%d"'
    return "name a word for no value in the column's missing_codes, and say missing"
