"""Sums and products of columns and numbers: parsed by hand, never evaluated as code.

::

    sum     = product (("+" | "-") product)*
    product = sign (("*" | "/") sign)*
    sign    = ("+" | "-")* atom
    atom    = number | name | `name` | "(" sum ")"
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fitkit.parsers.table.units import PLAIN, Dimension

_MAX_LENGTH = 10_000
_MAX_DEPTH = 100
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*(?:\.\w+)*)"
    r"|(?P<quoted>`[^`]*`)|(?P<mark>[-+*/()])|(?P<other>\S)|$)"
)


@dataclass(frozen=True)
class Number:
    """A number as written."""

    value: float


@dataclass(frozen=True)
class Column:
    """A column of the input table, or a fact of its path."""

    name: str


@dataclass(frozen=True)
class Sum:
    """Terms; True: subtracted."""

    terms: tuple[tuple[bool, Expression], ...]


@dataclass(frozen=True)
class Product:
    """Factors; True: a divisor."""

    factors: tuple[tuple[bool, Expression], ...]


Expression = Number | Column | Sum | Product


def parse_expression(text: str) -> Expression:
    """Read an expression.

    Raises
    ------
    ValueError
        At anything else than numbers, column names, ``+ - * /`` and parentheses; the message says
        in which line and column of the text.

    Examples
    --------
    >>> parse_expression("4 * n_floats")
    Product(factors=((False, Number(value=4.0)), (False, Column(name='n_floats'))))
    """
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"an expression of {len(text)} characters: too long")
    return _Parser(text).whole()


class _Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.depth = 0
        self.end = 0  # where the current token ends
        self._advance()

    def _advance(self) -> None:
        token = _TOKEN.match(self.text, self.end)
        self.kind = (token and token.lastgroup) or "end"
        self.word = token[self.kind] if token and token.lastgroup else ""
        self.end = token.end() if token else len(self.text)

    def whole(self) -> Expression:
        found = self._sum()
        if self.kind != "end":
            raise self._unexpected("an operator")
        return found

    def _sum(self) -> Expression:
        terms = [(False, self._product())]
        while self.word in ("+", "-"):
            subtracts = self.word == "-"
            self._advance()
            terms.append((subtracts, self._product()))
        return terms[0][1] if len(terms) == 1 else Sum(tuple(terms))

    def _product(self) -> Expression:
        factors = [(False, self._sign())]
        while self.word in ("*", "/"):
            divides = self.word == "/"
            self._advance()
            factors.append((divides, self._sign()))
        return factors[0][1] if len(factors) == 1 else Product(tuple(factors))

    def _sign(self) -> Expression:
        negative = False
        while self.word in ("+", "-"):
            negative ^= self.word == "-"
            self._advance()
        found = self._atom()
        if not negative:
            return found
        return Number(-found.value) if isinstance(found, Number) else Sum(((True, found),))

    def _atom(self) -> Expression:
        found: Expression
        match self.kind:
            case "number":
                found = Number(float(self.word))
                if math.isinf(found.value):
                    raise self._error("the number is too large")
            case "name" | "quoted":
                found = Column(self.word.strip("`"))
            case "mark" if self.word == "(":
                found = self._parentheses()
            case _:
                raise self._unexpected("a number or a column")
        self._advance()
        return found

    def _parentheses(self) -> Expression:
        """What stands between two parentheses; the second is left for the caller to pass."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self._error(f"parentheses nested more than {_MAX_DEPTH} deep")
        self._advance()
        found = self._sum()
        if self.word != ")":
            raise self._unexpected("')'")
        self.depth -= 1
        return found

    def _unexpected(self, wanted: str) -> ValueError:
        if self.kind == "end":
            return self._error(f"expected {wanted}, the text ends")
        hint = "; a column name of several words stands in `backticks`"
        return self._error(f"expected {wanted}, found {self.word!r}{hint}")

    def _error(self, what: str) -> ValueError:
        before = self.text[: self.end - len(self.word)]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        return ValueError(f"{_clip(self.text)!r}, line {line}, column {column}: {what}")


def _clip(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"


def names(expression: Expression) -> Iterator[str]:
    """The columns that an expression needs."""
    match expression:
        case Column(name):
            yield name
        case Sum(parts) | Product(parts):
            for _, part in parts:
                yield from names(part)


def evaluate(expression: Expression, column: Callable[[str], np.ndarray]) -> np.ndarray:
    """Value of an expression for every row; NaN where an input is, or a divisor is zero."""
    match expression:
        case Number(number):
            return np.asarray(number)
        case Column(name):
            return column(name)
        case Sum(terms):
            result = np.asarray(0.0)
            for subtracted, term in terms:
                value = evaluate(term, column)
                result = result - value if subtracted else result + value
            return result
        case Product(factors):
            result = np.asarray(1.0)
            for divides, factor in factors:
                value = evaluate(factor, column)
                result = result / np.where(value == 0, np.nan, value) if divides else result * value
            return result


def dimension(expression: Expression, columns: Mapping[str, Dimension]) -> Dimension | None:
    """What an expression counts, given what columns do; None if that cannot be told.

    Raises
    ------
    ValueError
        If it adds what does not add up, such as bytes and seconds.
    """
    match expression:
        case Number():
            return PLAIN
        case Column(name):
            return columns.get(name)
        case Sum(terms):
            return _dimension_of_sum(terms, columns)
        case Product(factors):
            product = PLAIN
            for divides, factor in factors:
                found = dimension(factor, columns)
                if found is None:
                    return None
                product = product / found if divides else product * found
            return product


def _dimension_of_sum(
    terms: tuple[tuple[bool, Expression], ...], columns: Mapping[str, Dimension]
) -> Dimension | None:
    parts = [term for _, term in terms if not isinstance(term, Number)]
    if not parts:
        return PLAIN
    each = [dimension(part, columns) for part in parts]
    known = {found for found in each if found is not None}
    if len(known) > 1:
        raise ValueError(f"adds {' and '.join(sorted(map(str, known)))}")
    has_unit = bool(known - {PLAIN})
    if has_unit and (None in each or len(parts) < len(terms)):
        # What has no unit would count in SI units beside what was converted to them.
        raise ValueError("adds what has a unit and what has none: give every column in it a unit")
    return known.pop() if known else None
