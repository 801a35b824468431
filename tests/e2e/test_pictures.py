"""The report and the monitoring page look as in pictures that a person has reviewed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from browser_pages import DESK, PHONE, watched_page
from pictures import assert_looks_like
from playwright.sync_api import expect
from random_studies import report_study
from service_process import ServiceProcess, model
from stores import verdict

from daco.experiments.report import write_report
from daco.monitoring.store import NewClip, Store

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
SCREENS = {
    "desk": {"viewport": DESK, "color_scheme": "light"},
    "phone": {"viewport": PHONE, "color_scheme": "dark"},
}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return write_report(report_study(eval=("pump", "saw")), tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A press that sounded different for a while, a fan, and a pump that was never recorded."""
    machines = {name: {"title": name.title()} for name in ("press", "fan", "pump")}
    with ServiceProcess(tmp_path_factory.mktemp("plant"), machines) as service:
        odd = [1.6 if 30 <= row < 36 else 0.2 + 0.1 * (row % 5) for row in range(60)]
        clips = [clip("press", row, value) for row, value in enumerate(odd)]
        clips += [clip("fan", row, 0.3) for row in range(0, 60, 10)]
        with Store.open(service.database) as store:
            store.add_many(clips)
        yield service


def clip(machine, row, oddness):
    """One clip every ten minutes, until noon."""
    found = verdict(
        oddness > 1,
        name=f"clip_{row:02}.wav",
        machine=machine,
        oddness=oddness,
        p_value=10.0**-oddness,
        reasons=(),
        nearest=model().clip_names[0],
        model_sha256=model(machine).sha256,
    )
    return NewClip(found, machine, NOON - timedelta(minutes=10 * (60 - row)))


@pytest.mark.parametrize("screen", SCREENS)
def test_the_report(browser, report, screen):
    with watched_page(browser, report.as_uri(), **SCREENS[screen]) as (page, _, _):
        assert_looks_like(page, f"report-{screen}")


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize(("name", "place"), [("machines", ""), ("machine", "machines/press")])
def test_the_monitoring_page(browser, service, name, place, screen):
    settings = SCREENS[screen] | {"timezone_id": "UTC", "locale": "en-GB"}
    with watched_page(browser, "about:blank", **settings) as (page, _, _):
        page.clock.set_fixed_time(NOON)
        page.goto(f"{service.url}/#/{place}")
        expect(page.locator("#live")).to_have_text("Live")
        expect(page.locator(".spectrogram-wait", has_text="Loading")).to_have_count(0)
        if place:
            expect(page.locator(".clip-row").first).to_contain_text("clip_59.wav")
            expect(page.locator(".chosen-point")).to_be_attached()
        assert_looks_like(page, f"{name}-{screen}")
