"""The monitoring page in a real browser, before a real service with a real model."""

from __future__ import annotations

import math
import re
import signal

import pytest
from browser_pages import CONTRAST, DESK, PHONE, box_of
from monitored_plant import (
    NAUGHTY,
    PEOPLE,
    SMALL,
    add_clips,
    clips_of,
    opened,
    raise_alarm,
    send,
    tab_to,
)
from playwright.sync_api import expect
from service_process import ServiceProcess, faulty, humming, normal, wait_until, wav

DRAWN = """async width => {
    const frame = () => new Promise(requestAnimationFrame);
    while (innerWidth !== width) await frame();
    for (let n = 0; n < 3; n += 1) await frame();
}"""
"""Wait until the page has its new width, the chart noticed it, and was drawn again."""


@pytest.fixture(scope="session")
def furnished(service):
    """A machine with a history and an open alarm."""
    add_clips(service, "furnished", [2.5 if row % 4 == 0 else 0.3 for row in range(120)])
    raise_alarm(service, "furnished")


def in_dialog(page, button):
    page.locator("dialog").get_by_role("button", name=button).click()


# Recordings


def test_the_evidence_of_a_fault_is_seen_on_its_way_to_the_limit(browser, service):
    def evidence():
        machines = service.get("/v1/machines").json()["machines"]
        (own,) = [each for each in machines if each["id"] == "adding"]
        return own["evidence"], own["evidence_limit"]

    service.score(faulty(), "adding")
    value, limit = evidence()
    assert 0 < value < limit
    with opened(browser, service, "machines/adding") as page:
        figures = page.locator(".figures")
        share = f"{100 * value / limit:.0f}"
        expect(figures.locator("div", has_text="Evidence of a fault")).to_contain_text(share)
        expect(figures).to_contain_text("about 1 false alarm a month")
        expect(page.locator("body")).to_contain_text("set for 144 recordings a day")
        expect(figures.locator("meter")).to_be_visible()


def test_a_recording_is_judged_and_shown_beside_its_nearest_healthy_one(browser, service, machine):
    with opened(browser, service, f"machines/{machine}") as page:
        expect(page.locator(".first-steps")).to_be_visible()
        send(page, "trial.wav", faulty(), record=False)
        expect(page.locator(".upload")).to_contain_text("Only a trial: it is not stored.")
        assert clips_of(service, machine) == []
        page.reload()
        send(page, "squeal.wav", faulty())
        expect(page.locator(".upload")).to_contain_text("sounds different")
        expect(page.locator(".clip-panel h2")).to_have_text("squeal.wav")
        expect(page.locator(".clip-row")).to_have_count(1)
        expect(page).to_have_url(re.compile(rf"#/machines/{machine}/clips/\d+$"))
        for title in ("This recording", "Most similar healthy recording"):
            player = page.locator(".player", has_text=title)
            expect(player.locator("canvas")).to_be_visible()
            expect(player.locator(".hertz", has_text="4 kHz")).to_be_visible()
            expect(player.locator(".second", has_text="0.0 s")).to_be_visible()
        expect(page.locator(".decibels")).to_contain_text("dB")
        expect(page.locator(".verdict")).to_contain_text("Sounds different")
        expect(page.locator(".verdict")).to_contain_text("limit 1")
        expect(page.locator(".reasons")).to_contain_text("unlike every healthy recording")
        # one triangle for the one recording that sounds different
        expect(page.locator(".chart .anomalous-points")).to_have_attribute(
            "d", re.compile("^M[^M]+$")
        )


def test_a_file_can_be_dropped_anywhere(browser, service, machine):
    with opened(browser, service) as page:
        card = page.locator(f'.card[data-id="{machine}"]')
        expect(card).to_be_visible()
        files = page.evaluate_handle(
            """bytes => {
                const carried = new DataTransfer();
                carried.items.add(new File([new Uint8Array(bytes)], "dropped.wav"));
                return carried;
            }""",
            list(normal()),
        )
        card.dispatch_event("dragenter", {"dataTransfer": files})
        expect(page.locator("#dropzone")).to_be_visible()
        card.dispatch_event("drop", {"dataTransfer": files})
        expect(page.locator("#dropzone")).to_be_hidden()
        expect(page.get_by_label("Machine", exact=True)).to_have_value(machine)
        page.get_by_label("Record it").check()
        page.get_by_role("button", name="Judge").click()
        expect(page.locator(".upload")).to_contain_text("healthy")
        assert clips_of(service, machine)[0]["name"] == "dropped.wav"


