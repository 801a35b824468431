"""Backbones: frozen networks that turn waveforms into vectors.

Read `protocol` first: what every network offers. `logmel` needs no weights, and `classical` has its
views of the waveform; `network` is the base of those with weights: `beats` and `eat`, which share
`transformer`, `panns` and `mobilenet`; `several` makes one of several. `readout` and `pooling` turn
frames into one vector, and `weights` finds and checks checkpoints. `installed` has networks of
other packages. ``load`` returns a network by its name, and torch is imported only if that network
needs it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from daco.backbones.protocol import NAMES, PRECISIONS, Backbone
from daco.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from daco.backbones.network import Network

__all__ = ["NAMES", "PRECISIONS", "Backbone", "load"]


def load(
    name: str,
    weights: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    device: str = "cpu",
    precision: str = "fp32",
    sample_rate: int | None = None,
) -> Backbone:
    """Load a frozen network that embeds waveforms.

    Parameters
    ----------
    name : str
        ``"logmel"``, ``"beats"``, ``"eat"``, ``"panns"``, ``"mn04"``, or a network of another
        package (:mod:`daco.backbones.installed`). ``logmel`` has no weights and needs neither torch
        nor a download. Several, such as ``"mn04+logmel"``, are
        :class:`daco.backbones.several.Networks`.
    weights : path, state dict or None
        A checkpoint file, a folder that has it, or its tensors; for several networks with weights,
        the folder that has them all. None looks in ``$DACO_WEIGHTS_DIR``, or in the folder of
        ``daco download weights``.
    device : str
        A torch device, such as ``"cpu"`` or ``"cuda"``. ``logmel`` always computes on the CPU.
    precision : {"fp32", "tf32", "bf16"}
        Published scores are fp32. ``logmel`` always computes in fp32.
    sample_rate : int, optional
        The sample rate of ``logmel``, 16000 by default. A trained network has a fixed rate.

    Returns
    -------
    Backbone

    Raises
    ------
    WeightsError
        The checkpoint is missing, has a wrong hash, or does not fit the network.
    MissingExtraError
        The network needs the extra ``torch``.

    Examples
    --------
    >>> import numpy as np
    >>> net = load("logmel")
    >>> net.sample_rate, net.embed(np.zeros((1, 160_000), np.float32)).shape
    (16000, (1, 112))
    """
    if "+" in str(name):
        from daco.backbones.several import Networks

        parts, own = name.split("+"), {"logmel": None}
        if weights is not None and len(parts) - parts.count("logmel") > 1:
            _require_folder(weights, name)
            own |= {each: None for each in parts if each not in NAMES}  # they have files of theirs
        return Networks([load(n, own.get(n, weights), device, precision) for n in parts])
    if precision not in PRECISIONS:
        raise InputError(
            f"The 'precision' parameter must be one of {', '.join(PRECISIONS)}. "
            f"Got {precision!r} instead."
        )
    if name not in NAMES:
        from daco.backbones.installed import load_installed

        return load_installed(name, weights, device, precision)
    if name == "logmel":
        from daco.backbones.logmel import LogMel

        if weights is not None:
            raise InputError("The backbone 'logmel' has no weights. Leave weights out.")
        return LogMel(sample_rate or 16_000)
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            f'The backbone {name!r} needs PyTorch: pip install "daco-asd[torch]". '
            "The backbone 'logmel' works without it."
        ) from None
    from daco.backbones.weights import load_weights

    module = importlib.import_module(f"daco.backbones.{'mobilenet' if name == 'mn04' else name}")
    checkpoint = load_weights(name, weights, expected=module.expected_shapes(), clean=module.clean)
    net: Network = module.build(checkpoint.state_dict, device, precision)
    net.weights_sha256 = checkpoint.sha256
    return net


def _require_folder(weights: Any, name: str) -> None:
    if isinstance(weights, Mapping) or not os.path.isdir(weights):
        raise InputError(
            f"{name} has several checkpoints. Give the folder that holds them as weights."
        )
