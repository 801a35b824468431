"""``daco history``: copies of a plant's database, and a history that is too long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from command_line import refused, run, said
from stores import new_clip, opened
from watched import save_model


@pytest.fixture
def plant(tmp_path):
    save_model(tmp_path / "press.daco")
    (tmp_path / "daco.toml").write_text('[machine.press]\nmodel = "press.daco"\nkeep = "10 days"\n')
    return tmp_path


def test_a_history_is_saved_restored_and_shortened(plant):
    assert "There is no database" in str(refused("history", plant))
    start = datetime.now(UTC) - timedelta(days=40)
    with opened(f"sqlite:///{plant}/daco.db", receivers=()) as store:
        store.add_many([new_clip(at=start + timedelta(minutes=row)) for row in range(1200)])
    assert "1,200" in said("history", plant)
    run("history", plant, "--backup", plant / "copy.db")
    assert "exists" in str(refused("history", plant, "--backup", plant / "copy.db"))
    assert "Deleted 1200 recordings." in said("history", plant, "--prune").replace(",", "")
    with opened(f"sqlite:///{plant}/daco.db") as store:
        assert store.clips("press") == []
    run("history", plant, "--restore", plant / "copy.db")
    with opened(f"sqlite:///{plant}/daco.db") as store:
        assert len(store.clips("press", 2000)) == 1200
    assert "not a backup" in str(refused("history", plant, "--restore", plant / "press.daco"))
