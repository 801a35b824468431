"""What deploy/ holds works: the unit, the alerts and the dashboard of a running monitor."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml
from prometheus_client.parser import text_string_to_metric_families
from service_process import normal

from daco.commands.app import app
from daco.monitoring.config import PlantConfig

DEPLOY = Path(__file__).parents[2] / "deploy"
DACO = str(Path(sys.executable).parent / "daco")


def expressions():
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    targets = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    variables = [each["query"] for each in dashboard["templating"]["list"]]
    return [*(rule["expr"] for rule in rules), *targets, *variables]


def test_alerts_and_dashboard_use_metrics_that_exist(service):
    """Those that a monitor with one judged recording shows."""
    assert service.score(normal()).status_code == 200
    found = text_string_to_metric_families(service.get("/metrics").text)
    shown = {name for each in found for name in (each.name, *(one.name for one in each.samples))}
    used = {name for text in expressions() for name in re.findall(r"\bdaco_\w+", text)}
    assert len(used) >= 8
    assert used - shown == set()


def test_alerts_tell_what_and_what_to_do():
    for rule in yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}


def test_panels_of_the_dashboard_do_not_overlap():
    panels = json.loads((DEPLOY / "grafana-dashboard.json").read_text())["panels"]
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_systemd_takes_the_unit_and_its_command_exists(tmp_path):
    text = (DEPLOY / "daco.service").read_text()
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string(text)
    program, command, folder = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "daco"
    assert command in typer.main.get_command(app).list_commands(None)
    assert folder == unit["Service"]["WorkingDirectory"]
    if shutil.which("systemd-analyze"):
        changed = text.replace(program, DACO).replace("User=daco\nGroup=daco\n", "")
        (tmp_path / "daco.service").write_text(changed)
        check = ["systemd-analyze", "verify", "--man=no", tmp_path / "daco.service"]
        result = subprocess.run(check, capture_output=True, text=True, timeout=60)
        complaints = [line for line in result.stderr.splitlines() if "daco.service" in line]
        assert complaints == []


def test_the_container_listens_for_others_only_with_a_token(tmp_path, monkeypatch):
    text = (DEPLOY / "Containerfile").read_text()
    name, _, address = re.search(r"ENV (\S+?)(=)(\S+)", text).groups()
    monkeypatch.setenv(name, address)
    (tmp_path / "press.daco").touch()
    with pytest.raises(ValueError, match="needs a token"):
        PlantConfig.load(tmp_path)
    monkeypatch.setenv("DACO_SERVICE__TOKENS__KIM__ROLE", "operator")
    monkeypatch.setenv("DACO_SERVICE__TOKENS__KIM__SHA256", "ab" * 32)
    assert PlantConfig.load(tmp_path).service.address == address
    words = re.findall(r"^(\w+) ", text, re.MULTILINE)
    known = {"FROM", "RUN", "COPY", "USER", "WORKDIR", "VOLUME", "EXPOSE", "ENV", "HEALTHCHECK"}
    assert set(words) <= known | {"ENTRYPOINT", "CMD"}
    extras = re.search(r"\[([\w,]+)\]\"", text)[1].split(",")
    declared = (DEPLOY.parent / "pyproject.toml").read_text()
    assert all(f"\n{extra} = [" in declared for extra in extras)
