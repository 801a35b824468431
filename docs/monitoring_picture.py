"""The picture of the monitoring page, from the very service that the page about it starts.

    python docs/monitoring_picture.py

Needs a Chromium. The picture goes to ``docs/_static/monitoring.png``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from datetime import UTC, datetime, timedelta

from notebook import DOCS, read_blocks, run_blocks
from PIL import Image
from playwright.sync_api import sync_playwright
from sqlalchemy import select, update

from daco.monitoring.store import Store
from daco.monitoring.store.schema import clips

PAGE = DOCS / "old/from-ten-recordings-to-an-alarm.md"
PICTURE = DOCS / "_static" / "monitoring.png"


def photograph(address: str) -> None:
    """One machine with an open alarm, as the page shows it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 900, "height": 1190}, color_scheme="light")
        page.goto(address)
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(1000)
        page.screenshot(path=PICTURE)
        browser.close()
    # A palette is enough, and a third of the bytes.
    Image.open(PICTURE).convert("RGB").quantize(224).save(PICTURE, optimize=True)


def spread(url: str) -> None:
    """Ten minutes from clip to clip, as in a plant: on the page they all arrive at once."""
    with Store.open(url) as store, store.database.writing() as connection:
        ids = list(connection.scalars(select(clips.c.id).order_by(clips.c.id)))
        for place, number in enumerate(reversed(ids)):
            when = datetime.now(UTC) - timedelta(minutes=10 * place)
            connection.execute(update(clips).where(clips.c.id == number).values(received_at=when))


def main() -> None:
    """Run the page as far as the service, and look at it."""
    blocks = read_blocks(PAGE.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for block, _ in zip(blocks, run_blocks(blocks), strict=True):
            if "daco watch" in block.code:
                spread("sqlite:///daco.db")
            if "daco serve" in block.code:
                photograph(f"http://127.0.0.1:{os.environ['PORT']}/#/machines/motor/clips/18")
                return


if __name__ == "__main__":
    main()