def test_failures_are_told_in_words_and_a_busy_service_is_asked_again(browser, service, machine):
    said = {"detail": "The service is busy. Try again in a moment."}
    busy = {"status": 503, "headers": {"Retry-After": "1"}, "json": said}
    with opened(browser, service, f"machines/{machine}", expected=("status of",)) as page:
        send(page, "letter.wav", b"Dear Sir or Madam")
        expect(page.locator(".upload").first).to_contain_text("ot audio")
        send(page, "long.wav", normal() * 40)
        expect(page.locator(".upload").first).to_contain_text("too big")
        # and nobody is invited to send the same once more
        expect(page.get_by_role("button", name="Try again")).to_have_count(0)
        assert clips_of(service, machine) == []
        # An overload that begins and ends on cue can only be staged between the two.
        page.route("**/score?*", lambda route: route.fulfill(**busy), times=1)
        page.evaluate(
            """() => {
                window.told = [];
                const box = document.getElementById("uploads");
                new MutationObserver(() => window.told.push(box.textContent))
                    .observe(box, { childList: true, subtree: true });
            }"""
        )
        send(page, "clip.wav", normal())
        expect(page.locator(".upload").first).to_contain_text("healthy")
        told = page.evaluate("window.told")  # all of it: it is shown for a second only
        assert any("is busy. Trying again in 1 s" in text for text in told), told
        assert len(clips_of(service, machine)) == 1


def test_only_one_of_two_recordings_sounds(browser, service, machine):
    clip = service.score(wav(humming(5, seconds=10)), machine).json()["clip"]
    with opened(browser, service, f"machines/{machine}/clips/{clip['id']}") as page:
        titles = ("This recording", "Most similar healthy recording")
        mine, other = (page.locator(".player", has_text=title) for title in titles)
        sounding = re.compile("sounding")
        page.evaluate(  # however slow the computer is, no sound ends by itself
            """() => {
                const { play } = HTMLMediaElement.prototype;
                HTMLMediaElement.prototype.play = function () {
                    this.loop = true;
                    return play.call(this);
                };
            }"""
        )
        mine.get_by_role("button", name="Play this recording").click()
        expect(mine).to_have_class(sounding)
        page.keyboard.press("x")
        expect(other).to_have_class(sounding)
        expect(mine).not_to_have_class(sounding)
        page.locator(".clip-row[aria-current]").press("Space")
        expect(mine).to_have_class(sounding)
        expect(other).not_to_have_class(sounding)


def test_a_recording_has_its_own_time_and_is_deleted_with_its_sound(browser, service, machine):
    known = {"recorded_at": "2026-01-02T03:04:05Z", "name": "private.wav"}
    clip = service.score(wav(humming(4321)), machine, **known).json()["clip"]
    place = f"machines/{machine}/clips/{clip['id']}"
    with opened(browser, service, place, timezone_id="UTC") as page:
        expect(page.locator(".clip-row")).to_contain_text("2 Jan 03:04:05")
        expect(page.locator(".clip-panel")).to_contain_text("Recorded 2 Jan 2026, 03:04:05")
        expect(page.locator(".figures dd", has_text="Jan")).to_be_visible()
        page.get_by_role("button", name="Delete").click()
        in_dialog(page, "Delete")
        expect(page.locator("#polite")).to_have_text("Deleted.")
        expect(page.locator(".clip-row")).to_have_count(0)
    assert clips_of(service, machine) == []
    assert not list((service.folder / "kept").rglob(f"{clip['audio_sha256']}*"))


# Alarms


