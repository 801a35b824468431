"""An early warning of a slow rise, kept up to date clip by clip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

from daco.monitoring.evidence import quantiles

BLOCK = 50  # clips whose mean is one value of the trend
BASELINE = 20  # blocks that are the machine's own usual level before the trend is judged
TREND_ALLOWANCE = 1.0  # standard deviations of blocks
TREND_LIMIT = 12.0  # the sum of what exceeds the allowance that opens a trend alarm
_LARGEST = 4.0  # deviations that one block adds at most: a single bad hour is no trend


@dataclass(frozen=True)
class Trend:
    """State of the early warning, stored as JSON; `advance_trend` adds a clip.

    The mean normal quantile of every 50 clips is compared with the mean and the spread of those
    before. What rises above adds up, as in a Page-Hinkley test.
    """

    clips: int = 0  #: clips of the block that is not complete
    total: float = 0.0
    blocks: int = 0  #: blocks in the baseline
    mean: float = 0.0
    squares: float = 0.0  #: squared deviations from the mean
    recent: Sequence[float] = ()  #: blocks that are too new for the baseline
    evidence: float = 0.0
    rising: int = 0  #: clips since the evidence was zero

    @property
    def is_rising(self) -> bool:
        """Whether the rise is certain enough for an alarm."""
        return self.evidence >= TREND_LIMIT

    @property
    def is_over(self) -> bool:
        """Whether a rise that was certain has ended: half of its evidence is gone."""
        return self.evidence < TREND_LIMIT / 2


def advance_trend(trend: Trend, p_value: float) -> Trend:
    """Return the trend after one more clip.

    After an alarm that a person has answered, or after a calibration, start with ``Trend()``.
    """
    total = trend.total + float(quantiles(p_value))
    if trend.clips + 1 < BLOCK:
        return replace(trend, clips=trend.clips + 1, total=total)
    return advance_block(replace(trend, clips=0, total=0.0), total / BLOCK)


def advance_block(trend: Trend, block: float) -> Trend:
    """Return the trend after a block of clips with this mean normal quantile."""
    if trend.blocks < BASELINE:
        return _with_baseline(trend, block)
    # The spread of few blocks is uncertain: taken larger, the less there are.
    spread = sqrt(trend.squares / (trend.blocks - 1)) * (1 + 2 / sqrt(trend.blocks))
    deviation = (block - trend.mean) / max(spread, 0.5 / sqrt(BLOCK))
    evidence = trend.evidence + min(deviation, _LARGEST) - TREND_ALLOWANCE
    trend = replace(
        trend,
        recent=(*trend.recent, block),
        evidence=max(0.0, evidence),
        rising=trend.rising + BLOCK if evidence > 0 else 0,
    )
    if len(trend.recent) > BASELINE:
        oldest, *newer = trend.recent
        trend = _with_baseline(replace(trend, recent=newer), oldest)
    return trend


def _with_baseline(trend: Trend, block: float) -> Trend:
    """The trend with one more block in the baseline (Welford's recurrence)."""
    blocks = trend.blocks + 1
    mean = trend.mean + (block - trend.mean) / blocks
    squares = trend.squares + (block - trend.mean) * (block - mean)
    return replace(trend, blocks=blocks, mean=mean, squares=squares)
