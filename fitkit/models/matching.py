"""Which fitted group a request belongs to, or why it belongs to none."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from fitkit.models.columns import UNKNOWN, Key, key_text

_KIND = "layer_group"
_NOT_SAID = ""  # a column that a request lacks; a null in it is the group that has one, if any
_SHOWN = 12  # values in a message
_NAMES = ("layer_type", "network", "layer")  # what tells the group of a layer


def text_columns(names: Collection[str]) -> set[str]:
    """Columns that requests are matched by as text, among those of these names and of layers.

    Counts are numbers even where they tell groups apart.
    """
    return {name for name in (*names, *_NAMES) if not name.startswith("n_")}


def request_keys(
    columns: Mapping[str, np.ndarray], names: Sequence[str], fitted: Collection[Key], n_rows: int
) -> list[Key]:
    """Group that each row asks for; ``?`` where a value is null, empty where there is no column."""
    texts = {
        name: _texts(columns, name, n_rows) if name in columns else [_NOT_SAID] * n_rows
        for name in names
    }
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
    names = (*_NAMES, "input_bytes")
    told = [_texts(columns, name, n_rows) for name in names]
    return [
        kind if size != UNKNOWN and kind in known else _by_name(kind, network, layer, known)
        for kind, network, layer, size in zip(*told, strict=True)
    ]


def _by_name(kind: str, network: str, layer: str, known: Collection[str]) -> str:
    own = named_layer(network, layer, kind)
    alike = [g for g in known if layer != UNKNOWN and _is_layer(g, network, layer)]
    # Of what type a layer was is not known of every group; where it is, it is no other.
    fitting = [g for g in alike if kind == UNKNOWN or _split(g)[1] in (kind, UNKNOWN)]
    if own in known or (alike and not fitting):
        return own
    if len(fitting) == 1 and not (network == UNKNOWN and kind in known):
        return fitting[0]
    # A layer that is known by its name alone is no other layer, though only one was measured.
    is_alone = kind == UNKNOWN != layer and all("/" in group for group in known)
    return own if is_alone and (network != UNKNOWN or not alike) else kind


def named_layer(network: str, layer: str, kind: str) -> str:
    """Group of a layer of unknown sizes, which shares parameters with no other."""
    return f"{network}/{layer}" if kind == UNKNOWN else f"{network}/{layer} ({kind})"


def _split(group: str) -> tuple[str, str]:
    """Name and type that `named_layer` put together."""
    name, _, kind = group.rpartition(" (")
    return (name, kind[:-1]) if name and kind.endswith(")") else (group, UNKNOWN)


def _is_layer(group: str, network: str, layer: str) -> bool:
    name = _split(group)[0]
    return name.endswith(f"/{layer}") if network == UNKNOWN else name == f"{network}/{layer}"


def match(fitted: Collection[Key], names: Sequence[str], asked: Key) -> tuple[Key | None, str]:
    """The only fitted group that a request can mean, or why there is none.

    Parameters
    ----------
    fitted
        Keys of the fitted groups.
    names
        Columns that the keys hold the values of.
    asked
        The request's values; ``?`` where one is null, empty where it does not say.
    """
    if asked in fitted:
        return asked, ""
    left = [key for key in fitted if _agrees(asked, key)]
    if not left:  # then a null is no value of its own
        left = list(fitted)
        for position, (name, value) in enumerate(zip(names, asked, strict=True)):
            if value in (UNKNOWN, _NOT_SAID):
                continue
            fitting = [key for key in left if key[position] == value]
            if not fitting:
                measured = _listed({key[position] for key in left}, value)
                return None, f"{name} {value} was not measured; measured: {measured}"
            left = fitting
    if len(left) == 1:
        return left[0], ""
    choices = ({key[position] for key in left} for position in range(len(names)))
    name, values = next(
        (name, values)
        for name, values, value in zip(names, choices, asked, strict=True)
        if value in (UNKNOWN, _NOT_SAID) and len(values) > 1
    )
    return None, f"say which {name}: {_listed(values)}"


def _agrees(asked: Key, key: Key) -> bool:
    return all(value in (own, _NOT_SAID) for value, own in zip(asked, key, strict=True))


def _listed(values: Collection[str], near: str = "") -> str:
    """The values, or the nearest of many."""
    if len(values) <= _SHOWN:
        return ", ".join(sorted(values))
    some = difflib.get_close_matches(near, sorted(values), _SHOWN, 0.0) if near else sorted(values)
    return f"{', '.join(some[:_SHOWN])} and {len(values) - _SHOWN} more"
