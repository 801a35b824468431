"""Where work is done: on this computer, or on a Ray cluster."""

from __future__ import annotations

from daco.errors import InputError

ENGINES = ("local", "ray")


def require_engine(engine: str, address: str | None = None) -> None:
    """An error where there is no such engine, it takes no address, or no cluster answers there.

    Quick, so that it can come before anything that takes long.

    >>> from daco.compute import require_engine
    >>> require_engine("local")
    """
    if engine not in ENGINES:
        raise InputError(f"The engine must be one of {', '.join(ENGINES)}. Got {engine!r} instead.")
    if engine == "ray":
        from daco.compute.ray import require_cluster

        require_cluster(address)
    elif address is not None:
        raise InputError(f"The address {address!r} is one of Ray: choose the engine ray with it.")
