"""The README's picture of a report's first screen, from the folder that ``make demo`` wrote.

    python docs/pictures.py daco-demo

Needs a Chromium.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent / "images"


def main(demo: Path) -> None:
    """Photograph the top of the report."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1100, "height": 740})
        page.goto((demo / "study" / "report.html").resolve().as_uri())
        page.screenshot(path=IMAGES / "report.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
