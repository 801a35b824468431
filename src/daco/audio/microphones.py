"""Channel policies: what a network is given of a recording with several microphones.

In recordings of two microphones, channel 0 is the one near the machine and channel 1 the one far
from it, as in DCASE 2026; further channels are not used by the policies that need both.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.audio.subtraction import LSQ_WINDOW, SPECSUB_WINDOW, least_squares, spectral_subtraction
from daco.errors import AudioError, InputError
from daco.text import suggestion
from daco.validation import Float32s, is_whole

NEAR, FAR = 0, 1

_SUBTRACTIONS = {
    "lsq": (least_squares, LSQ_WINDOW),
    "specsub": (spectral_subtraction, SPECSUB_WINDOW),
}
_PUBLISHED_RATE = 16_000
_RESIDUALS = ("residual-c0.5", "residual-proj")
_NAMES = ("near", "far", "mix", *_SUBTRACTIONS, *_RESIDUALS)


def parse_channel(text: str | int) -> int | str:
    """Check a channel policy and return it in its standard spelling.

    ``0``, ``1``, ...
        That channel; ``near`` is 0 and ``far`` is 1.
    ``mix``
        The mean of all channels.
    ``lsq``, ``specsub``
        The near microphone without the far one's sound: see `daco.audio.subtraction`.
    ``residual-c0.5``, ``residual-proj``
        The embedding of the near microphone minus 0.5 times that of the far one, or minus its
        projection onto that one.

    >>> parse_channel("1"), parse_channel("near"), parse_channel("LSQ"), parse_channel("mix")
    (1, 0, 'lsq', 'mix')
    """
    word = str(text).strip().lower() if isinstance(text, str) or is_whole(text) else ""
    if word in ("near", "far"):
        return (NEAR, FAR)[word == "far"]
    if word in _NAMES:
        return word
    if re.fullmatch(r"[0-9]{1,4}", word):
        return int(word)
    raise InputError(
        f"The channel must be an index (0 is the first) or one of {', '.join(_NAMES)}. "
        f"Got {text!r} instead.{suggestion(word, _NAMES)}"
    )


def is_residual(policy: int | str) -> bool:
    """Whether a channel policy subtracts embeddings."""
    return policy in _RESIDUALS


def needs_both(policy: int | str) -> bool:
    """Whether a policy takes both microphones of a recording.

    >>> [needs_both(policy) for policy in (1, "mix", "lsq", "residual-c0.5")]
    [False, False, True, True]
    """
    return policy in _SUBTRACTIONS or is_residual(policy)


def require_channels(policy: int | str, channels: int) -> None:
    """Raise an `AudioError` where a recording has too few channels for the policy."""
    last = FAR if needs_both(policy) else policy
    if not isinstance(last, str) and last >= channels:
        raise AudioError(
            f"there is no channel {last}, which the channel policy {policy!r} needs: the recording "
            f"has {channels}, numbered from 0. Use channel 0, or give a recording that has it."
        )


def take_channels(samples: Float32s, policy: int | str) -> Float32s:
    """What a policy takes of samples of shape (n, channels): (n,), or (2, n), near and far."""
    if needs_both(policy):
        return samples[:, : FAR + 1].T.copy()
    if policy == "mix":
        channels = samples.shape[1]
        return samples @ np.full(channels, 1 / channels, np.float32)
    return samples[:, int(policy)].copy()  # a view would keep all channels alive


def apply_channel(waves: NDArray[Any], policy: int | str, sample_rate: int) -> NDArray[Any]:
    """Subtract the far microphone of one clip, (2, n), if the policy does; else return `waves`.

    A window of ``lsq`` lasts 64 ms and one of ``specsub`` 32 ms, as published at 16 kHz.

    >>> both = np.random.default_rng(0).normal(size=(2, 16000)).astype(np.float32)
    >>> apply_channel(both, "lsq", 16000).shape
    (16000,)
    """
    if policy not in _SUBTRACTIONS:
        return waves
    subtract, window = _SUBTRACTIONS[str(policy)]
    near, far = waves
    return subtract(near, far, 2 * round(window / 2 * sample_rate / _PUBLISHED_RATE))


def residual(near: Float32s, far: Float32s, policy: int | str) -> Float32s:
    """``near - c far`` for every row of two matrices of embeddings.

    ``residual-c0.5`` has c = 0.5. ``residual-proj`` has ``c = <near, far> / (<far, far> + 1e-12)``
    of each row, so that the rest is orthogonal to ``far``.

    >>> near, far = np.float32([[3, 4]]), np.float32([[2, 0]])
    >>> residual(near, far, "residual-c0.5"), residual(near, far, "residual-proj").round(6)
    (array([[2., 4.]], dtype=float32), array([[0., 4.]], dtype=float32))
    """
    a, b = near.astype(np.float64), far.astype(np.float64)
    if policy == "residual-c0.5":
        return (a - 0.5 * b).astype(np.float32)
    share = (a * b).sum(axis=1) / ((b * b).sum(axis=1) + 1e-12)
    return (a - share[:, None] * b).astype(np.float32)
