"""Two minutes of ``benchmarks/soak.py``: load on a plant while its parts are killed at random."""

from __future__ import annotations

import pytest

from benchmarks.soak import soak


@pytest.mark.timeout(400)
def test_kills_lose_nothing_double_nothing_and_miss_no_alarm():
    report = soak(2.0, say=lambda _: None, kill_every=9.0)
    figures = report.figures()
    assert figures["clips_answered"] > 300, figures
    assert sum(report.kills.values()) >= 5, figures
    assert len(report.kills) == 4, figures  # of every part
    assert figures["alarms"] > 5, figures
    for name in ("lost", "doubled", "unexpected", "wrong_alarms", "alarms_without_message"):
        assert figures[name] == 0, figures
    assert figures["messages_left"] == 0, figures
    # Rows of a few minutes and caches that fill; a leak of a clip's sound would be 300 MB.
    assert figures["memory_last_third_mb"] < figures["memory_first_third_mb"] + 100, figures
    assert figures["p50_s"] < 0.3, figures
