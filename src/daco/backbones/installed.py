"""Networks of other packages: found by their entry points, and checked before they are used.

A package names its network in the group ``daco.backbones``: a class, or a callable that returns an
object, with a ``sample_rate`` and ``embed(waveforms)`` or ``grid(waveforms)``. Packages are looked
at only where a name is none of daco's own.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.audio.formats import DEFAULT_LIMITS as LIMITS
from daco.backbones.protocol import NAMES, Backbone, embed_safely, plugin_error
from daco.backbones.readout import READOUTS, parse_readout, pool
from daco.errors import InputError, WeightsError
from daco.files.hashing import sha256_of_file
from daco.text import suggestion
from daco.validation import Float32s, is_whole

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "daco.backbones"
OWN = "own"  # the readout of a network that computes one vector per clip itself

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_TOLERANCE = 0.02  # share of the largest value by which vectors may differ between batches


def installed_networks() -> dict[str, list[EntryPoint]]:
    """Entry points of other packages by the name of their network; none has a name of daco's."""
    from importlib.metadata import entry_points

    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        if _NAME.fullmatch(point.name) and point.name not in NAMES:
            found.setdefault(point.name, []).append(point)
    return found


def load_installed(name: str, weights: Any, device: str, precision: str) -> Backbone:
    """The network of another package, tried out; it is given those arguments that it has."""
    points = installed_networks()
    if name not in points:
        known = (*NAMES, *sorted(points))
        raise InputError(
            f"The backbone must be one of {', '.join(known)}. Got {name!r}."
            f"{suggestion(str(name), known)}"
        )
    packages = [f"{point.dist.name} {point.dist.version}" for point in points[name] if point.dist]
    package = " and ".join(packages)
    if len(packages) > 1:
        raise InputError(f"{package} have a network {name!r} each. Uninstall one of them.")
    whose, sha256 = f"The network {name!r} of {package}", None
    if weights is not None:
        if not isinstance(weights, str | Path) or not Path(weights).is_file():
            raise WeightsError(f"The weights of {name!r} must be a file. Got {str(weights)!r:.99}.")
        sha256 = sha256_of_file(Path(weights))
    try:
        make = points[name][0].load()
        takes = inspect.signature(make).parameters
        given = {"weights": weights, "device": device, "precision": precision}
        given = {key: each for key, each in given.items() if key in takes and each is not None}
        if (sha256 and "weights" not in takes) or (
            precision != "fp32" and "precision" not in takes
        ):
            raise InputError(f"{whose} takes no such weights or precision. Leave them out.")
        made = make(**given)
        full = isinstance(made, Backbone) and _defines(made, "embed_many")
        net = made if full else PlainNetwork(name, made)
    except (Exception, SystemExit) as error:
        raise plugin_error(name, package, error) from None
    if getattr(made, "name", name) != name:
        raise InputError(f"{whose} has the name {made.name!r}, and its entry point another.")
    net.name, net.package = name, package
    net.weights_sha256 = sha256 or net.weights_sha256
    net.device = given.get("device", net.device)
    net.precision = given.get("precision", net.precision)
    _try_out(net, whose)
    return net


def _defines(made: Any, method: str) -> bool:
    """Whether an object has a method, other than the one that it inherits from `Backbone`."""
    return getattr(type(made), method, None) not in (None, getattr(Backbone, method))


def _try_out(net: Backbone, whose: str) -> None:
    """Raise an `InputError` unless noise has finite vectors that depend on nothing else."""
    noise, name = _noise(net, 2), net.default_readout
    both, alone = (embed_safely(net, waves, [name])[name] for waves in (noise, noise[1:]))
    if np.ndim(both) != 2 or len(both) != 2 or np.shape(alone) != (1, both.shape[1]):
        raise InputError(
            f"{whose} must give one vector per clip, (clips, dim). Got shape {np.shape(both)} for "
            f"2 clips and {np.shape(alone)} for 1."
        )
    if not np.isfinite(both).all():
        raise InputError(f"{whose} gives NaN or inf for a second of noise.")
    if np.abs(both[1:] - alone).max() > _TOLERANCE * np.abs(both).max():
        raise InputError(
            f"{whose} gives a clip another vector when it is alone than beside another clip. Is it "
            "in evaluation mode, as after module.eval() in PyTorch?"
        )


