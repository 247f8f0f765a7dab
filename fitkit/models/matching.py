"""Which fitted group a request belongs to, or why it belongs to none."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from fitkit.models.columns import UNKNOWN, Key, key_text

_KIND = "layer_group"


def request_keys(
    columns: Mapping[str, np.ndarray], names: Sequence[str], fitted: Collection[Key], n_rows: int
) -> list[Key]:
    """Group that each row asks for; ``?`` where it does not say."""
    texts = {name: _texts(columns, name, n_rows) for name in names}
    if _KIND in texts and _KIND not in columns:
        position = list(names).index(_KIND)
        texts[_KIND] = _layer_groups(columns, {key[position] for key in fitted}, n_rows)
    return list(zip(*texts.values(), strict=True))


def _texts(columns: Mapping[str, np.ndarray], name: str, n_rows: int) -> list[str]:
    if name not in columns:
        return [UNKNOWN] * n_rows
    return [key_text(value) for value in np.broadcast_to(columns[name], (n_rows,)).tolist()]


def _layer_groups(
    columns: Mapping[str, np.ndarray], known: Collection[str], n_rows: int
) -> list[str]:
    """Of layers whose sizes are known, the type tells the group, of others the name."""
    names = ("layer_type", "input_bytes", "network", "layer")
    told = [_texts(columns, name, n_rows) for name in names]
    return [
        kind if size != UNKNOWN and kind in known else _by_name(kind, network, layer, known)
        for kind, size, network, layer in zip(*told, strict=True)
    ]


def _by_name(kind: str, network: str, layer: str, known: Collection[str]) -> str:
    own = f"{network}/{layer}"
    if own in known or UNKNOWN not in (kind, network) or layer == UNKNOWN:
        return own if own in known else kind
    if network == UNKNOWN and (alike := [g for g in known if g.endswith(f"/{layer}")]):
        return alike[0] if len(alike) == 1 and kind not in known else kind
    # A layer that is known by its name alone is no other layer, though only one was measured.
    return own if kind == UNKNOWN and all("/" in group for group in known) else kind


def match(fitted: Collection[Key], names: Sequence[str], asked: Key) -> tuple[Key | None, str]:
    """The only fitted group that a request can mean, or why there is none.

    Parameters
    ----------
    fitted
        Keys of the fitted groups.
    names
        Columns that the keys hold the values of.
    asked
        The request's values; ``?`` where it does not say.
    """
    if asked in fitted:
        return asked, ""
    left = list(fitted)
    for position, (name, value) in enumerate(zip(names, asked, strict=True)):
        if value == UNKNOWN:
            continue
        fitting = [key for key in left if key[position] == value]
        if not fitting:
            measured = ", ".join(sorted({key[position] for key in left}))
            return None, f"{name} {value} was not measured; measured: {measured}"
        left = fitting
    if len(left) == 1:
        return left[0], ""
    choices = (sorted({key[position] for key in left}) for position in range(len(names)))
    name, values = next(
        (name, values)
        for name, values, value in zip(names, choices, asked, strict=True)
        if value == UNKNOWN and len(values) > 1
    )
    return None, f"say which {name}: {', '.join(values)}"
