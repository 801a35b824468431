"""Where work is done: on this computer, or on a Ray cluster."""

from __future__ import annotations

from daco.errors import InputError

ENGINES = ("local", "ray")


def require_engine(engine: str, address: str | None = None) -> None:
    """An error where there is no such engine, or where it takes no address.

    >>> from daco.engines import require_engine
    >>> require_engine("ray", "auto")
    """
    if engine not in ENGINES:
        raise InputError(f"The engine must be one of {', '.join(ENGINES)}. Got {engine!r} instead.")
    if address is not None and engine != "ray":
        raise InputError(f"The address {address!r} is one of Ray: choose the engine ray with it.")
