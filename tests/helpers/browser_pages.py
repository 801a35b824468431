"""A real browser, a page with a record of its problems and requests, and the contrast of texts."""

from __future__ import annotations

import shutil
from collections import defaultdict
from contextlib import contextmanager

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}


@contextmanager
def started_browser():
    """Debian's Chromium, or what else there is; without any the tests are skipped."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser found: install one of {', '.join(BROWSERS)}")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=20_000)  # a busy computer with two cores
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


def box_of(locator):
    """Where an element is; one that the page draws again meanwhile has no place for a moment."""
    for _ in range(100):
        if (box := locator.bounding_box()) is not None:
            return box
        locator.page.wait_for_timeout(100)
    raise AssertionError(f"{locator} is not visible")


_free = defaultdict(list)
"""Pages that nobody uses, by browser and settings: to start their processes takes half a second."""


@contextmanager
def watched_page(browser, url, viewport=DESK, **settings):
    """The page at `url`, without motion, with lists of its problems and of what it asked for."""
    settings = {"viewport": viewport, "reduced_motion": "reduce"} | settings
    free = _free[browser, str(settings)]
    page = free.pop() if free else browser.new_context(**settings).new_page()
    problems, requests = [], []
    listeners = {
        "console": lambda message: problems.append(f"{message.type}: {message.text}"),
        "pageerror": lambda error: problems.append(str(error)),
        "dialog": lambda dialog: problems.append(f"dialog: {dialog.message}"),
        "request": lambda request: requests.append(request.url),
    }
    for event, listener in listeners.items():
        page.on(event, listener)
    page.goto(url)
    yield page, problems, requests
    for event, listener in listeners.items():
        page.remove_listener(event, listener)
    page.unroute_all()
    page.goto("about:blank")
    page.context.clear_cookies()
    page.context.clear_permissions()
    page.set_viewport_size(viewport)
    page.emulate_media(color_scheme=settings.get("color_scheme", "null"))
    free.append(page)


CONTRAST = """() => {
    const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const rgba = colour => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
        return [r, g, b, a / 255];
    };
    const over = ([r, g, b, a], below) =>
        [r, g, b].map((value, i) => value * a + below[i] * (1 - a));
    const background = element => {
        if (!element) return [255, 255, 255];
        const own = rgba(getComputedStyle(element).backgroundColor);
        return own[3] === 1 ? own.slice(0, 3) : over(own, background(element.parentElement));
    };
    const luminance = rgb => rgb.map(v => v / 255)
        .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const bad = [];
    for (const element of document.querySelectorAll('body *')) {
        const own = [...element.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
        const ignored = element.closest('script, style, .hidden, .skip, :disabled');
        if (!own || !element.checkVisibility() || ignored) continue;
        const style = getComputedStyle(element);
        const behind = background(element);
        const ink = over(rgba(element.closest('svg') ? style.fill : style.color), behind);
        const [low, high] = [luminance(ink), luminance(behind)].sort((a, b) => a - b);
        const ratio = (high + 0.05) / (low + 0.05);
        if (ratio < 4.5) bad.push([element.textContent.trim().slice(0, 40), ratio.toFixed(2)]);
    }
    return bad;
}"""
"""Texts with less than 4.5 to 1, which WCAG AA requires."""
