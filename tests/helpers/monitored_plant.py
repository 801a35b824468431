"""A plant to monitor: many machines of one kind, their alarms, and a browser that looks at them."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from browser_pages import DESK, watched_page
from playwright.sync_api import expect
from service_process import faulty, humming, model, wav
from stores import verdict

from daco.monitoring.store import NewClip, Store

NAUGHTY = "<script>alert(1)</script><img src=x onerror=alert(2)>"
PEOPLE = {role: f"{role}-{'x' * 20}-secret" for role in ("viewer", "operator", "administrator")}
"""A token of each role, named like it."""

TOKENS = {
    name: {"role": name, "sha256": hashlib.sha256(token.encode()).hexdigest()}
    for name, token in PEOPLE.items()
}


def machine_tables(root):
    """Tables of the machines, and the recordings of their healthy clips."""
    (root / "healthy" / "train").mkdir(parents=True)
    for row, name in enumerate(model().clip_names):
        (root / "healthy" / name).write_bytes(wav(humming(row)))
    usual = {"healthy": "healthy", "alarm": "2 of 3"}
    names = [f"machine-{number:02}" for number in range(30)]
    return dict.fromkeys([*names, "press", "furnished", "unheard"], usual) | {
        "adding": usual | {"alarm": "1 a month", "expect_every": "10 min"},
        "naughty": usual | {"title": NAUGHTY},
        "modelless": {"model": "models/never.daco"},
    }


@contextmanager
def opened(browser, service, place="", viewport=DESK, expected=(), **settings):
    """The page at a place; nothing comes from elsewhere, nothing fails but what is `expected`."""
    url = f"{service.url}/#/{place}"
    with watched_page(browser, url, viewport, **settings) as (page, problems, requests):
        yield page
    elsewhere = (service.url + "/", f"blob:{service.url}/")
    others = [url for url in requests if not url.startswith(elsewhere)]
    others += [text for text in problems if not any(part in text for part in expected)]
    assert not others, others


def send(page, name, data, *, record=True):
    """Pick a file, and say whether it is recorded."""
    expect(page.locator("#live")).to_have_text("Live")  # it knows the machines
    page.set_input_files("#file", [{"name": name, "mimeType": "audio/wav", "buffer": data}])
    if record:
        page.get_by_label("Record it").check()
    page.get_by_role("button", name="Judge").click()


def clips_of(service, machine, **query):
    return service.get(f"/v1/machines/{machine}/history", params=query).json()["clips"]


def raise_alarm(service, machine, name="loud.wav"):
    """Two recordings that sound different are one alarm; return its number."""
    for seed in range(2):
        clip = service.score(faulty(seed), machine, name=name).json()["clip"]
    (number,) = clip["opened"]
    return number


def add_clips(service, machine, oddness, spacing=60.0, **changed):
    """Clips as the store has them after a while: one every `spacing` seconds, until just now."""
    judge = replace(model(), machine=machine).sha256
    now = datetime.now(UTC)
    new = [
        NewClip(
            verdict(
                odd > 1,
                name=f"clip_{row:05}.wav",
                oddness=odd,
                p_value=10.0**-odd,
                domain_weights={"source": 0.8, "target": 0.2},
                nearest=model().clip_names[0],
                nearest_distance=0.01,
                model_sha256=judge,
                **{"reasons": ()} | changed,
            ),
            machine,
            now - timedelta(seconds=spacing * (len(oddness) - row)),
        )
        for row, odd in enumerate(oddness)
    ]
    with Store.open(service.database) as store:
        store.add_many(new)


def tab_to(page, tag, text):
    """Press Tab until something that says `text` has the focus."""
    for _ in range(44):
        page.keyboard.press("Tab")
        if page.evaluate(
            "([tag, text]) => document.activeElement.matches(tag)"
            " && document.activeElement.textContent.trim() === text",
            [tag, text],
        ):
            return
    raise AssertionError(f"Tab does not lead to {text!r}")


SMALL = """() => [...document.querySelectorAll("button, a, summary, label, input, select")]
    .filter(node => node.getClientRects().length)
    .filter(node => !node.closest("p, .hidden, .skip, .card, label *"))
    .map(node => [node, node.getBoundingClientRect()])
    .filter(([, box]) => box.height < 44 || box.width < 44)
    .map(([node, box]) => `${node.outerHTML}: ${box.width} x ${box.height}`)"""
