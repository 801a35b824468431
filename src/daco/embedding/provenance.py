"""Where vectors come from: networks, their readouts, and what tables and models say about them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from daco.audio.microphones import parse_channel
from daco.backbones import NAMES
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
    made = _network_of(net)
    if len(net.networks) > 1:
        views = {
            view: _network_of(network) | {"readout": readout}
            for network, share in zip(net.networks, net.shares(readouts), strict=True)
            for view, readout in share.items()
        }
        hashes = "+".join(each.weights_sha256 or "" for each in net.networks)
        made = {"backbone": net.name, "weights_sha256": hashes, "views": views_text(views)}
    if net.parameters:
        made["parameters"] = str(net.parameters)
    return made | {
        "readouts": json.dumps(list(readouts)),
        "device": str(device or net.device).partition(":")[0],
        "channel": str(channel),
        "version": __version__,
    }


def _network_of(net: Backbone) -> dict[str, str]:
    return {
        "backbone": net.name,
        "weights_sha256": net.weights_sha256 or "",
        "precision": net.precision,
        "sample_rate": str(net.sample_rate),
        "resampler": net.resampler,
        **({"package": net.package} if net.package else {}),
    }


def settings_of(net: Backbone, origin: Mapping[str, str]) -> str:
    """A hash of everything that vectors depend on besides the recordings, given their origin.

    No two are equal where the weights of a network cannot be recognised.
    """
    recognisable = all(
        each.weights_sha256 is not None or each.package or not each.has_weights
        for each in net.networks
    )
    salt = "" if recognisable else os.urandom(16).hex()
    return hashlib.sha256(json.dumps([origin, salt]).encode()).hexdigest()


@dataclass(frozen=True)
class Frontend:
    """How recordings become embeddings, of one view or of several that are side by side.

    Attributes
    ----------
    backbone, readout, precision : str
        The network, its readout, and its precision, such as ``"fp32"``.
    sample_rate, channel, resampler
        How recordings are read.
    weights_sha256, package : str or None
        Hash of the checkpoint, and name and version of the package of the network, if any.
    seconds : float or None
        The usual length of the normals; None if unknown.
    others : tuple of Frontend
        The further views; the fields above are those of the first one. All have one channel.
    """

    backbone: str
    readout: str
    sample_rate: int
    channel: int | str
    precision: str
    resampler: str
    weights_sha256: str | None
    seconds: float | None = None
    package: str | None = None
    others: tuple[Frontend, ...] = ()

    @property
    def views(self) -> tuple[Frontend, ...]:
        """Each view by itself, in order."""
        return (replace(self, others=()), *self.others)


def frontend_of(table: Any, readouts: Sequence[str] | None = None) -> Frontend | None:
    """How vectors of an `EmbeddingTable` were made, if it was by networks that have a name.

    `readouts` are the views, in this order; by default the table's first readout alone.
    """
    views = []
    for name in readouts or table.readouts[:1]:
        origin = table.origin(name)
        if origin.get("backbone") not in NAMES and not origin.get("package"):
            return None
        try:
            view = Frontend(
                backbone=origin["backbone"],
                readout=origin["readout"],
                sample_rate=int(origin["sample_rate"]),
                channel=parse_channel(table.metadata["channel"]),
                precision=origin["precision"],
                resampler=origin["resampler"],
                weights_sha256=origin["weights_sha256"] or None,
                package=origin.get("package"),
            )
        except (KeyError, ValueError) as error:
            raise InputError(
                f"The table was made by {origin['backbone']}, but its metadata is incomplete "
                f"({error}). Embed the clips again with daco embed."
            ) from None
        views.append(view)
    return replace(views[0], others=tuple(views[1:]))