def test_an_alarm_is_acknowledged_shelved_and_cleared(browser, service, machine):
    with opened(browser, service) as page:
        expect(page.locator("#live")).to_have_text("Live")
        raise_alarm(service, machine)
        expect(page.locator("#urgent")).to_contain_text(f"New alarm: {machine}. Sounds different")
        expect(page).to_have_title(re.compile(r"^\(\d+\) Machines"))
        expect(page.locator(f'.card[data-id="{machine}"]')).to_contain_text("Alarm")
        page.locator(".alarm.open", has_text=machine).get_by_role("link").click()
        expect(page.locator("h1")).to_have_text(machine)
        alarm = page.locator(".alarm.open")
        page.get_by_role("button", name="Acknowledge").click()
        page.get_by_label("What did you find").fill("loose belt, tightened")
        in_dialog(page, "Acknowledge")
        expect(alarm).to_contain_text("Acknowledged by local")
        expect(alarm.locator(".comment")).to_have_text("loose belt, tightened")
        page.get_by_role("button", name="Shelve").click()
        page.get_by_label("For how long?").select_option("30 minutes")
        in_dialog(page, "Shelve")
        expect(alarm).to_contain_text("Shelved until")
        expect(page.locator(".chip").first).to_have_text("Shelved")
        page.get_by_role("button", name="Unshelve").click()
        in_dialog(page, "Unshelve")
        expect(alarm).not_to_contain_text("Shelved until")
        page.get_by_role("button", name="Clear").click()
        in_dialog(page, "Clear")
        expect(page.locator(".alarm.open")).to_have_count(0)
        page.reload()
        expect(page.locator(".past-box summary")).to_have_text("1 past alarm")
        page.locator(".past-box summary").click()
        expect(page.locator(".alarm")).to_contain_text("Cleared by local")


def test_an_answer_that_is_not_saved_can_be_given_again_and_its_recordings_say_so(
    browser, service, machine
):
    raise_alarm(service, machine)
    with opened(browser, service, f"machines/{machine}", expected=("ERR_FAILED",)) as page:
        page.route("**/acknowledge", lambda route: route.abort(), times=1)
        page.route("**/answer", lambda route: route.abort(), times=1)
        page.get_by_role("button", name="Acknowledge").click()
        page.get_by_label("What was it?").select_option("false alarm")
        page.get_by_label("What did you find").fill("nothing")
        in_dialog(page, "Acknowledge")
        expect(page.locator("dialog .problem")).to_contain_text("Not saved")
        expect(page.get_by_label("What did you find")).to_have_value("nothing")
        in_dialog(page, "Acknowledge")
        expect(page.locator(".alarm")).to_contain_text(": a false alarm.")
        page.reload()
        expect(page.locator(".clip-panel")).to_contain_text("Answered: a false alarm.")
        page.locator(".clip-panel").get_by_role("button", name="Fault").click()
        in_dialog(page, "Save")
        expect(page.locator(".clip-panel")).to_contain_text("Answered: a fault.")
        expect(page.locator(".clip-row[aria-current] .tag")).to_have_text("fault")


def test_a_machine_rests_out_of_service_and_learns_when_it_is_declared_healthy(
    browser, service, machine
):
    with opened(browser, service, f"machines/{machine}") as page:
        page.get_by_text("How daco decides").click()
        decisions = page.locator(".decisions").first
        expect(decisions).to_contain_text("The limit of oddness is 1")
        page.get_by_role("button", name="Out of service").click()
        in_dialog(page, "Out of service")
        expect(page.locator(".chip")).to_have_text("Out of service")
        expect(decisions).to_contain_text("by local")
        page.get_by_role("button", name="Back in service").click()
        in_dialog(page, "In service")
        expect(page.locator(".chip")).not_to_have_text("Out of service")
        page.get_by_role("button", name="Declare healthy").click()
        expect(page.locator("dialog")).to_contain_text("daco would learn the fault")
        page.get_by_label("Number of healthy recordings").fill("30")
        in_dialog(page, "It is healthy")
        expect(decisions).to_contain_text("next 30")
        service.score(normal(), machine)  # appears without a reload
        expect(decisions).to_contain_text("next 29")
        expect(page.locator(".clip-row")).to_have_count(1)
        page.get_by_role("button", name="Forget what was learned").click()
        in_dialog(page, "Forget it")
        expect(decisions).to_contain_text("Nothing has been learned yet.")
        page.get_by_role("button", name="Write a note").click()
        page.get_by_label("What was done?").fill("bearing changed")
        in_dialog(page, "Save")
        expect(page.locator("#polite")).to_have_text("Saved.")
    trend = service.get(f"/v1/machines/{machine}/trend").json()
    assert [note["text"] for note in trend["notes"]] == ["bearing changed"]


