"""Alarms when evidence adds up, and of a slow rise: in the store and in the engine."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from plants import faulty, normal, running, upload, write_plant
from stores import KIM, START, new_clip, opened, rows

from daco.monitoring.trends import BLOCK

MINUTE = timedelta(minutes=1)


def clips(p_values, begin=0, limit=None):
    """Clips a minute apart with these p-values; one at most 0.1 is anomalous."""
    return [
        new_clip(
            bool(p <= 0.1),
            at=START + (begin + row) * MINUTE,
            evidence_limit=limit,
            verdict={"p_value": float(p)},
        )
        for row, p in enumerate(p_values)
    ]


def test_a_slow_fault_alarms_across_restarts_and_clears_when_it_is_gone(url):
    found = []
    with opened(url, "3 of 5") as store:
        outcomes = store.add_many([new_clip(machine="fan", verdict={"p_value": 0.15})] * 40)
        assert not any(each.opened for each in outcomes)
    for row in range(20):  # another process each time
        with opened(url, "1 a month") as store:
            (outcome,) = store.add_many(clips([0.15], row, limit=6.0))
            found += outcome.opened
    with opened(url, "1 a month") as store:
        assert len(found) == 1
        alarm = store.alarm(found[0])
        assert (alarm.kind, alarm.rule, alarm.n_clips) == ("fault", "1 a month", 20)
        assert len(alarm.clip_ids) == 12  # of 0.54 each
        (_, press) = store.machines_summary()
        assert press.evidence == pytest.approx(6.0)
        outcomes = store.add_many(clips([0.6] * 20, 20, limit=6.0))
        assert [each.cleared for each in outcomes if each.cleared] == [(found[0],)]
        assert store.machines_summary()[1].evidence == 0
        store.add_many(clips([0.01] * 4, 40, limit=6.0))
        (again,) = store.alarms("press", open_only=True)
        store.people.clear(again.id, KIM, "belt changed")
        assert store.machines_summary()[1].evidence == 0


def test_without_a_limit_the_rule_counts_3_of_5_and_its_alarm_lasts(tmp_path):
    with opened(f"sqlite:///{tmp_path}/daco.db", "1 a month") as store:
        outcomes = store.add_many(clips([0.05] * 3))
        assert outcomes[-1].opened
        store.add_many(clips([0.5] * 3, limit=6.0))
        assert len(store.alarms(open_only=True)) == 1
        store.add_many(clips([0.5] * 10, limit=6.0))
        assert store.alarms(open_only=True) == []


def test_a_slow_rise_below_the_limit_opens_one_trend_alarm_until_it_ends(tmp_path):
    rng = np.random.default_rng(1)

    def healthy(count):
        return rng.uniform(0.25, 1.0, count)

    url = f"sqlite:///{tmp_path}/daco.db"
    with opened(url, receivers=("mail",)) as store:
        outcomes = store.add_many(clips(healthy(30 * BLOCK)))
        rising = healthy(20 * BLOCK) * np.linspace(1, 0.45, 20 * BLOCK)
        outcomes += store.add_many(clips(rising, 30 * BLOCK))
        numbers = [each.opened for each in outcomes if each.opened]
        assert len(numbers) == 1
        alarm = store.alarm(numbers[0][0])
        assert (alarm.kind, alarm.state, alarm.clip_ids) == ("trend", "active", ())
        assert alarm.detail.startswith("It sounds more and more unusual since ")
        assert "March 2026" in alarm.detail
    with opened(url) as store:
        outcomes = store.add_many(clips(healthy(20 * BLOCK), 50 * BLOCK))
        assert [each.cleared for each in outcomes if each.cleared] == [(alarm.id,)]
        messages = [row for row in rows(url, "daco_outbox") if "alarm" in row["kind"]]
        assert [row["receiver"] for row in messages][:1] == ["mail"]


def test_a_fault_is_no_trend_and_a_new_model_starts_again(tmp_path):
    with opened(f"sqlite:///{tmp_path}/daco.db", "2 of 3", receivers=()) as store:
        rng = np.random.default_rng(2)
        store.add_many(clips(rng.uniform(0.2, 1.0, 25 * BLOCK)))
        store.add_many(clips([0.001] * 10 * BLOCK, 25 * BLOCK))
        assert [each.kind for each in store.alarms()] == ["fault"]
        other = {"p_value": 0.5, "model_sha256": "cd" * 32}
        store.add_many([new_clip(verdict=other)] * 4)
        (machine,) = rows(f"sqlite:///{tmp_path}/daco.db", "daco_machines")
        assert '"cd' in machine["evidence"]
        assert store.alarms(open_only=True) == []


def test_the_limit_comes_from_the_model_and_its_recordings(tmp_path):
    stated = {"alarm": "1 a month"}
    file = write_plant(tmp_path, {"press": stated | {"expect_every": "10 min"}, "fan": stated})
    with running(file, start=False) as plant:
        limits = plant.limits
        assert limits.recordings_a_day("press") == 144
        limit = limits.of("press")
        assert 4 < limit < 30
        assert limits.of("fan") is None
        assert "10 recordings in a week" in limits.sentence("fan")
        assert any(upload(plant, faulty(), "press").opened for _ in range(30))
        (press, _) = plant.status()
        assert press.state == "fault"
        (summary,) = plant.store.machines_summary()
        assert summary.evidence >= limit
        for row in range(10):
            upload(plant, normal(row), "fan")
        assert limits.of("fan") is not None
        assert "recordings a day" in limits.sentence("fan")
