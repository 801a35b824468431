"""Readouts: a network's frame grid (clips, time, frequency, features) to one vector per clip.

A name such as ``mean``, ``rdp-g4`` or ``gem-p3@L9`` says how. `parse_readout` reads it and `pool`
computes it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daco.backbones.pooling import (
    band_max,
    band_mean,
    deviation_weights,
    generalised_mean,
    mean,
    mean_and_deviation,
    modulation,
    weighted_mean,
)
from daco.errors import InputError
from daco.text import closest

READOUTS = ("mean", "meanstd", "mod", "band", "max")
"""Readouts of a grid that have no number in their name."""

PATTERNS = ("gem-p<P>", "rdp-g<G>", "rdp1-g<G>", "rdpgem-g<G>")
"""Readouts of a grid with a number: P and G are decimals such as 4 or 0.5."""

HYBRID_POWER = 3.0
"""The power of ``rdpgem``, as published."""

_LETTERS = {"gem": "p", "rdp": "g", "rdp1": "g", "rdpgem": "g"}
_BEGINNINGS = tuple(f"{kind}-{letter}" for kind, letter in _LETTERS.items())
_NUMBERED = re.compile(r"(gem|rdp|rdp1|rdpgem)-([pg])((?:0|[1-9][0-9]{0,3})(?:\.[0-9]{0,2}[1-9])?)")
_LAYER = re.compile(r"L([1-9][0-9]{0,2})")
_MISSPELT_NUMBER = re.compile(r"(gem|rdp1(?=[^0-9.])|rdpgem|rdp)[-_ ]?[pg]?[_= ]?([0-9.]+)")
_MISSPELT_LAYER = re.compile(r"l?(?:ayer)?[-_= ]?([0-9]{1,3})")


@dataclass(frozen=True)
class Readout:
    """A readout, parsed from its name.

    Attributes
    ----------
    kind : str
        The kind of pooling, such as ``"mean"`` or ``"rdp"``, or a readout of a network, such as
        ``"cls"``.
    number : float or None
        The power P of ``gem``, or the exponent G of the ``rdp`` readouts.
    layer : int or None
        The layer whose output is read, counted from 1; None for the output of the network.
    """

    kind: str
    number: float | None = None
    layer: int | None = None

    @property
    def name(self) -> str:
        """The name; each readout has one spelling."""
        number = "" if self.number is None else f"-{_LETTERS[self.kind]}{self.number:.7g}"
        layer = "" if self.layer is None else f"@L{self.layer}"
        return f"{self.kind}{number}{layer}"


def parse_readout(
    name: str, names: Sequence[str] = READOUTS, *, depth: int | None = None, owner: str = "A grid"
) -> Readout:
    """Parse the name of a readout.

    Parameters
    ----------
    name : str
        One of `names` or `PATTERNS`, and optionally ``@L<k>`` for the output of layer k.
    names : sequence of str
        Known readouts without a number; by default those of :func:`pool`.
    depth : int, optional
        Number of layers, 0 for none; by default any number.
    owner : str
        The owner of these readouts, for the error message.

    Returns
    -------
    Readout

    Raises
    ------
    InputError
        There is no such readout; the message lists the known ones and suggests the closest.

    Examples
    --------
    >>> parse_readout("rdp-g4@L9")
    Readout(kind='rdp', number=4.0, layer=9)
    >>> parse_readout("gem-p0.5").name
    'gem-p0.5'
    """
    base, at, suffix = str(name).partition("@")
    layer = _LAYER.fullmatch(suffix)
    numbered = _NUMBERED.fullmatch(base)
    found = None
    if base in names:
        found = Readout(base)
    elif numbered and numbered[2] == _LETTERS[numbered[1]] and numbered[0] != "gem-p0":
        found = Readout(numbered[1], float(numbered[3]))
    if found is None or (at and layer is None):
        raise InputError(_unknown(str(name), names, depth, owner))
    if layer is None:
        return found
    if depth is not None and int(layer[1]) > depth:
        has = f"layers 1 to {depth}" if depth else "no layers to choose from"
        advice = f"{base}@L{depth}" if depth else base
        raise InputError(
            f"{owner} has {has}. Got the readout {name!r}; use {advice!r} for its last output."
        )
    return Readout(found.kind, found.number, int(layer[1]))


def _unknown(name: str, names: Sequence[str], depth: int | None, owner: str) -> str:
    layers = "" if depth == 0 else f", and each of a layer, @L1 to @L{depth or '<k>'}"
    near = _nearest(name, names, depth)
    if near:
        advice = f" Did you mean {near!r}?"
    elif name.startswith(_BEGINNINGS):
        advice = " P and G are decimals such as 4 or 0.5, below 10000; P is above 0."
    else:
        advice = ""
    listed = ", ".join((*names, *PATTERNS))
    return f"{owner} has no readout {name!r}. It has {listed}{layers}.{advice}"


def _nearest(name: str, names: Sequence[str], depth: int | None) -> str | None:
    """A readout that was probably meant."""
    base, _, suffix = name.strip().lower().partition("@")
    number = _MISSPELT_NUMBER.fullmatch(base)
    examples = [f"{kind}-{letter}{3 if kind == 'gem' else 4}" for kind, letter in _LETTERS.items()]
    if base in names:
        near = base
    elif number and re.fullmatch(r"[0-9]{1,4}\.?|[0-9]{0,4}\.[0-9]{1,3}0*", number[2]):
        near = Readout(number[1], float(number[2])).name
    else:
        similar = closest(base, [*names, *examples])
        if similar is None or base.startswith(_BEGINNINGS):
            return None
        near = similar
    layer = _MISSPELT_LAYER.fullmatch(suffix)
    if layer and int(layer[1]) and (depth is None or int(layer[1]) <= depth):
        near += f"@L{int(layer[1])}"
    return None if near in (name, "gem-p0") else near


def pool(grid: Any, name: str, *, frame_rate: float | None = None) -> Any:
    """Pool a grid of features, of NumPy or torch, into one float32 vector per clip.

    Parameters
    ----------
    grid : array or tensor of shape (B, T, F, D)
        Clips, time, frequency bands, features.
    name : str
        ``mean``: over time and frequency, (B, D).
        ``meanstd``: temporal mean, then temporal standard deviation, of every (F, D).
        ``mod``: modulation spectrum, see `daco.backbones.pooling.modulation`; its order is
        (modulation band, group of frequencies, feature).

        All others have a part of D values for each band, band 0 first, (B, F D).
        ``band``: temporal mean. ``max``: temporal maximum.
        ``gem-p<P>``: ``mean_t(max(x_t, 0)**P)**(1/P)``.
        ``rdp-g<G>``: relative deviation pooling, ``sum_t w_t x_t`` with ``w_t`` proportional to
        ``(1 + d_t / max_s d_s)**G``; ``d_t`` is the distance of the band's frame from its
        temporal mean. ``rdp1-g<G>``: one weight per time step, from the distance of all bands
        together. ``rdpgem-g<G>``: ``sum_t(w_t max(x_t, 0)**3)**(1/3)`` with the weights of
        ``rdp-g<G>``.
    frame_rate : float, optional
        Frames per second of the grid; ``mod`` needs it.

    Examples
    --------
    >>> import numpy as np
    >>> grid = np.ones((2, 40, 16, 3), np.float32)
    >>> pool(grid, "mean").shape, pool(grid, "meanstd").shape, pool(grid, "rdp-g4").shape
    ((2, 3), (2, 96), (2, 48))
    >>> pool(grid, "mod", frame_rate=31.25).shape  # 7 bands x 2 groups x 3 features
    (2, 42)
    """
    readout = parse_readout(name, depth=0)
    if getattr(grid, "ndim", None) != 4 or 0 in tuple(grid.shape):
        shape = tuple(getattr(grid, "shape", ()))
        raise InputError(
            f"The grid must have shape (clips, time, frequency, features), none of them 0. "
            f"Got {shape} instead."
        )
    grid = grid.astype(np.float32, copy=False) if isinstance(grid, np.ndarray) else grid.float()
    if readout.kind == "mod":
        if frame_rate is None:
            raise InputError("The readout 'mod' needs frame_rate, the grid's frames per second.")
        return modulation(grid, float(frame_rate))
    if readout.kind == "mean":
        return mean(grid, (1, 2))
    if readout.kind == "meanstd":
        return mean_and_deviation(grid)
    return _banded(grid, readout).reshape(len(grid), -1)


def _banded(grid: Any, readout: Readout) -> Any:
    """A vector for each band, (B, F, D) float32."""
    if isinstance(grid, np.ndarray):
        return np.concatenate([_pool_bands(clip[None], readout) for clip in grid], dtype=np.float32)
    if grid.device.type == "cpu" and len(grid) > 1:
        import torch

        # One by one, intermediate results stay in the cache: a third of the time.
        return torch.cat([_pool_bands(clip[None], readout) for clip in grid])
    return _pool_bands(grid, readout)


def _pool_bands(grid: Any, readout: Readout) -> Any:
    kind, number = readout.kind, readout.number or 0.0
    if kind == "band":
        return band_mean(grid)
    if kind == "max":
        return band_max(grid)
    if kind == "gem":
        return generalised_mean(grid, number)
    weights = deviation_weights(grid, number, shared=kind == "rdp1")
    if kind == "rdpgem":
        return generalised_mean(grid, HYBRID_POWER, weights)
    return weighted_mean(grid, weights)
