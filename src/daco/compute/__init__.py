"""Where work is done: in this process, in others on this computer, or on a Ray cluster.

Read `processes` first: it runs a function over many machines, with either engine. `ray` connects
to a cluster and runs tasks there, `device` names the torch device and its precision.
"""

from __future__ import annotations

from daco.errors import InputError

ENGINES = ("local", "ray")


def require_engine(engine: str, address: str | None = None) -> None:
    """An error where the engine is unknown, takes no address, or no cluster answers there.

    >>> require_engine("local")
    """
    if engine not in ENGINES:
        raise InputError(f"The engine must be one of {', '.join(ENGINES)}. Got {engine!r} instead.")
    if engine == "ray":
        from daco.compute.ray import require_cluster

        require_cluster(address)
    elif address is not None:
        raise InputError(
            f"The address {address!r} needs the engine ray. Choose it, or leave the address out."
        )
