"""Networks of other packages: found by their entry points, and checked before they are used.

A package names its network in the group ``daco.backbones``: a class, or a callable that returns an
object, with a ``sample_rate`` and ``embed(waveforms)`` or ``grid(waveforms)``. Packages are looked
at only where a name is none of daco's own.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np

from daco.audio.formats import DEFAULT_LIMITS as LIMITS
from daco.backbones.protocol import NAMES, Backbone, embed_safely, plugin_error
from daco.backbones.readout import READOUTS, parse_readout, pool
from daco.errors import InputError, WeightsError
from daco.files.hashing import sha256_of_file
from daco.text import suggestion
from daco.validation import Float32s, is_whole

GROUP = "daco.backbones"
OWN = "own"  # the readout of a network that computes one vector per clip itself

_TOLERANCE = 0.02  # share of the largest value by which vectors may differ between batches


def network_names() -> tuple[str, ...]:
    """List the names of daco's networks, then those of other packages.

    >>> network_names()[0]
    'logmel'
    """
    return (*NAMES, *sorted(entry_points(group=GROUP).names - set(NAMES)))


def load_installed(name: str, weights: Any, device: str, precision: str) -> Backbone:
    """The network of another package, tried out; it is given those arguments that it has."""
    points = tuple(entry_points(group=GROUP, name=name))
    if not points:
        known = network_names()
        raise InputError(
            f"The backbone must be one of {', '.join(known)}, or have an entry point in the group "
            f"{GROUP} of an installed package. Got {name!r}.{suggestion(name, known)}"
        )
    package = " and ".join(f"{each.dist.name} {each.dist.version}" for each in points if each.dist)
    whose, sha256 = f"The network {name!r} of {package}", None
    if len(points) > 1:
        raise InputError(f"{whose} is installed more than once. Uninstall one of these packages.")
    if weights is not None:
        if not isinstance(weights, str | Path) or not Path(weights).is_file():
            raise WeightsError(f"The weights of {name!r} must be a file. Got {str(weights)!r:.99}.")
        sha256 = sha256_of_file(Path(weights))
    try:
        with redirect_stdout(sys.stderr):  # results of commands are in stdout, such as JSON
            make = points[0].load()
        given = {"device": device} | ({"weights": weights} if sha256 else {})
        given = {key: given[key] for key in given if key in inspect.signature(make).parameters}
        if precision != "fp32" or (sha256 and "weights" not in given):
            raise InputError(f"{whose} takes no weights, or no such precision. Leave them out.")
        with redirect_stdout(sys.stderr):
            made = make(**given)
        full = isinstance(made, Backbone) and _defines(made, "embed_many")
        net = made if full else _PooledNetwork(name, made)
    except (Exception, SystemExit) as error:
        raise plugin_error(name, package, error) from None
    net.name, net.package = name, package
    net.weights_sha256 = sha256 or net.weights_sha256
    net.device = given.get("device", net.device)
    _try_out(net, whose)
    return net


def _defines(made: Any, method: str) -> bool:
    """Whether an object has a method, other than the one that it inherits from `Backbone`."""
    return getattr(type(made), method, None) not in (None, getattr(Backbone, method))


def _try_out(net: Backbone, whose: str) -> None:
    """Raise an `InputError` unless noise has finite vectors that depend on nothing else."""
    noise, name = _noise(net, 2), net.default_readout
    both, alone = (embed_safely(net, waves, [name])[name] for waves in (noise, noise[1:]))
    shapes = np.shape(both), np.shape(alone)
    if len(shapes[0]) != 2 or shapes != ((2, shapes[0][1]), (1, shapes[0][1])):
        raise InputError(
            f"{whose} must give vectors (clips, dim). For 2 and 1 clips, got {shapes}."
        )
    if not np.isfinite(both).all():
        raise InputError(f"{whose} gives NaN or inf for a second of noise.")
    if np.abs(both[1:] - alone).max() > _TOLERANCE * np.abs(both).max():
        raise InputError(
            f"{whose} gives a clip different vectors alone and beside another clip. Is it in "
            "evaluation mode, as after module.eval() in PyTorch?"
        )


def _noise(net: Backbone, clips: int) -> Float32s:
    shape = clips, max(net.shortest, net.sample_rate)
    return np.random.default_rng(0).normal(scale=0.1, size=shape).astype(np.float32)


class _PooledNetwork(Backbone):
    """A `Backbone` around an object that has a ``sample_rate`` and ``embed`` or ``grid``."""

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
        if self._has_grid:
            parse_readout(name, self.readouts, depth=0, owner=self.name)
        else:
            super().check_readout(name)

    def embed_many(self, waveforms: Any, readouts: Sequence[str]) -> dict[str, Float32s]:
        for name in readouts:
            self.check_readout(name)
        waves = self.float_waveforms(waveforms)
        grid = None if set(readouts) <= {OWN} else self.grid(waves)
        own = self._call("embed", waves, "(clips, dim)") if OWN in readouts else None
        pooled = {
            name: pool(grid, name, frame_rate=self.frame_rate) for name in {*readouts} - {OWN}
        }
        return {name: np.asarray(pooled.get(name, own)) for name in readouts}

    def grid(self, waveforms: Any) -> Float32s:
        return self._call("grid", self.float_waveforms(waveforms), "(clips, time, frequency, dim)")

    def _call(self, method: str, waves: Float32s, shape: str) -> Float32s:
        # A copy, because a network may change its input, which others are given, too.
        found = getattr(self._network, method)(waves.copy())
        array = np.asarray(found.detach().float().cpu() if hasattr(found, "detach") else found)
        fits = array.ndim == 1 + shape.count(",") and len(array) == len(waves) and array.size
        if array.dtype.kind not in "fiu" or not fits:
            raise InputError(
                f"{method} of the network {self.name!r} must return numbers of shape {shape}. Got "
                f"{array.dtype} of shape {array.shape} for {len(waves)} clips."
            )
        with np.errstate(over="ignore"):
            return array.astype(np.float32, copy=False)