def _noise(net: Backbone, clips: int) -> Float32s:
    shape = clips, max(net.shortest, net.sample_rate)
    return np.random.default_rng(0).normal(scale=0.1, size=shape).astype(np.float32)


class PlainNetwork(Backbone):
    """A `Backbone` around an object that has a ``sample_rate`` and ``embed`` or ``grid``.

    ``embed(waveforms)`` returns (clips, dim), ``grid(waveforms)`` (clips, time, frequency, dim), of
    NumPy or torch. The object may also have ``shortest``, ``resampler``, ``weights_sha256`` and
    ``default_readout``, as a Backbone has, and ``frame_rate``, the time steps of its grid per
    second, which the readout ``mod`` needs.

    >>> class Bands:
    ...     sample_rate = 8000
    ...     def grid(self, waveforms):
    ...         return np.abs(waveforms).reshape(len(waveforms), -1, 4, 10)
    >>> net = PlainNetwork("bands", Bands())
    >>> net.embed(np.ones((2, 8000), np.float32), "rdp-g4").shape, net.bands("rdp-g4")
    ((2, 40), 4)
    """

    def __init__(self, name: str, network: Any) -> None:
        self.name, self._network = name, network
        rate: Any = getattr(network, "sample_rate", None)
        if not is_whole(rate, LIMITS.min_rate) or rate > LIMITS.max_rate:
            raise InputError(f"The sample_rate of {name!r} must be in hertz. Got {rate!r}.")
        self.sample_rate, self.frame_rate = int(rate), getattr(network, "frame_rate", None)
        for key in ("shortest", "resampler", "weights_sha256"):
            setattr(self, key, getattr(network, key, getattr(self, key)))
        self._has_grid = _defines(network, "grid")
        of_grid = [each for each in READOUTS if each != "mod" or self.frame_rate]
        own = (OWN,) * _defines(network, "embed")
        self.readouts = (*own, *(of_grid if self._has_grid else ()))
        if not self.readouts:
            raise InputError(f"The network {name!r} must have a method embed or grid.")
        self.default_readout = getattr(network, "default_readout", self.readouts[0])
        self.check_readout(self.default_readout)

    def check_readout(self, name: str) -> None:
        """Raise an `InputError` unless there is such a readout, its own or one of a grid."""
        if self._has_grid:
            parse_readout(name, self.readouts, depth=0, owner=self.name)
        else:
            super().check_readout(name)

    def bands(self, readout: str) -> int:
        """Equal parts, one per frequency band, of the vectors of a readout; 1 for none."""
        return self._frequencies if parse_readout(readout, self.readouts).keeps_bands else 1

    @cached_property
    def _frequencies(self) -> int:
        return self.grid(_noise(self, 1)).shape[2]

    def embed_many(self, waveforms: Any, readouts: Sequence[str]) -> dict[str, Float32s]:
        """Several readouts; the network is called once for its own, and once for its grid."""
        for name in readouts:
            self.check_readout(name)
        waves = self.float_waveforms(waveforms)
        grid = None if set(readouts) <= {OWN} else self.grid(waves)
        return {
            name: self._call("embed", waves, "(clips, dim)")
            if name == OWN
            else np.asarray(pool(grid, name, frame_rate=self.frame_rate))
            for name in readouts
        }

    def grid(self, waveforms: Any) -> Float32s:
        """Features before any pooling, (clips, time, frequency, dim)."""
        return self._call("grid", self.float_waveforms(waveforms), "(clips, time, frequency, dim)")

    def _call(self, method: str, waves: Float32s, shape: str) -> Float32s:
        found = getattr(self._network, method)(waves)
        array = np.asarray(found.detach().float().cpu() if hasattr(found, "detach") else found)
        fits = array.ndim == 1 + shape.count(",") and len(array) == len(waves) and array.size
        if array.dtype.kind not in "fiu" or not fits:
            raise InputError(
                f"{method} of the network {self.name!r} must return numbers of shape {shape}. Got "
                f"{array.dtype} of shape {array.shape} for {len(waves)} clips."
            )
        with np.errstate(over="ignore"):
            return array.astype(np.float32, copy=False)
