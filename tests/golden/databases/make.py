"""Write the golden databases: two machines, an alarm, answers, notes and messages that wait.

``python tests/golden/databases/make.py`` is run once per version of the schema, with PostgreSQL
installed. What comes out is committed, and every later version of daco that has the same schema
must read it: `tests/conformance/test_golden_databases.py`.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from datetime import timedelta
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "helpers"))

import numpy as np  # noqa: E402
import postgres  # noqa: E402
from sqlalchemy.engine import make_url  # noqa: E402
from stores import KIM, START, new_clip, opened, verdict  # noqa: E402

from daco.detector.decision import ReferenceScores  # noqa: E402
from daco.monitoring.adaptation import Calibration  # noqa: E402
from daco.monitoring.store import NewClip, Store  # noqa: E402


def fill(store: Store) -> None:
    """Everything that a plant may have in its database."""
    minute = timedelta(minutes=1)
    tone = [{"kind": "tone", "text": "A tone at 5 kHz."}]
    for row in range(6):
        known = {
            "source_key": f"in/{row}.wav",
            "stamp": f"{row}:1:1",
            "audio_sha256": f"{row:064x}",
        }
        known |= {"at": START + row * minute, "recorded_at": START + (row - 60) * minute}
        own = {"name": f"{row}.wav", "views": {"mod": 1.5}, "basis": "of 60 normals"}
        found = tone if row == 3 else None
        store.add(new_clip(row in (2, 3, 4), verdict=own, findings=found, **known))
    store.people.answer_alarm(1, "fault", KIM, "bearing 2")
    store.people.add_note(
        "press", "bearing changed: Lager getauscht \u2013 100 \u00b5m", KIM, at=START
    )
    store.people.set_out_of_service("fan", True, KIM, "overhaul")
    store.add(new_clip(True, "fan", START, verdict={"state": "out of range", "seconds": None}))
    store.raise_alarm("press", "no recordings", "recordings", "Nothing came.")
    store.raise_alarm(None, "daco", "disk", "The disk is full.")
    store.reject("press", "in/x.wav", name="x.wav", stamp="9:9:9", reason="It is empty.")
    store.people.declare_healthy("press", 20, KIM, model_sha256="ab" * 32, rate=0.1)
    reference = ReferenceScores(np.arange(1.0, 101), np.zeros(100, int), ("source",))
    learned = Calibration(reference, 0.1)
    healthy = verdict(domain_weights={"source": 1.0})
    store.add(NewClip(healthy, "press", START + 10 * minute, calibration=learned))
    refused = store.outbox.take("mail", 60)
    assert refused is not None
    store.outbox.refuse(refused, "answered 410")


def main() -> None:
    """Write both files."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "daco.db"
        with opened(f"sqlite:///{path}") as store:
            fill(store)
        with closing(sqlite3.connect(path)) as connection:
            (HERE / "sqlite.sql").write_text("\n".join(connection.iterdump()) + "\n")
    url = postgres.new_database()
    with opened(url) as store:
        fill(store)
    parsed = make_url(url)
    command = ["pg_dump", "--inserts", "--no-owner", "--no-privileges"]
    command += ["-h", str(parsed.query["host"]), "-U", str(parsed.username), str(parsed.database)]
    dump = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # Without comments, and settings that other versions of the server may not know.
    left_out = ("--", "\\", "SET ", "SELECT pg_catalog.set_config")
    kept = [line for line in dump.splitlines() if line and not line.startswith(left_out)]
    (HERE / "postgresql.sql").write_text("\n".join(kept) + "\n")


if __name__ == "__main__":
    main()
