"""``benchmarks/soak.py`` in short: load on a plant while each of its parts is killed at random."""

from __future__ import annotations

from benchmarks.soak import FAILURES, PARTS, soak


def test_kills_lose_nothing_double_nothing_and_miss_no_alarm():
    report = soak(0.25, say=lambda _: None, kill_every=2.0, machines=6)
    figures = report.figures()
    assert report.kills.keys() == set(PARTS), figures
    assert figures["clips_answered"] > 30, figures
    assert figures["alarms"] > 0, figures
    assert {name: figures[name] for name in FAILURES} == dict.fromkeys(FAILURES, 0)
