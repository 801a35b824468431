"""Cut sound that never ends into windows, and tell when each was recorded.

No window spans a gap. The clock of a sound card and that of the computer differ: times follow the
computer, and the difference is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

TOLERANCE = 1.0
"""Seconds by which sound may be late or early before its times are corrected at once."""

_PATIENCE = 2.0  # seconds: late sound that arrives after all, in a burst, is no gap
_SETTLING = 60.0  # seconds in which times follow a difference within the tolerance
_DRIFTS_FROM = 30.0


class Window(NamedTuple):
    """A piece of sound: 16-bit samples and when it began, in seconds since 1970."""

    samples: bytes
    start: float


@dataclass
class Timeline:
    """The windows of a stream of 16-bit samples, and what was lost.

    `window` and `hop` are seconds of a window, and from the start of one to that of the next.

    Examples
    --------
    >>> timeline = Timeline(rate=1000, channels=1, window=2.0, hop=2.0)
    >>> second = bytes(2000)
    >>> [len(timeline.feed(second, now=100.0 + each)) for each in range(1, 5)]
    [0, 1, 0, 1]
    >>> len(timeline.feed(second, now=130.0)), timeline.gaps  # a gap, if no burst follows
    (0, 0)
    >>> len(timeline.feed(second, now=133.0)), timeline.gaps, round(timeline.lost_seconds)
    (0, 1, 27)
    """

    rate: int
    channels: int
    window: float
    hop: float
    gapless: bool = False  #: late sound was waiting, not lost
    gaps: int = 0
    lost_seconds: float = 0.0
    corrected: float = 0.0  #: seconds by which slow drift has moved the times
    heard: float = 0.0  #: seconds since the last gap
    _anchor: float | None = None  # when frame 0 was recorded
    _count: int = 0  # frames since the anchor
    _buffer: bytearray = field(default_factory=bytearray, repr=False)
    _late_since: float | None = None
    _not_before: float = 0.0  # times of windows never go back
    _skip: int = 0  # bytes between this window and the next, where the hop is longer

    def feed(self, data: bytes, now: float, lost: int = 0) -> list[Window]:
        """The windows that are complete now; `lost` frames before `data` were dropped."""
        if lost:
            self._restart(lost / self.rate)
            self._count += lost
        self._buffer += data[self._skip :]
        self._skip = max(0, self._skip - len(data))
        self._count += len(data) // self._frame
        end = self._count / self.rate
        if self._anchor is None:
            self._anchor = now - end
        late = now - (self._anchor + end)
        self.heard += len(data) / self._frame / self.rate
        if late <= TOLERANCE:
            self._late_since = None
        elif self.gapless:
            self._anchor += late
            late = 0.0
        elif self._late_since is None:
            self._late_since = now
        elif now - self._late_since > _PATIENCE:
            self._restart(late)
            self._anchor += late
            self._late_since, late = None, 0.0
        if late < -TOLERANCE:  # a burst after a pause that was taken for a gap, or a fast clock
            self._anchor += late
            self.corrected += late
        elif self._late_since is None:
            step = late * min(1.0, len(data) / self._frame / self.rate / _SETTLING)
            self._anchor += step
            self.corrected += step
        return [] if self._late_since is not None else self._cut()

    @property
    def drift(self) -> float | None:
        """Share by which the source's clock is slow (above 0) or fast; None at the beginning."""
        return self.corrected / self.heard if self.heard >= _DRIFTS_FROM else None

    @property
    def _frame(self) -> int:
        return 2 * self.channels

    def _restart(self, lost: float) -> None:
        self.gaps += 1
        self.lost_seconds += lost
        self.heard = self.corrected = 0.0
        self._buffer.clear()
        self._skip = 0

    def _cut(self) -> list[Window]:
        length = max(1, round(self.window * self.rate)) * self._frame
        step = max(1, round(self.hop * self.rate)) * self._frame
        windows = []
        while len(self._buffer) >= length and self._anchor is not None:
            first = self._count - len(self._buffer) // self._frame
            # Sound that is read from a file is early, but its pieces follow each other.
            start = max(self._anchor + first / self.rate, self._not_before)
            self._not_before = start + self.hop / 2
            windows.append(Window(bytes(self._buffer[:length]), start))
            self._skip = max(0, step - len(self._buffer))
            del self._buffer[:step]
        return windows
