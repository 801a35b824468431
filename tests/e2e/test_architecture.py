"""The way of one clip through the service is the one that the architecture page describes."""

from __future__ import annotations

import asyncio
import re
import sys
import threading

import httpx
import numpy as np
from service_process import RATE, model, normal
from shared_data import ROOT

from daco.detector.model import MachineModel
from daco.detector.verdict import ScoreOptions, Verdict, judge_embeddings
from daco.files.hashing import sha256_of_bytes
from daco.monitoring import worker
from daco.monitoring.config import PlantConfig
from daco.monitoring.engine import Plant
from daco.monitoring.service.app import create_app
from daco.monitoring.store import NewClip, Recording

LONGEST = 26
MOST_CALLS = 120
"""Of functions of daco, from the vector of a clip to its verdict."""
CLIP = normal()
DIMENSIONS = model().embeddings.shape[1]


class Trace:
    """Names of the modules with a function that is called with the clip while it is on."""

    def __init__(self):
        self.on, self.modules = False, set()

    def __call__(self, frame, event, _):
        name = frame.f_globals.get("__name__", "")
        is_ours = self.on and event == "call" and name.startswith("daco.")
        if is_ours and any(map(is_clip, frame.f_locals.values())):  # which are its arguments
            self.modules.add(name)


def is_clip(value):
    """Whether a value is the clip as bytes, waveform, vector, verdict or row."""
    if isinstance(value, np.ndarray):
        return bool(value.ndim) and value.shape[-1] in (RATE, DIMENSIONS)
    if isinstance(value, Recording):
        return getattr(value, "data", None) == CLIP  # it may be in the making
    return isinstance(value, Verdict | NewClip) or value == CLIP


async def post(app, trace):
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        trace.on = True
        headers = {"Content-Type": "audio/wav"}
        path = "/v1/machines/press/score"
        answer = await client.post(path, content=CLIP, headers=headers)
        trace.on = False
    assert answer.status_code == 200, answer.text


def test_the_way_of_a_clip_is_the_one_described(tmp_path):
    file = model().to_bytes()
    (tmp_path / "press.daco").write_bytes(file)
    plant = Plant(PlantConfig.load(tmp_path, service={"workers": 1}))
    trace = Trace()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        asyncio.run(post(create_app(plant), trace))
        # The worker judges in a process of its own; here it does the same job in this one.
        worker.describe(file)
        trace.on = True
        worker.score(sha256_of_bytes(file), None, CLIP, "clip.wav", ScoreOptions())
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    described = modules_in("The way of one clip")
    assert trace.modules == described
    assert len(described) <= LONGEST


def modules_in(section):
    """The modules that the tables of a section of the page name."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    text = page.split(f"\n## {section}\n")[1].split("\n## ")[0]
    rows = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    return set(re.findall(r"`(daco\.[\w.]+)`", rows))


def calls_of_verdict(config):
    """The modules of the functions that are called between an embedding and its verdict."""
    X = np.random.default_rng(0).normal(size=(60, 16)) + 1
    judge = MachineModel.fit(X, ["old"] * 50 + ["new"] * 10, machine="press", config=config)
    modules = []

    def remember(frame, event, _):
        if event == "call":
            modules.append(frame.f_globals.get("__name__", ""))

    for profile in (None, remember):  # the first clip prepares the bank
        sys.setprofile(profile)
        try:
            list(judge_embeddings(judge, X[:1] + 0.1, ["clip"]))
        finally:
            sys.setprofile(None)
    return [name for name in modules if name.startswith("daco.")]


def test_the_steps_from_vector_to_verdict_are_those_described():
    described = modules_in("From vector to verdict")
    calls = calls_of_verdict("conf-soft-m0-k1")
    assert set(calls) == described
    assert len(calls) <= MOST_CALLS
    assert set(calls_of_verdict("blend")) - described == {"daco.method.blend"}