def test_refused_messages_are_shown_and_sent_again(browser, service, machine):
    with opened(browser, service, "messages") as page:
        service.receiver.answer = lambda _: 410
        raise_alarm(service, machine)
        row = page.locator("[data-message]", has_text=machine)
        expect(row).to_contain_text("New alarm")
        service.receiver.answer = lambda _: 204
        page.get_by_role("button", name="Send a test message").click()
        expect(page.locator("main")).to_contain_text("delivered")
        row.get_by_role("button", name="Send again").click()
        expect(row).to_have_count(0)
        expect(page.locator("table")).to_contain_text("test message")


def test_the_keyboard_alone_leads_to_an_acknowledgement(browser, service, machine):
    raise_alarm(service, machine)
    with opened(browser, service) as page:
        expect(page.locator(f'.card[data-id="{machine}"]')).to_contain_text("Alarm")
        tab_to(page, "a", machine)
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text(machine)
        expect(page.locator("h1")).to_be_focused()
        tab_to(page, "button", "Acknowledge")
        page.keyboard.press("Enter")
        expect(page.locator("dialog")).to_be_visible()
        tab_to(page, "button", "Acknowledge")
        page.keyboard.press("Enter")
        expect(page.locator(".alarm.open")).to_contain_text("Acknowledged by local")
        expect(page.locator(".open-alarms h2")).to_be_focused()  # and not lost with the button


def test_the_keyboard_walks_the_chart_and_the_list_and_the_alarms(browser, service, machine):
    raise_alarm(service, machine)
    add_clips(service, machine, [0.1, 2.5, 0.3, 0.4])
    with opened(browser, service, f"machines/{machine}") as page:
        chart = page.get_by_role("slider", name="History of oddness")
        expect(page.locator(".clip-row").last).to_contain_text("clip_00000.wav")
        chart.press("Home")
        expect(chart).to_have_attribute("aria-valuetext", re.compile("healthy, oddness 0.1"))
        chart.press("Shift+ArrowRight")
        expect(chart).to_have_attribute("aria-valuetext", re.compile("different, oddness 2.5"))
        expect(page.locator(".tooltip")).to_contain_text("clip_00001.wav")
        chart.press("Enter")
        expect(page.locator(".clip-panel h2")).to_have_text("clip_00001.wav")
        page.locator(".clip-row[aria-current]").press("ArrowUp")
        expect(page.locator(".clip-panel h2")).to_have_text("clip_00002.wav")
        expect(page.locator(".clip-row[aria-current]")).to_be_focused()
        page.keyboard.press("p")  # the alarm before
        expect(page.locator(".clip-panel h2")).to_have_text("loud.wav")


def test_pointing_at_a_recording_tells_what_it_is_and_a_tap_shows_it(browser, service, furnished):
    with opened(browser, service, "machines/furnished", PHONE, has_touch=True) as page:
        chart, tooltip = page.locator(".chart"), page.locator(".tooltip")
        expect(page.locator(".chosen-point")).to_be_attached()
        # Above the chart; the watchdog may add its own about the drift at any moment.
        expect(page.locator(".alarm.open", has_text="Sounds different")).to_be_visible()
        chart.scroll_into_view_if_needed()
        newest = box_of(page.locator(".chosen-point"))
        x, y = newest["x"] + newest["width"] / 2, newest["y"] + newest["height"] / 2
        page.mouse.move(x, y)
        expect(tooltip).to_contain_text("loud.wav")
        box = box_of(tooltip)
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
        page.mouse.move(5, 5)
        expect(tooltip).to_be_hidden()
        left = box_of(chart)
        page.touchscreen.tap(left["x"] + 70, y + 60)
        expect(page.locator(".clip-panel h2")).to_have_text(re.compile(r"clip_000\d\d"))


# What it says


