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
LSQ, SPECSUB, PROJECTION = "lsq", "specsub", "residual-proj"

_SUBTRACTIONS = {LSQ: (least_squares, LSQ_WINDOW), SPECSUB: (spectral_subtraction, SPECSUB_WINDOW)}
_PUBLISHED_RATE = 16_000
_INDEX = re.compile(r"[0-9]{1,4}")
_RESIDUAL = re.compile(r"residual-c([0-9]{1,2}(?:\.[0-9]{1,4})?|\.[0-9]{1,4})")
_WORDS = {"near": NEAR, "far": FAR}
_NAMES = ("near", "far", "mix", LSQ, SPECSUB, "residual-c0.5", PROJECTION)
_FAR_POWER_FLOOR = 1e-12


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

    >>> parse_channel("1"), parse_channel("near"), parse_channel("mix"), parse_channel("LSQ")
    (1, 0, 'mix', 'lsq')
    >>> parse_channel("residual-c.50")
    'residual-c0.5'
    """
    if is_whole(text):
        return int(text)
    word = text.strip().lower() if isinstance(text, str) else ""
    if word in _WORDS:
        return _WORDS[word]
    if word in _NAMES:
        return word
    if _INDEX.fullmatch(word):
        return int(word)
    if match := _RESIDUAL.fullmatch(word):
        return f"residual-c{float(match[1]):.4f}".rstrip("0").rstrip(".")
    raise InputError(
        f"The channel must be an index (0 is the first) or one of {', '.join(_NAMES)}. "
        f"Got {text!r} instead.{suggestion(word, _NAMES)}"
    )


def needs_both(policy: int | str) -> bool:
    """Whether a policy takes both microphones of a recording.

    >>> from daco.audio.microphones import needs_both
    >>> [needs_both(policy) for policy in (1, "mix", "lsq", "residual-c0.5")]
    [False, False, True, True]
    """
    return policy in _SUBTRACTIONS or is_residual(policy)


def require_channels(policy: int | str, channels: int) -> None:
    """Raise an `AudioError` where a recording has too few channels for the policy."""
    last = FAR if needs_both(policy) else policy
    if isinstance(last, str) or last < channels:
        return
    if channels == 1:
        wanted = f"far microphone for {policy!r}" if needs_both(policy) else f"channel {last}"
        raise AudioError(
            f"there is no {wanted}: the recording has one channel (0). Use channel 0, or give "
            "the recording of both microphones."
        )
    raise AudioError(
        f"there is no channel {last}: the recording has {channels}, numbered from 0. Choose "
        "another channel or 'mix'."
    )


def apply_channel(waves: NDArray[Any], policy: int | str, sample_rate: int) -> NDArray[Any]:
    """Apply a channel policy to one clip; return one waveform, or near and far ones.

    `waves` is the channel that the policy asks for, (n,), or near and far microphone, (2, n), if
    it `needs_both`. A window of ``lsq`` lasts 64 ms and one of ``specsub`` 32 ms, which at 16 kHz
    are the published 1024 and 512 samples.

    >>> both = np.random.default_rng(0).normal(size=(2, 16000)).astype(np.float32)
    >>> apply_channel(both, "lsq", 16000).shape
    (16000,)
    """
    if policy not in _SUBTRACTIONS:
        return waves
    subtract, window = _SUBTRACTIONS[str(policy)]
    near, far = waves
    return subtract(near, far, 2 * round(window / 2 * sample_rate / _PUBLISHED_RATE))


def residual(near: Float32s, far: Float32s, policy: str | int) -> Float32s:
    """``near - c far`` for every row of two matrices of embeddings.

    ``residual-c0.5`` has c = 0.5. ``residual-proj`` has ``c = <near, far> / (<far, far> + 1e-12)``
    of each row, all bands together, so that the rest is orthogonal to ``far``.

    >>> near, far = np.float32([[3, 4]]), np.float32([[2, 0]])
    >>> residual(near, far, "residual-c0.5"), residual(near, far, "residual-proj").round(6)
    (array([[2., 4.]], dtype=float32), array([[0., 4.]], dtype=float32))
    """
    a, b = near.astype(np.float64), far.astype(np.float64)
    if policy == PROJECTION:
        share = (a * b).sum(axis=1) / ((b * b).sum(axis=1) + _FAR_POWER_FLOOR)
        return (a - share[:, None] * b).astype(np.float32)
    match = _RESIDUAL.fullmatch(str(policy))
    if match is None:
        raise InputError(f"A residual is 'residual-c0.5' or 'residual-proj'. Got {policy!r}.")
    return (a - float(match[1]) * b).astype(np.float32)


def is_residual(policy: int | str) -> bool:
    """Whether a channel policy subtracts embeddings."""
    return isinstance(policy, str) and policy.startswith("residual-")
