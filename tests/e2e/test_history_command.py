"""``daco history``: copies of a plant's database, and a history that is too long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from command_line import refused, run, said
from stores import new_clip, opened


def test_a_history_is_saved_restored_and_shortened(tmp_path):
    (tmp_path / "daco.toml").write_text('[machine.press]\nkeep = "10 days"\n')
    assert "There is no database" in str(refused("history", tmp_path))
    database, copy = f"sqlite:///{tmp_path}/daco.db", tmp_path / "copy.db"
    start = datetime.now(UTC) - timedelta(days=40)
    with opened(database, receivers=()) as store:
        store.add_many([new_clip(at=start + timedelta(minutes=row)) for row in range(1200)])
    assert "press 1,200 0 0" in said("history", tmp_path)
    run("history", tmp_path, "--backup", copy)
    assert "Deleted 1,200 recordings." in said("history", tmp_path, "--prune")
    with opened(database) as store:
        assert store.clips("press") == []
    run("history", tmp_path, "--restore", copy)
    with opened(database) as store:
        assert len(store.clips("press", 2000)) == 1200
