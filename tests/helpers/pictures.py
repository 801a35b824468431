"""Pictures of pages against reviewed ones, which lie in ``tests/golden/pictures``.

``DACO_NEW_PICTURES=1`` writes them anew; look at each before it is committed. They hold for one
browser with one set of fonts: elsewhere the tests are skipped.
"""

from __future__ import annotations

import io
import os

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from shared_data import ROOT

FOLDER = ROOT / "tests" / "golden" / "pictures"
BLOCK = 8
"""Pixels of a side of the blocks whose mean colours are compared: edges of letters vary."""
DIFFERENT = 12.0
"""Levels of 255 by which blocks differ that do not show the same; antialiasing moves them by 3."""
SHARE = 0.0005
"""Of the blocks that may differ: 9 of a large screen. A button has 30, six marks of a chart 14."""

_DRAWN_WITH = """() => {
    const context = document.createElement('canvas').getContext('2d');
    return ['sans-serif', 'monospace'].map(family => {
        context.font = `16px ${family}`;
        return context.measureText('Alarm limit 0.05, WAV Ωµ').width.toFixed(1);
    }).join(' ');
}"""


def assert_looks_like(page, name):
    """Compare what the page shows with a reviewed picture."""
    page.evaluate("document.fonts.ready")
    version = page.context.browser.version.partition(".")[0]
    drawn_with = f"Chromium {version}, widths {page.evaluate(_DRAWN_WITH)}"
    found = Image.open(io.BytesIO(page.screenshot(animations="disabled", caret="hide")))
    path = FOLDER / f"{name}.png"
    if os.environ.get("DACO_NEW_PICTURES"):
        notes = PngInfo()
        notes.add_text("drawn with", drawn_with)
        FOLDER.mkdir(exist_ok=True)
        found.convert("RGB").save(path, pnginfo=notes, optimize=True)
    with Image.open(path) as reviewed:
        if reviewed.text["drawn with"] != drawn_with:
            pytest.skip(f"the pictures are of {reviewed.text['drawn with']}, not of {drawn_with}")
        assert found.size == reviewed.size
        distance = np.abs(_means(found) - _means(reviewed)).max(axis=-1)
    different = distance > DIFFERENT
    if different.mean() > SHARE:
        path = f"{name}-found.png"
        found.save(path)
        rows, columns = (BLOCK * np.flatnonzero(different.any(axis=axis)) for axis in (1, 0))
        raise AssertionError(
            f"{different.sum()} of {different.size} blocks differ, from x {columns.min()} to "
            f"{columns.max()} and y {rows.min()} to {rows.max()}; see {path}"
        )


def _means(picture):
    """Mean colours of blocks."""
    pixels = np.asarray(picture.convert("RGB"), dtype=float)
    height, width = (side // BLOCK * BLOCK for side in pixels.shape[:2])
    cut = pixels[:height, :width]
    return cut.reshape(height // BLOCK, BLOCK, width // BLOCK, BLOCK, 3).mean(axis=(1, 3))
