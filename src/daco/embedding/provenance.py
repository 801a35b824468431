"""Where vectors come from: the network, its readouts, and what the table says about them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from daco.backbones.protocol import Backbone
from daco.data.table import views_text
from daco.errors import InputError
from daco.version import __version__


def check_readouts(net: Backbone, readouts: Sequence[str] | None) -> tuple[str, ...]:
    """Readouts that a network has, each once; by default its own. ``mod+env`` is two."""
    given = [part for name in readouts or () for part in name.split("+")]
    for name in given:
        net.check_readout(name)
    names = net.resolve(given)
    if len(set(names)) != len(names):
        raise InputError(f"A readout is named twice: {', '.join(names)}. Remove one of them.")
    return names


def origin_of(
    net: Backbone, readouts: Sequence[str], channel: int | str, device: str | None = None
) -> dict[str, str]:
    """Where the vectors come from: the metadata of the table.

    A table of several networks says it for every view.
    """
    bands = {name: count for name in readouts if (count := net.bands(name)) > 1}
    several = len(net.networks) > 1
    return {
        "backbone": net.name,
        "weights_sha256": "+".join(each.weights_sha256 or "" for each in net.networks),
        "readouts": json.dumps(list(readouts)),
        **({} if several else {"precision": net.precision}),
        "device": str(device or net.device).partition(":")[0],
        "channel": str(channel),
        **({} if several else {"sample_rate": str(net.sample_rate), "resampler": net.resampler}),
        "version": __version__,
        **({"bands": json.dumps(bands)} if bands else {}),
        **({"views": _views_of(net, readouts)} if several else {}),
    }


def _views_of(net: Backbone, readouts: Sequence[str]) -> str:
    views = {}
    for network, share in zip(net.networks, net.shares(readouts), strict=True):
        for view, readout in share.items():
            views[view] = {
                "backbone": network.name,
                "weights_sha256": network.weights_sha256 or "",
                "readout": readout,
                "precision": network.precision,
                "sample_rate": str(network.sample_rate),
                "resampler": network.resampler,
            }
    return views_text(views)


def salt_of(net: Backbone) -> str:
    """Text that no later run will have, if the weights cannot be recognised by then."""
    recognisable = all(
        each.weights_sha256 is not None or not each.has_weights for each in net.networks
    )
    return "" if recognisable else os.urandom(16).hex()
