"""The interface of frozen networks: waveforms in, a grid of features or one vector per clip out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from typing import Any

import numpy as np

from daco.errors import AudioError, DacoError, InputError
from daco.text import name_list, suggestion
from daco.validation import Float32s

NAMES = ("logmel", "beats", "eat", "panns", "mn04")
"""Networks of daco itself."""

PRECISIONS = ("fp32", "tf32", "bf16")
"""float32; float32 with products that may round to TF32 on a GPU; bfloat16."""


class Backbone:
    """A frozen network; waveforms are (clips, samples) at ``sample_rate``, between -1 and 1.

    They may be NumPy or torch arrays; results are float32 NumPy arrays. A subclass sets the
    attributes without a default and defines `embed_many` and `grid`.

    Attributes
    ----------
    name : str
        The name it is loaded by, such as ``"beats"``.
    sample_rate, shortest : int
        Samples per second of its waveforms, and fewest samples of a clip.
    readouts, default_readout : tuple of str, str
        Names of its readouts, and the one of `embed` if none is named.
    resampler : {"soxr", "polyphase"}
        How recordings of other rates are converted to ``sample_rate``.
    precision, device : str
        Such as ``"fp32"`` and ``"cpu"``.
    has_weights : bool
        Whether it was trained; if not, its name and version describe it completely.
    weights_sha256, package : str or None
        Hash of the checkpoint file, and name and version of the package it comes from, if any.
    parameters : int or None
        Number of weights.
    """

    name: str
    sample_rate: int
    readouts: tuple[str, ...]
    default_readout: str
    resampler: str = "soxr"
    shortest: int = 1
    precision: str = "fp32"
    device: str = "cpu"
    has_weights: bool = True
    weights_sha256: str | None = None
    package: str | None = None
    parameters: int | None = None

    @property
    def networks(self) -> tuple[Backbone, ...]:
        """The networks that this one consists of: itself, unless it is several."""
        return (self,)

    @property
    def default_views(self) -> tuple[str, ...]:
        """Readouts that it has beside another network if none is named."""
        return (self.default_readout,)

    def resolve(self, readouts: Sequence[str]) -> tuple[str, ...]:
        """Return the readouts that these names stand for; no name stands for the default."""
        return tuple(readouts or (self.default_readout,))

    def shares(self, readouts: Sequence[str]) -> list[dict[str, str]]:
        """Return the readouts of each of `networks`, by the name that they have here."""
        return [{name: name for name in readouts}]

    def embed(self, waveforms: Any, readout: str | None = None) -> Float32s:
        """Embed clips into one vector each, (clips, D); `readout` is the default one if None."""
        name = self.default_readout if readout is None else readout
        return self.embed_many(waveforms, [name])[name]

    def embed_many(self, waveforms: Any, readouts: Sequence[str]) -> dict[str, Float32s]:
        """Compute several readouts in one forward pass, {readout: (clips, D)}."""
        raise NotImplementedError

    def grid(self, waveforms: Any) -> Float32s:
        """Compute the features before pooling, (clips, time, frequency, features)."""
        raise NotImplementedError

    def check_readout(self, name: str) -> None:
        """Raise an `InputError` unless there is such a readout."""
        if name not in self.readouts:
            raise InputError(
                f"{self.name} has no readout {name!r}. It has {', '.join(self.readouts)}."
                f"{suggestion(str(name), self.readouts)}"
            )

    def check_waveforms(self, shape: Sequence[int], dtype: Any) -> None:
        """Raise unless waveforms have the shape, type and length of this network."""
        if len(shape) != 2 or shape[0] == 0:
            raise InputError(
                "waveforms must be a 2-D array (clips, samples) with at least one clip. "
                f"Got shape {tuple(shape)} instead."
            )
        if "float" not in getattr(dtype, "name", str(dtype)):  # of NumPy, or of torch
            raise InputError(
                f"waveforms must be floats between -1 and 1. Got {dtype} instead: divide 16-bit "
                "samples by 32768."
            )
        if shape[1] < self.shortest:
            raise AudioError(
                f"{self.name} needs clips of at least {self.shortest} samples "
                f"({self.shortest / self.sample_rate:.3f} s at {self.sample_rate} Hz). Got "
                f"{shape[1]} samples: pad or leave out shorter clips."
            )

    def float_waveforms(self, waveforms: Any) -> Float32s:
        """Check waveforms and return them as finite float32 arrays of NumPy."""
        array = np.asarray(waveforms.detach().cpu() if hasattr(waveforms, "detach") else waveforms)
        self.check_waveforms(array.shape, array.dtype)
        finite = np.isfinite(array).all(axis=1)
        if not finite.all():
            first = int(np.argmin(finite))
            raise InputError(f"waveforms[{first}] contains NaN or infinity. Drop that clip.")
        return array.astype(np.float32, copy=False)


def embed_safely(net: Backbone, waveforms: Any, readouts: Sequence[str]) -> dict[str, Float32s]:
    """The vectors of `Backbone.embed_many`; a failure of another package is an `InputError`."""
    try:
        with redirect_stdout(sys.stderr) if net.package else nullcontext():
            return net.embed_many(waveforms, readouts)
    except Exception as error:
        if net.package is None or is_out_of_memory(error):
            raise
        raise plugin_error(net.name, net.package, error) from None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, of the computer or of a GPU of torch."""
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"


def plugin_error(name: str, package: str, error: BaseException) -> BaseException:
    """A sentence that names the package; errors of daco and of memory as they are."""
    if isinstance(error, DacoError | MemoryError):
        return error
    why = name_list([*str(error).strip().splitlines(), ""][:1])[:200]
    return InputError(
        f"The network {name!r} of {package} failed ({type(error).__name__}: {why}). Repair, update "
        "or uninstall that package; other networks work without it."
    )
