"""Several networks on the same recordings: each readout of each is a view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from daco.backbones.protocol import Backbone, embed_safely
from daco.errors import InputError
from daco.text import suggestion
from daco.validation import Float32s


class Networks(Backbone):
    """Several different networks as one; each readout is a view.

    A readout of the network without weights keeps its name, such as ``mod``. The default readout
    of another network has the name of the network, such as ``mn04``, and its other readouts have
    both names, such as ``mn04-band``. Views are in the order of the networks.
    """

    def __init__(self, networks: Sequence[Backbone]) -> None:
        names = [each.name for each in networks]
        if len(set(names)) < len(names):
            raise InputError(f"A network is named twice: {', '.join(names)}. Remove one of them.")
        self._networks = tuple(networks)
        self.name = "+".join(names)
        self.sample_rate, self.resampler = networks[0].sample_rate, networks[0].resampler
        trained = next((each for each in networks if each.has_weights), networks[0])
        self.precision, self.device = trained.precision, trained.device
        self.parameters = sum(each.parameters or 0 for each in networks)
        self.readouts = self.resolve(())
        self.default_readout = "+".join(self.readouts)

    @property
    def networks(self) -> tuple[Backbone, ...]:
        """The networks, in order."""
        return self._networks

    def resolve(self, readouts: Sequence[str]) -> tuple[str, ...]:
        """Return the views of these names, and the default views of networks without a name."""
        views: list[str] = []
        for network, share in zip(self.networks, self.shares(readouts), strict=True):
            named = share.values() or network.default_views
            views += [view_name(network, readout) for readout in named]
        return tuple(views)

    def shares(self, readouts: Sequence[str]) -> list[dict[str, str]]:
        """Return the readouts of each network, by the view that they are."""
        parsed = {name: self._parsed(name) for name in readouts}
        return [
            {name: readout for name, (owner, readout) in parsed.items() if owner is network}
            for network in self.networks
        ]

    def embed_many(self, waveforms: Any, readouts: Sequence[str]) -> dict[str, Float32s]:
        """Compute views of the same clips; `waveforms` has one array for each network."""
        vectors: dict[str, Float32s] = {}
        shares = self.shares(readouts)
        for network, waves, share in zip(self.networks, waveforms, shares, strict=True):
            if share:
                found = embed_safely(network, waves, list(share.values()))
                vectors |= {view: found[readout] for view, readout in share.items()}
        return {name: vectors[name] for name in readouts}

    def check_readout(self, name: str) -> None:
        """Raise an `InputError` unless there is such a view."""
        self._parsed(name)

    def _parsed(self, name: str) -> tuple[Backbone, str]:
        """The network of a view, and its readout."""
        for network in self.networks:
            if not network.has_weights and name in network.readouts:
                return network, name
            if network.has_weights and name == network.name:
                return network, network.default_readout
            if network.has_weights and name.startswith(f"{network.name}-"):
                readout = name.removeprefix(f"{network.name}-")
                network.check_readout(readout)
                return network, readout
        trained = [each.name for each in self.networks if each.has_weights]
        known = [*trained, *(r for n in self.networks if not n.has_weights for r in n.readouts)]
        raise InputError(
            f"{self.name} has no view {name!r}. It has {', '.join(known)}, and other readouts, "
            f"such as {', '.join(f'{each}-mean' for each in trained)}.{suggestion(name, known)}"
        )


def view_name(network: Backbone, readout: str) -> str:
    """The name of a network's readout beside those of other networks."""
    if not network.has_weights:
        return readout
    return network.name if readout == network.default_readout else f"{network.name}-{readout}"
