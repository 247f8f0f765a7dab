"""Names of people and of their jobs: what the tables hold of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b

from fitkit.parsers.source import Source

KEEP_NAMES = "keep_names"  # key of the metadata of a source
_DIGITS = 16
_SALT_OF = b"fitkit names"


def name_writer(source: Source) -> Callable[[str | None], str | None]:
    """A function that gives a name as the tables of a source hold it.

    That is 16 hexadecimal digits of BLAKE2, keyed with the beginning of the source's first file:
    the same name is the same everywhere in a source, in every copy of the log, compressed or
    not. Who has the tables alone cannot try names out, for the key is not in them; who has the
    log can, but reads the names there. With the metadata ``keep_names`` a name stays as it is.

    No name, or an empty one, stays None.
    """
    if source.metadata.get(KEEP_NAMES):
        return lambda name: name or None
    first = min(source.files, key=lambda file: (file.name, file.label))
    key = blake2b(_SALT_OF + first.head(), digest_size=32).digest()

    @lru_cache(maxsize=1 << 12)
    def hashed(name: str | None) -> str | None:
        if not name:
            return None
        text = name.encode("utf-8", "surrogateescape")
        return blake2b(text, key=key, digest_size=_DIGITS // 2).hexdigest()

    return hashed
