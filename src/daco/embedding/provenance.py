"""Where vectors come from: the network, its readouts, and what the table says about them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from daco.backbones.protocol import Backbone
from daco.errors import InputError
from daco.version import __version__


def check_readouts(net: Backbone, readouts: Sequence[str] | None) -> tuple[str, ...]:
    """Readouts that a network has, each once; by default its own."""
    names = tuple(readouts or (net.default_readout,))
    for name in names:
        net.check_readout(name)
    if len(set(names)) != len(names):
        raise InputError(f"A readout is named twice: {', '.join(names)}. Remove one of them.")
    return names


def origin_of(
    net: Backbone, readouts: Sequence[str], channel: int | str, device: str | None = None
) -> dict[str, str]:
    """Where the vectors come from: the metadata of the table."""
    bands = {name: count for name in readouts if (count := net.bands(name)) > 1}
    return {
        "backbone": net.name,
        "weights_sha256": net.weights_sha256 or "",
        "readouts": json.dumps(list(readouts)),
        "precision": net.precision,
        "device": str(device or net.device).partition(":")[0],
        "channel": str(channel),
        "sample_rate": str(net.sample_rate),
        "resampler": net.resampler,
        "version": __version__,
        **({"bands": json.dumps(bands)} if bands else {}),
    }


def salt_of(net: Backbone) -> str:
    """Text that no later run will have, if the weights cannot be recognised by then."""
    recognisable = net.weights_sha256 is not None or not net.has_weights
    return "" if recognisable else os.urandom(16).hex()
