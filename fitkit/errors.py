"""Every exception that fitkit raises on purpose.

::

    FitkitError
    ├── InputError              nothing usable at a path
    │   ├── UnknownFormatError      no parser recognises the file
    │   ├── AmbiguousFormatError    more than one parser does
    │   └── ParseError              "path:line: what"
    ├── SchemaError             a stored table or model is not what this version writes
    └── FitError                too few observations, or terms that the data cannot tell apart

    ExtrapolationWarning        a prediction lies outside the fitted range

Wrong arguments are ``ValueError``. Each message says what is wrong; ``hint`` says what to do.
"""

from __future__ import annotations

from pathlib import Path


class FitkitError(Exception):
    """Base of all errors that fitkit raises on purpose.

    Parameters
    ----------
    message
        What is wrong, in one line.
    hint
        What the user can do about it, in one line.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class InputError(FitkitError):
    """Nothing usable was found where the user pointed."""


class UnknownFormatError(InputError):
    """No parser recognises the content of a file."""


class AmbiguousFormatError(InputError):
    """More than one parser recognises the content of a file."""


class ParseError(InputError):
    """A file of a known format holds something that cannot be read.

    Parameters
    ----------
    path
        The file.
    line
        Line number counted from 1, or 0 when the whole file is meant.
    what
        What cannot be read.
    hint
        What to do about it.
    """

    def __init__(self, path: Path | str, line: int, what: str, hint: str = "") -> None:
        where = f"{path}:{line}" if line else str(path)
        super().__init__(f"{where}: {what}", hint)
        self.path = str(path)
        self.line = line
        self.what = what

    def __reduce__(self) -> tuple[type[ParseError], tuple[str, int, str, str]]:
        return (type(self), (self.path, self.line, self.what, self.hint))


class SchemaError(FitkitError):
    """A stored table, dataset or model does not have the form that this version expects."""


class FitError(FitkitError):
    """The data cannot determine the parameters that were asked for."""


class ExtrapolationWarning(UserWarning):
    """A prediction lies outside the range that the model was fitted on."""