def test_no_verdict_contradicts_its_sentence(browser, service):
    """Every state of a clip, near the limit and far from it, with every remark there is."""
    remarks = ["silent", "clipped", "short", "long", "rate", "off", "range", "score", "far"]
    remarks += ["views"]
    states = ("normal", "anomalous", "off", "out of range", "recorder fault")
    with opened(browser, service, "machines/unheard") as page:
        said = page.evaluate(
            """async ([states, remarks]) => {
                const words = await import(new URL("static/words.js", location.href));
                const told = [];
                const reasons = remarks.map((code) => `${code}: figures 1.70`);
                const odds = [0, 0.5, 0.96, 0.999, 1, 1.0001, 1.04, 3, 40];
                for (const state of states) for (const oddness of odds) {
                    const anomalous = state === "anomalous";
                    const judged = anomalous || state === "normal";
                    if (judged && anomalous !== oddness > 1) continue;
                    for (const extrapolated of [false, true]) {
                        const one_in = 10 ** oddness;
                        const clip = { state, anomalous, oddness, extrapolated, one_in, reasons };
                        const lines = [words.verdictWords(clip), ...words.remarks(clip)];
                        lines.push(words.decision(clip).textContent);
                        told.push([state, oddness, words.oddnessText(clip), lines.join(" ")]);
                    }
                }
                return told;
            }""",
            [states, remarks],
        )
    assert len(said) > 40
    for state, odd, text, words in said:
        assert ("Sounds different" in words) == (state == "anomalous"), words
        assert ("Sounds like the healthy" in words) == (state == "normal"), words
        assert ("not judged" in words) == (state not in ("normal", "anomalous")), words
        assert ("fault may be" in words or "a fault, another" in words) <= (state != "normal"), (
            words
        )
        if state in ("normal", "anomalous"):
            shown = {"just above 1": 1.01, "just below 1": 0.99}.get(text) or float(text)
            assert (shown > 1) == (state == "anomalous"), (odd, text)
        else:
            assert text == "\u2013"


JARGON = re.compile(
    r"\b(domain|vote|member|views?|sha-?256|p-value|threshold|configuration|conf-|blend|score|"
    r"anomalous|basis|calibration|null|undefined|NaN)\b",
    re.IGNORECASE,
)


# Live


def test_the_page_recovers_when_the_database_and_the_service_come_back(browser, tmp_path):
    lost = ("ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_EMPTY", "status of 503", "404")
    with ServiceProcess(tmp_path) as before:
        (tmp_path / "daco.db").rename(tmp_path / "away.db")
        with opened(browser, before, expected=lost) as page:
            expect(page.locator("main")).to_contain_text("database cannot be used at the moment")
            (tmp_path / "away.db").rename(tmp_path / "daco.db")
            page.locator("main").get_by_role("link", name="press", exact=True).click()
            expect(page.locator("#live")).to_have_text("Live")
            before.end(signal.SIGKILL)

            def say_that_the_network_is_back():  # as browsers do: the page asks at once
                page.evaluate("dispatchEvent(new Event('online'))")
                return page.locator("#live").inner_text()

            wait_until(lambda: "Offline" in say_that_the_network_is_back())
            expect(page.get_by_role("button", name="Try now")).to_be_visible()
            again = {"address": f"127.0.0.1:{before.port}"}
            with ServiceProcess(tmp_path, service=again) as after:
                after.score(normal(), "press", name="meanwhile.wav")
                wait_until(lambda: say_that_the_network_is_back() == "Live")
                expect(page.locator(".clip-row")).to_contain_text("meanwhile.wav")


# Addresses


def test_addresses_can_be_kept_or_lead_nowhere_and_the_back_button_works(browser, service, machine):
    clip = service.score(normal(), machine, name="kept.wav").json()["clip"]
    with opened(browser, service, expected=("404",)) as page:
        page.get_by_role("link", name=machine, exact=True).click()
        page.get_by_role("link", name="7 days").click()
        expect(page.locator(".range[aria-current]")).to_have_text("7 days")
        page.locator(".clip-row").first.click()
        expect(page.locator(".clip-panel h2")).to_have_text("kept.wav")
        place = f"#/machines/{machine}/clips/{clip['id']}?range=7d"
        expect(page).to_have_url(re.compile(re.escape(place) + "$"))
        address = page.url
        for place in (f"{machine}?range=7d", machine, "#/"):
            page.go_back()
            expect(page).to_have_url(re.compile(re.escape(place) + "$"))
        expect(page.locator("h1")).to_have_text("Machines")
        page.goto("about:blank")
        page.goto(address)
        expect(page.locator(".clip-panel h2")).to_have_text("kept.wav")
        page.goto(f"{service.url}/#/machines/{machine}/clips/999999")
        expect(page.locator(".clip-panel")).to_contain_text("There is no clip 999999.")
        page.goto(f"{service.url}/#/machines/nobody")
        expect(page.locator("main")).to_contain_text("There is no machine 'nobody'.")


