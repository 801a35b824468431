"""What every frozen network offers: waveforms in, a grid of features or one vector per clip out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

PRECISIONS = ("fp32", "tf32", "bf16")
"""float32; float32 with products that may round to TF32 on a GPU; bfloat16."""


class Backbone(Protocol):
    """A frozen network. Waveforms are (clips, samples) at ``sample_rate``, within -1 and 1.

    They may be NumPy or torch; what comes back is always float32 NumPy.
    """

    @property
    def name(self) -> str:
        """The name it is loaded by, such as ``"beats"``."""

    @property
    def sample_rate(self) -> int:
        """Samples per second that the network was trained on."""

    @property
    def resampler(self) -> str:
        """How recordings of other rates are brought to `sample_rate`: see `daco.audio.decode`."""

    @property
    def readouts(self) -> tuple[str, ...]:
        """Names of the vectors it can make of a clip.

        A network may accept more names than it can list, as those of this package do; it then
        has a method ``check_readout(name)``, and where some vectors keep frequency bands apart,
        ``bands(name)``. Ask by `daco.backbones.readout.require_readout` and
        `daco.backbones.readout.bands_of`.
        """

    @property
    def default_readout(self) -> str:
        """The readout that ``embed`` gives when none is named."""

    @property
    def weights_sha256(self) -> str | None:
        """Hash of the checkpoint file; None where there is no file."""

    @property
    def precision(self) -> str:
        """``"fp32"``, ``"tf32"`` or ``"bf16"``."""

    @property
    def device(self) -> str:
        """Where it computes, such as ``"cpu"`` or ``"cuda"``."""

    def embed(self, waveforms: Any, readout: str | None = None) -> NDArray[np.float32]:
        """One vector per clip, (clips, dim)."""

    def embed_many(self, waveforms: Any, readouts: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Several readouts of one forward pass."""

    def grid(self, waveforms: Any) -> NDArray[np.float32]:
        """Features before any pooling, (clips, time, frequency, dim)."""
