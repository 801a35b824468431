"""Backbones: frozen networks that turn waveforms into vectors.

Read `protocol` first: what every network offers. `logmel` and `classical` need no weights and no
torch; `beats`, `eat`, `panns` and `mobilenet` are a `network` with weights; `several` is more than
one; `wrapper` and `installed` take networks of others. `readout` turns a grid into one vector.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from daco.backbones.protocol import NAMES, PRECISIONS, Backbone
from daco.errors import InputError, MissingExtraError, warn

if TYPE_CHECKING:
    from daco.backbones.network import Network

__all__ = ["NAMES", "PRECISIONS", "Backbone", "load"]


def load(
    network: Any,
    weights: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    device: str | None = None,
    precision: str = "fp32",
    sample_rate: int | None = None,
) -> Backbone:
    """Load a frozen network that embeds waveforms, or make one of a network of yours.

    Parameters
    ----------
    network : str or object
        ``"logmel"``, ``"beats"``, ``"eat"``, ``"panns"``, ``"mn04"``, a network of another package
        (:mod:`daco.backbones.installed`), or several, such as ``"mn04+logmel"``
        (:class:`daco.backbones.several.Networks`). Or a torch module or any other object
        (:func:`daco.backbones.wrapper.wrap`).
    weights : path, state dict or None
        A checkpoint file, a folder that has it, or its tensors; for several networks with weights,
        the folder that has them all. None looks in ``$DACO_WEIGHTS_DIR``, or in the folder of
        ``daco download weights``.
    device : str, optional
        A torch device, such as ``"cpu"`` (the default) or ``"cuda"``. ``logmel`` always computes on
        the CPU; a module of yours stays where it is by default.
    precision : {"fp32", "tf32", "bf16"}
        Published scores are fp32. bf16 is faster on GPUs and on CPUs with instructions for it.
        ``logmel`` always computes in fp32.
    sample_rate : int, optional
        The sample rate of ``logmel`` (16000 by default), or of an object that has none. A trained
        network of daco has a fixed rate.

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
    if precision not in PRECISIONS:
        raise InputError(
            f"The 'precision' parameter must be one of {', '.join(PRECISIONS)}. "
            f"Got {precision!r} instead."
        )
    if not isinstance(network, str):
        from daco.backbones.wrapper import wrap

        if weights is not None or precision != "fp32":
            raise InputError("An object has its own weights and precision. Leave them out.")
        return wrap(network, sample_rate=sample_rate, device=device)
    if "+" in network:
        return _load_several(network.split("+"), weights, device, precision)
    if network == "logmel":
        from daco.backbones.logmel import LogMel

        if weights is not None:
            raise InputError("The backbone 'logmel' has no weights. Leave weights out.")
        return LogMel(sample_rate or 16_000)
    if network not in NAMES:
        from daco.backbones.installed import load_installed

        return load_installed(network, weights, device, precision)
    return _load_trained(network, weights, device or "cpu", precision)


def _load_several(names: list[str], weights: Any, device: str | None, precision: str) -> Backbone:
    from daco.backbones.several import Networks

    trained = [name for name in names if name != "logmel"]
    folder = isinstance(weights, str | os.PathLike) and os.path.isdir(weights)
    if weights is not None and len(trained) > 1 and not folder:
        raise InputError(
            f"{'+'.join(names)} has several checkpoints. Give the folder that holds them as "
            "weights."
        )
    # The folder of several networks has no files of other packages, which have their own.
    own = [name for name in trained if len(trained) == 1 or name in NAMES]
    return Networks([load(n, weights if n in own else None, device, precision) for n in names])


def _load_trained(name: str, weights: Any, device: str, precision: str) -> Backbone:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            f'The backbone {name!r} needs PyTorch: pip install "daco-asd[torch]". '
            "The backbone 'logmel' works without it."
        ) from None
    from daco.backbones.network import cpu_multiplies_bf16
    from daco.backbones.weights import load_weights

    if precision == "bf16" and device == "cpu" and cpu_multiplies_bf16() is False:
        warn(
            "This CPU has no instructions for bfloat16 (avx512_bf16 or amx_bf16), so that "
            "precision bf16 is not faster here than the more exact fp32."
        )
    module = importlib.import_module(f"daco.backbones.{'mobilenet' if name == 'mn04' else name}")
    shapes, clean = module.expected_shapes(), module.clean
    tensors, sha256 = load_weights(name, weights, expected=shapes, clean=clean)
    net: Network = module.build(tensors, device, precision)
    net.weights_sha256 = sha256
    return net
