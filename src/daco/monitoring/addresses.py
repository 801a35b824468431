"""Addresses and secrets in a configuration: masked, read from files, known to Apprise."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from daco.errors import InputError


def masked(text: str) -> str:
    """An address without what may be a secret; a hash as its first characters.

    >>> masked("postgresql://daco:geheim@db/plant"), masked("mqtt://broker:1883")
    ('postgresql://daco:***@db/plant', 'mqtt://broker:1883')
    >>> masked("https://kim:geheim@[::1/hook/T0KEN")
    'https://[::1/***'
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
        host = re.split(r"[/?#]", rest)[0].rpartition("@")[2]
        return f"{scheme}://{host}/***"
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
    from apprise import Apprise

    logging.getLogger("apprise").propagate = False  # its lines may contain secrets
    return Apprise.instantiate(url)


def known_to_apprise(url: str) -> str:
    """The address, or a ValueError where Apprise does not know it."""
    if apprise_plugin(url) is None:
        raise ValueError(f"Apprise does not know the address {masked(url)}")
    return url
