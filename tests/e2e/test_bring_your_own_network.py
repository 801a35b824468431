"""The package that the guide to your own network shows, installed with pip and used as stated."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from command_line import refused, run, said
from pages import DOCS, notebook
from third_party import write_package

from daco.detector.model import MachineModel
from daco.method.external import installed_scorers
from daco.monitoring import worker

PAGE = DOCS / "guides/your-own.md"
FILES = {"toml": "pyproject.toml", "python": "my_network.py"}
MARK = f"% not run: tests/e2e/{Path(__file__).name} does\n"
LONGEST = 30
OFFLINE = ("--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")


def blocks():
    """Kind and text of each block of the page that is left to this test, and of its output."""
    text, found, end = PAGE.read_text(encoding="utf-8"), [], None
    for fence in re.finditer(notebook._FENCE, text):
        is_output = fence["kind"] == "text" and not text[end : fence.start()].strip()
        if text.endswith(MARK, 0, fence.start()) or (end and is_output):
            found.append((fence["kind"], fence["body"].lstrip("\n")))
            end = fence.end()
        else:
            end = None
    return found


def install(folder, site):
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target"]
    own = ("PYTHONPATH", "PIP_")  # settings of whoever runs the tests
    environment = {name: each for name, each in os.environ.items() if not name.startswith(own)}
    environment["PIP_CONFIG_FILE"] = os.devnull
    done = subprocess.run(
        [*command, str(site), *OFFLINE, str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    assert done.returncode == 0, done.stderr


def forget_packages():
    """Let this process find what was installed or changed since it looked."""
    for name in ("my_network", "plugin", "broken"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    installed_scorers.cache_clear()


@pytest.fixture(autouse=True)
def _forgotten():
    yield
    forget_packages()


def test_the_page_works_as_it_states(tmp_path, monkeypatch):
    pytest.importorskip("setuptools", reason="a package is built with setuptools")
    pytest.importorskip("pip", reason="a package is installed with pip")
    first = [text for kind, text in blocks() if kind in FILES][:2]
    assert sum(len(text.splitlines()) for text in first) <= LONGEST
    folder, site, printed = tmp_path / "my-network", tmp_path / "site", ""
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(site)
    commands = []
    for kind, text in blocks():
        if kind in FILES:
            with (folder / FILES[kind]).open("a", encoding="utf-8") as file:
                file.write(text)
        elif kind == "text":
            assert notebook.agrees(text, printed), f"stated:\n{text}\nprinted:\n{printed}"
        elif kind == "sh":
            printed = ""
            for line in text.splitlines():
                if line.startswith("pip"):
                    install(folder, site)
                    forget_packages()
                elif line.startswith("daco"):
                    commands.append(line)
                    lines = run(*shlex.split(line)[1:]).stdout.splitlines()
                    printed += "".join(f"{each.rstrip()}\n" for each in lines)
    assert len(commands) >= 5


PLUGIN = """
import numpy as np


class Level:
    sample_rate = 8000

    def embed(self, waveforms):
        parts = np.array_split(np.abs(waveforms), 8, axis=1)
        return np.stack([part.mean(axis=1) for part in parts], axis=1)
"""


@pytest.fixture
def recordings(tmp_path):
    """Noise whose loudness moves, in two folders."""
    rng = np.random.default_rng(0)
    for folder, count in (("normal", 16), ("new", 2)):
        (tmp_path / folder).mkdir()
        for row in range(count):
            loudness = 1 + 0.2 * rng.normal(size=8).repeat(1000)
            wave = 0.05 * loudness * rng.normal(size=8000)
            soundfile.write(tmp_path / folder / f"{row:02d}.wav", wave, 8000, subtype="FLOAT")
    return tmp_path


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    point = "daco.backbones:level = plugin:Level"
    monkeypatch.syspath_prepend(write_package(tmp_path / "site", PLUGIN, point))
    return tmp_path / "site"


def test_a_model_reloads_its_network_wherever_it_is_used(recordings, plugin):
    model, normals, new = (recordings / name for name in ("m.daco", "normal", "new"))
    options = ("--backbone", "level", "--config", "raw-k1", "--domain-level", "0")
    run("fit", normals, "--out", model, *options)
    assert "level (some-plugin 1.0), 8,000 Hz" in said("inspect", model, "--verbose")
    more = recordings / "more.daco"
    run("update", model, new, "--out", more, "--domain", "all", "--keep-suspicious")
    assert len(MachineModel.load(more)) == 18
    assert "2 recordings" in run("watch", model, new, "--once").output
    assert worker.describe(model.read_bytes()).frontend.package == "some-plugin 1.0"
    (plugin / "some_plugin-1.0.dist-info").rename(plugin / "removed")
    needed = "The model needs 'level' of the package some-plugin 1.0."
    for command in (("score", model, new), ("watch", model, new, "--once")):
        assert needed in str(refused(*command))