# What the machine is like


def test_an_alarm_limit_that_is_out_of_date_shows_its_remedy(browser, service, machine):
    add_clips(service, machine, [2.0 if row % 4 == 0 else 0.2 for row in range(200)])
    with opened(browser, service, f"machines/{machine}") as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        banner = page.get_by_role("region", name="Alarm limit")
        expect(banner).to_contain_text("The alarm limit is out of date.")
        banner.get_by_role("button", name="Copy the command").click()
        expect(page.locator("#polite")).to_have_text("Copied.")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.startswith("daco calibrate ")


def test_the_healthy_recordings_are_listed_heard_removed_and_restored(browser, service, machine):
    with opened(browser, service, f"machines/{machine}") as page:
        page.get_by_text("Healthy recordings of the model").click()
        rows = page.locator(".normals tbody tr")
        expect(rows).to_have_count(20)
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        more = page.get_by_role("button", name="Show more")
        more.evaluate("button => { button.click(); button.click(); }")
        expect(rows).to_have_count(40)
        assert len([url for url in asked if "offset=20" in url]) == 1
        page.get_by_role("button", name="Listen").first.click()
        expect(page.get_by_role("button", name="Stop")).to_be_visible()
        page.get_by_role("button", name="Remove").first.click()
        page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        done = page.locator(".normals-done")
        expect(done).to_contain_text("Removed 1 healthy recording; 39 are left.")
        page.get_by_role("button", name="Undo the last change").click()
        page.get_by_role("dialog").get_by_role("button", name="Go back").click()
        expect(done).to_contain_text("The model is the one before the last change.")


def test_the_alarm_limit_is_set_by_recordings_that_somebody_chooses(browser, service, machine):
    for seed in range(10):
        service.score(normal(700 + seed), machine, name=f"calm{seed}.wav")
    with opened(browser, service, f"machines/{machine}") as page:
        page.get_by_role("button", name="Set the alarm limit by recordings").click()
        expect(page.get_by_role("button", name="Choose 10 healthy ones (0)")).to_be_disabled()
        for seed in range(10):
            page.get_by_label(f"Choose calm{seed}.wav").check()
        page.get_by_role("button", name="Set the limit by these 10").click()
        page.get_by_role("dialog").get_by_role("button", name="They are healthy").click()
        expect(page.get_by_role("dialog")).to_contain_text("comes from 10 recordings now")

    def notes():
        """The next recording is judged by another model: its moment is on the chart."""
        service.score(normal(300), machine)
        return service.get(f"/v1/machines/{machine}/trend").json()["notes"]

    wait_until(notes)
    assert "alarm limit changed" in notes()[0]["text"]


def test_many_recordings_are_drawn_as_few_points_and_a_day_is_one_click_away(
    browser, service, machine
):
    odd = [0.5 + 0.3 * math.sin(row / 9) + 0.1 * math.sin(row) for row in range(5_000)]
    odd[4234], odd[4321] = 2.9, 0.001
    add_clips(service, machine, odd, spacing=60)
    with opened(browser, service, f"machines/{machine}?range=7d") as page:
        expect(page.locator(".reading")).to_contain_text("of 5,00")
        expect(page.locator(".anomalous-points")).to_have_attribute("d", re.compile("^M[^M]+$"))
        assert 500 < page.locator(".normal-points").get_attribute("d").count("M") < 4500
        page.get_by_role("link", name="30 days").click()
        expect(page.locator(".trend-mean")).to_have_attribute("d", re.compile(r"(L[^L]+){50}"))
        expect(page.locator(".reading")).to_have_text(
            "Mean of each hour, and the highest value above it"
        )
        chart = page.locator(".chart")
        chart.click(position={"x": box_of(chart)["width"] - 14, "y": 100})
        page.wait_for_url(re.compile(r"range=\d{4}-\d\d-\d\d"))
        page.get_by_label("Jump to a day").fill("2020-02-03")
        expect(page.locator(".clip-list")).to_contain_text("No recording in this range")


