"""Pictures of the monitoring page, light and dark, from the service that the manual starts.

    python docs/monitoring_picture.py

Needs a Chromium. The pictures go to ``docs/_static/monitoring.png`` and ``monitoring-dark.png``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from typing import Literal

from notebook import DOCS, read_blocks, run_blocks
from PIL import Image
from playwright.sync_api import sync_playwright
from sqlalchemy import select, update

from daco.monitoring.store import Store
from daco.monitoring.store.schema import clips

PAGE = DOCS / "guides" / "operating.md"
PICTURES: dict[Literal["light", "dark"], str] = {
    "light": "monitoring.png",
    "dark": "monitoring-dark.png",
}
DATABASE = "sqlite:///daco.db"


def photograph(address: str) -> None:
    """One machine with an open alarm and its last clip, in both colour schemes."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for scheme, name in PICTURES.items():
            picture = DOCS / "_static" / name
            page = browser.new_page(viewport={"width": 900, "height": 1720}, color_scheme=scheme)
            page.goto(address)
            page.wait_for_load_state("networkidle")
            page.wait_for_timeout(1000)
            page.screenshot(path=picture)
            # A palette is enough, and a third of the bytes.
            Image.open(picture).convert("RGB").quantize(224).save(picture, optimize=True)
        browser.close()


def spread(url: str) -> int:
    """Set ten minutes between clips, as in a plant, and return the last anomalous clip."""
    with Store.open(url) as store, store.database.writing() as connection:
        ids = list(connection.scalars(select(clips.c.id).order_by(clips.c.id)))
        for place, number in enumerate(reversed(ids)):
            when = datetime.now(UTC) - timedelta(minutes=10 * place)
            connection.execute(
                update(clips).where(clips.c.id == number).values(time=when, received_at=when)
            )
        anomalous = select(clips.c.id).where(clips.c.anomalous).order_by(clips.c.id.desc())
        return int(connection.scalars(anomalous.limit(1)).one())


def main() -> None:
    """Run the page as far as the service, and take the pictures."""
    blocks = read_blocks(PAGE.read_text(encoding="utf-8"))
    last = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for block, _ in zip(blocks, run_blocks(blocks), strict=True):
            if "daco watch" in block.code:
                last = spread(DATABASE)
            if "daco serve --address" in block.code:
                photograph(f"http://127.0.0.1:{os.environ['PORT']}/#/machines/motor/clips/{last}")
                return


if __name__ == "__main__":
    main()
