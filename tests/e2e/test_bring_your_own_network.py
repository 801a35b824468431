"""The package that the guide to your own network shows, installed with pip and used as stated."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run
from pages import DOCS, notebook

from daco.method.external import installed_scorers

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
    sys.modules.pop("my_network", None)
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