def test_text_of_others_is_inert(browser, service):
    raise_alarm(service, "naughty", name="<img src=x onerror=alert(3)>.wav")
    with opened(browser, service) as page:
        expect(page.get_by_role("link", name=NAUGHTY)).to_be_visible()
        page.goto(f"{service.url}/#/machines/naughty")
        expect(page.locator("h1")).to_have_text(NAUGHTY)
        expect(page.locator(".clip-panel h2")).to_have_text("<img src=x onerror=alert(3)>.wav")
        page.get_by_role("button", name="Acknowledge").click()
        page.get_by_label("What did you find").fill("<img src=x onerror=alert(5)>")
        in_dialog(page, "Acknowledge")
        expect(page.locator(".comment")).to_have_text("<img src=x onerror=alert(5)>")
        page.locator(".chart").press("Home")
        expect(page.locator(".tooltip")).to_contain_text("<img src=x")
        assert page.locator("main script, main [onerror], body > script").count() == 0


# How it looks


@pytest.mark.parametrize("place", ["", "machines/furnished", "machines/unheard", "messages"])
def test_everything_speaks_plainly_fits_and_can_be_touched(browser, service, furnished, place):
    with opened(browser, service, place, has_touch=True) as page:
        expect(page.locator("#live")).to_have_text("Live")
        expect(page.locator(".spectrogram-wait", has_text="Loading")).to_have_count(0)
        for summary in page.locator("summary:visible").all():
            summary.click()
        text = page.locator("main").inner_text()
        # An address, a command, and the words about the drift.
        text = re.sub(r"\S+/score\b|--domain|are anomalous|anomalous recordings", "", text)
        assert JARGON.findall(text) == [], text
        page.reload()
        expect(page.locator("#live")).to_have_text("Live")
        expect(page.locator(".spectrogram-wait", has_text="Loading")).to_have_count(0)
        shots = set()
        for viewport in (DESK, PHONE):
            page.set_viewport_size(viewport)
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                page.evaluate(DRAWN, viewport["width"])
                assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
                assert page.evaluate(SMALL) == []
                assert page.evaluate(CONTRAST) == []
                shots.add(page.screenshot())
        assert len(shots) == 4


def test_statuses_are_told_by_words_and_shapes(browser, service, furnished):
    with opened(browser, service) as page:
        for machine, word, shape in (
            ("furnished", "Alarm", "alarm"),
            ("unheard", "No recordings", "silent"),
        ):
            card = page.locator(f'.card[data-id="{machine}"]')
            expect(card.locator(".chip")).to_have_text(word)
            expect(card.locator(f".icon-{shape}")).to_be_visible()
        # those that need somebody come first
        order = page.locator(".card").evaluate_all("cards => cards.map(c => c.dataset.status)")
        ranks = ["alarm", "problem", "stale", "silent", "shelved", "out of service", "off", "ok"]
        assert order == sorted(order, key=ranks.index)


# The way in


def test_a_token_says_who_somebody_is_and_what_they_may_do(browser, locked):
    with opened(browser, locked, "machines/press", expected=("status of 4",)) as page:
        page.get_by_label("Your token").fill("a guess")
        page.keyboard.press("Enter")
        expect(page.locator(".problem")).to_have_text("That is not a token of this service.")
        page.get_by_label("Your token").fill(PEOPLE["viewer"])
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("#live")).to_have_text("Live")
        stored = page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]")
        assert stored == [0, 0, ""]
        expect(page.locator("#pick")).to_be_hidden()  # a viewer sends nothing
        headers = {"Authorization": f"Bearer {PEOPLE['operator']}", "Content-Type": "audio/wav"}
        with locked.client(headers=headers) as client:
            for seed in range(3):
                client.post("/v1/machines/press/score", content=faulty(seed))
        expect(page.locator(".alarm.open")).to_be_visible()
        expect(page.get_by_role("button", name="Acknowledge")).to_have_count(0)
        page.get_by_role("button", name="Sign out viewer").click()
        page.get_by_label("Your token").fill(PEOPLE["operator"])
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("button", name="Acknowledge").click()
        in_dialog(page, "Acknowledge")
        expect(page.locator(".alarm")).to_contain_text("Acknowledged by operator")
