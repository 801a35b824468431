"""The notebooks of the manual run, and show tables, a picture and a report."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from pages import DOCS

NOTEBOOKS = {path.stem: path for path in sorted((DOCS / "notebooks").glob("*.ipynb"))}


def run(name: str, folder: Path, monkeypatch) -> list[dict[str, str]]:
    """What each output of a notebook shows, by kind."""
    monkeypatch.setenv(
        "PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    notebook = nbformat.read(NOTEBOOKS[name], as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not kept in git"
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [dict(output.get("data") or {output["name"]: output["text"]}) for output in outputs]


def test_there_are_two_notebooks():
    assert set(NOTEBOOKS) == {"arrays-to-a-report", "recordings-to-an-alarm"}


def test_arrays_become_a_report(tmp_path, monkeypatch):
    shown = run("arrays-to-a-report", tmp_path, monkeypatch)
    pages = [output["text/html"] for output in shown if "text/html" in output]
    kinds = [page.partition(" ")[0].partition(">")[0] for page in pages]
    assert kinds == ["<table", "<table", "<iframe"]
    assert sum("image/png" in output for output in shown) == 1
    assert (tmp_path / "report" / "report.html").is_file()


def test_recordings_become_an_alarm(tmp_path, monkeypatch):
    shown = run("recordings-to-an-alarm", tmp_path, monkeypatch)
    assert any("anomalous" in output.get("text/plain", "") for output in shown)
    assert any("audio" in output.get("text/html", "") for output in shown)
    assert sum("image/png" in output for output in shown) == 1
    assert (tmp_path / "motor.daco").is_file()
