"""Layers of a configuration: tables merged key by key, paths made absolute, secrets masked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from daco.errors import InputError

_PATHS = {"recordings", "token_file", "webhook_secret_file", "model", "folder", "healthy"}


def absolute(layer: dict[str, Any], base: Path) -> dict[str, Any]:
    """The layer with its relative paths joined to a folder."""

    def resolved(key: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            if key == "weights":
                return {name: base / str(file) for name, file in value.items()}
            return {name: resolved(name, each) for name, each in value.items()}
        if key in _PATHS and isinstance(value, str | Path) and str(value):
            return base / Path(value).expanduser()
        if key == "database" and isinstance(value, str):
            scheme, slashes, file = value.partition(":///")
            if scheme == "sqlite" and slashes and file and not Path(file).is_absolute():
                return f"sqlite:///{base / file}"
        return value

    return {name: resolved(name, value) for name, value in layer.items()}


def without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """The tables without the values that are None."""
    return {
        key: without_none(value) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if value is not None
    }


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables merged key by key; a value of the upper one wins."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = merge(old, value) if both else value  # type: ignore[arg-type]
    return merged


def leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The dotted keys of all values."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key


def masked(text: str) -> str:
    """An address without what may be a secret; a hash as its first characters.

    >>> masked("postgresql://daco:geheim@db/plant"), masked("mqtt://broker:1883")
    ('postgresql://daco:***@db/plant', 'mqtt://broker:1883')
    >>> masked("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"), masked("ab" * 32)
    ('slack://***', 'abababab...')
    """
    scheme, found, rest = text.partition("://")
    if not found:
        return f"{text[:8]}..." if len(text) == 64 else text
    if scheme in ("mailto", "mailtos", "mqtt", "mqtts", "rtsp", "rtsps", "sqlite") or (
        scheme.startswith("postgresql")
    ):
        rest = rest.partition("?")[0]
        return f"{scheme}://" + re.sub(r"^([^:/@]*):.*@", r"\1:***@", rest)
    if scheme in ("http", "https"):
        return f"{scheme}://{urlsplit(text).hostname}/***"
    return f"{scheme}://***"


def read_secret(file: Path, what: str) -> str:
    """The text of a file that holds a secret."""
    try:
        text = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise InputError(f"the {what} cannot be read ({reason}).", path=file) from None
    if not text:
        raise InputError(f"there is no {what} in it. Write one: openssl rand -hex 32.", path=file)
    return text


def apprise_plugin(url: str) -> Any:
    """Apprise's object for an address; None where it does not know the address.

    Importing Apprise takes a while, so that only those who use it do.
    """
    import logging

    from apprise import Apprise

    logging.getLogger("apprise").propagate = False  # its lines may contain secrets
    return Apprise.instantiate(url)


def known_to_apprise(url: str) -> str:
    """The address, or a ValueError where Apprise does not know it."""
    if apprise_plugin(url) is None:
        raise ValueError(f"Apprise does not know the address {masked(url)}")
    return url
