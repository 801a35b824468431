"""A plant to monitor: machines of one kind under many names, and a browser that looks at them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from browser_pages import DESK, watched_page
from service_process import faulty, humming, model, wav
from stores import verdict

from daco.monitoring.store import NewClip, Store

NAUGHTY = "<script>alert(1)</script><img src=x onerror=alert(2)>"
NAMES = (
    *("first", "press", "keyboard", "live", "long", "late", "sound", "drifting"),
    *("busy-line", "kept-line", "furnished", "unheard", "answered", "told", "meanwhile"),
)
MACHINES = {name: name.replace("-", " ") for name in NAMES} | {"naughty": NAUGHTY}


def build_plant(root):
    """Models of the machines, and the recordings of their normals."""
    (root / "models").mkdir()
    (root / "normals" / "train").mkdir(parents=True)
    for name, title in MACHINES.items():
        replace(model(), machine=title).save(root / "models" / f"{name}.daco")
    for row, name in enumerate(model().clip_names):
        (root / "normals" / name).write_bytes(wav(humming(row)))


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


def send(page, name, data):
    page.set_input_files("#file", [{"name": name, "mimeType": "audio/wav", "buffer": data}])


def clips_of(service, machine):
    return service.get(f"/v1/machines/{machine}/history").json()["clips"]


def raise_alarm(service, machine, name="loud.wav"):
    """Three anomalous clips in a row are one alarm."""
    for seed in range(3):
        clip = service.score(faulty(seed), machine, name=name).json()["clip"]
    return clip["alarm_id"]


def add_clips(service, machine, scores, spacing=60.0):
    """Clips as the store has them after a while: one every `spacing` seconds, until just now."""
    threshold = max(model().thresholds.values())
    judge = replace(model(), machine=MACHINES[machine]).sha256
    now = datetime.now(UTC)
    new = [
        NewClip(
            verdict(
                score > threshold,
                name=f"clip_{row:05}.wav",
                score=score,
                p_value=0.02 if score > threshold else 0.1 + 0.9 * ((row * 0.618) % 1),
                threshold=threshold,
                domain_weights={"source": 0.8, "target": 0.2},
                nearest=model().clip_names[0],
                nearest_distance=0.01,
                reasons=(),
                model_sha256=judge,
            ),
            machine,
            now - timedelta(seconds=spacing * (len(scores) - row)),
        )
        for row, score in enumerate(scores)
    ]
    with Store.open(service.database) as store:
        store.add_many(new)


def tab_to(page, tag, text):
    """Press Tab until something that says `text` has the focus."""
    for _ in range(60):
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
