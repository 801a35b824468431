"""A network of a user as a `Backbone`: a torch module, or any object with ``embed`` or ``grid``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from daco.audio.formats import DEFAULT_LIMITS
from daco.backbones.protocol import NAMES, Backbone, embed_safely
from daco.backbones.readout import READOUTS, pool
from daco.errors import InputError
from daco.validation import Float32s, is_whole

OWN = "own"  # the readout of a network that computes one vector per clip itself

_TOLERANCE = 0.02  # share of the largest value by which vectors may differ between batches
_SHAPES = {"embed": "(clips, dim)", "grid": "(clips, time, frequency, dim)"}


def wrap(
    network: Any,
    name: str | None = None,
    *,
    sample_rate: int | None = None,
    device: str | None = None,
    package: str | None = None,
) -> Backbone:
    """Make a `Backbone` of a network, after trying it out on a second of noise.

    Parameters
    ----------
    network : torch.nn.Module or object
        An object has a method ``embed(waveforms)``, which returns one vector per clip, (clips,
        dim), or ``grid(waveforms)``, which returns (clips, time, frequency, dim), or both.
        Waveforms are float32 of shape (clips, samples). A module gets tensors, in evaluation mode;
        without these methods it is called, and returns either shape or (clips, time, dim). Optional
        attributes are ``sample_rate``, ``name``, ``default_readout``, ``frame_rate``, ``shortest``,
        ``resampler`` and ``weights_sha256``. A `Backbone` is returned as it is.
    name, sample_rate : optional
        Its name in tables (by default that of the class) and its rate, if it has none itself.
    device : str, optional
        The torch device to move a module to.
    package : str, optional
        Name and version of the package it comes from.

    Examples
    --------
    >>> import numpy as np
    >>> class Level:
    ...     sample_rate = 8000
    ...     def embed(self, waveforms):
    ...         return np.abs(waveforms).mean(axis=1, keepdims=True)
    >>> net = wrap(Level())
    >>> net.name, net.readouts, net.embed(np.ones((2, 8000), np.float32)).tolist()
    ('Level', ('own',), [[1.0], [1.0]])
    """
    net: Backbone
    if isinstance(network, Backbone) and _method(network, "embed_many"):
        if package is None:
            return network
        net = network
        net.name = name or net.name
    else:
        net = _Wrapped(network, name, sample_rate, device)
        if package is None and (net.name in NAMES or "+" in net.name):
            raise InputError(f"A network of yours cannot have the name {net.name!r}. Rename it.")
    net.package = package
    _try_out(net)
    return net


def _method(network: Any, name: str) -> Callable[..., Any] | None:
    """A method of an object, unless it is the one that it inherits from `Backbone`."""
    found = getattr(network, name, None)
    inherited = getattr(type(network), name, None) is getattr(Backbone, name)
    return found if callable(found) and not inherited and not _is_module(found) else None


def _is_module(network: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(network, torch.nn.Module)


class _Wrapped(Backbone):
    """A `Backbone` around an object that has ``embed`` or ``grid``."""

    def __init__(self, network: Any, name: str | None, rate: Any, device: str | None) -> None:
        self.name = name = name or str(getattr(network, "name", type(network).__name__))
        rate = getattr(network, "sample_rate", None) if rate is None else rate
        if rate is None:
            raise InputError(
                f"The network {name!r} has no sample_rate. Give it, as in "
                "daco.backbones.load(network, sample_rate=16000)."
            )
        if not is_whole(rate, DEFAULT_LIMITS.min_rate) or rate > DEFAULT_LIMITS.max_rate:
            raise InputError(f"The sample_rate of {name!r} must be in hertz. Got {rate!r}.")
        self.sample_rate, self.frame_rate = int(rate), getattr(network, "frame_rate", None)
        for key in ("shortest", "resampler", "weights_sha256"):
            setattr(self, key, getattr(network, key, getattr(self, key)))
        self._methods = {key: m for key in _SHAPES if (m := _method(network, key))}
        if _is_module(network):
            self._use_tensors(network, device)
        of_grid = [each for each in READOUTS if each != "mod" or self.frame_rate]
        own = [OWN] if "embed" in self._methods else []
        self.readouts = (*own, *(of_grid if "grid" in self._methods else ()))
        if not self.readouts:
            raise InputError(f"The network {name!r} must have a method embed or grid.")
        self.default_readout = getattr(network, "default_readout", self.readouts[0])
        self.check_readout(self.default_readout)

    def _use_tensors(self, module: Any, device: str | None) -> None:
        import torch

        module.eval()
        if device is not None:
            module.to(device)
        tensors = (*module.parameters(), *module.buffers())
        place = tensors[0].device if tensors else torch.device(device or "cpu")
        self.device, self.parameters = str(place), sum(t.numel() for t in module.parameters())

        def of_tensors(method: Callable[..., Any], waves: Float32s) -> Any:
            with torch.inference_mode():
                found = method(torch.from_numpy(waves).to(place))
            return found[:, :, None] if getattr(found, "ndim", None) == 3 else found

        if not self._methods:
            dimensions = getattr(of_tensors(module, _noise(self, 1)), "ndim", None)
            self._methods = {"grid" if dimensions == 4 else "embed": module}
        self._methods = {key: partial(of_tensors, m) for key, m in self._methods.items()}

    def embed_many(self, waveforms: Any, readouts: Sequence[str]) -> dict[str, Float32s]:
        for name in readouts:
            self.check_readout(name)
        waves = self.float_waveforms(waveforms)
        found = {OWN: self._call("embed", waves)} if OWN in readouts else {}
        grid = None if set(readouts) <= {OWN} else self._call("grid", waves)
        for name in {*readouts} - {OWN}:
            found[name] = pool(grid, name, frame_rate=self.frame_rate)
        return {name: found[name] for name in readouts}

    def grid(self, waveforms: Any) -> Float32s:
        return self._call("grid", self.float_waveforms(waveforms))

    def _call(self, method: str, waves: Float32s) -> Float32s:
        # A copy, because a network may change its input, which others are given, too.
        found = self._methods[method](waves.copy())
        array = np.asarray(found.detach().float().cpu() if hasattr(found, "detach") else found)
        shape = _SHAPES[method]
        fits = array.ndim == 1 + shape.count(",") and len(array) == len(waves) and array.size
        if array.dtype.kind not in "fiu" or not fits:
            raise InputError(
                f"{method} of the network {self.name!r} must return numbers of shape {shape}. Got "
                f"{array.dtype} of shape {array.shape} for {len(waves)} clips."
            )
        with np.errstate(over="ignore"):
            return array.astype(np.float32, copy=False)


def _try_out(net: Backbone) -> None:
    """Raise an `InputError` unless noise has finite vectors that depend on nothing else."""
    whose = f"The network {net.name!r}{f' of {net.package}' if net.package else ''}"
    noise, name = _noise(net, 2), net.default_readout
    both, alone = (embed_safely(net, waves, [name])[name] for waves in (noise, noise[1:]))
    if np.ndim(both) != 2 or len(both) != 2 or np.shape(alone) != (1, both.shape[1]):
        shapes = np.shape(both), np.shape(alone)
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
