"""The monitoring page in a real browser, before a real service with a real model."""

from __future__ import annotations

import math
import re
import signal

import pytest
from browser_pages import CONTRAST, DESK, PHONE, box_of
from monitored_plant import (
    NAUGHTY,
    SMALL,
    add_clips,
    build_plant,
    clips_of,
    opened,
    raise_alarm,
    send,
    tab_to,
)
from playwright.sync_api import expect
from service_process import ServiceProcess, faulty, humming, model, normal, wav

TOKEN = "a-token-of-more-than-16-characters"

DRAWN = """async width => {
    const frame = () => new Promise(requestAnimationFrame);
    while (innerWidth !== width) await frame();
    for (let n = 0; n < 3; n += 1) await frame();
}"""
"""Wait until the page has its new width, the chart noticed it, and was drawn again."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("plant")
    build_plant(root)
    return root


@pytest.fixture(scope="module")
def service(folder):
    options = ("--normals", str(folder / "normals"), "--keep-audio", "all", "--max-body", "1")
    with ServiceProcess(folder, *options) as started:
        yield started


@pytest.fixture(scope="module")
def furnished(service):
    """A machine with a history, an open alarm and a stale calibration."""
    add_clips(service, "furnished", [0.99 if row % 4 == 0 else 0.3 for row in range(120)])
    raise_alarm(service, "furnished")


# Clips


def test_an_uploaded_clip_is_judged_and_shown_beside_its_nearest_normal(browser, service):
    with opened(browser, service, "machines/first") as page:
        expect(page.locator(".first-steps")).to_be_visible()
        send(page, "squeal.wav", faulty())
        expect(page.locator(".upload")).to_contain_text("anomalous")
        expect(page.locator(".clip-panel h2")).to_have_text("squeal.wav")
        expect(page.locator(".clip-row")).to_have_count(1)
        expect(page).to_have_url(re.compile(r"#/machines/first/clips/\d+$"))
        for title in ("This clip", "Nearest normal"):
            picture = page.locator(".player", has_text=title).locator("img")
            expect(picture).to_be_visible()
            expect(picture).not_to_have_js_property("naturalWidth", 0)
        clip = clips_of(service, "first")[0]
        expect(page.locator(".verdict")).to_contain_text(f"Score {clip['score']:.3f}")
        expect(page.locator(".verdict")).to_contain_text("Odder than every known normal clip")
        expect(page.locator(".reasons")).to_contain_text("The clip is unlike all normals.")
        # one triangle for the one anomalous clip
        expect(page.locator(".chart .anomalous-points")).to_have_attribute(
            "d", re.compile("^M[^M]+$")
        )


def test_a_file_can_be_dropped_anywhere(browser, service):
    with opened(browser, service) as page:
        card = page.locator('.card[data-id="sound"]')
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
        expect(page.locator(".upload")).to_contain_text("normal")
        assert clips_of(service, "sound")[0]["name"] == "dropped.wav"


def test_failures_are_told_in_words(browser, service):
    with opened(browser, service, "machines/unheard", expected=("status of 4",)) as page:
        send(page, "letter.wav", b"Dear Sir or Madam")
        expect(page.locator(".upload").first).to_contain_text("ot audio")
        send(page, "long.wav", normal() * 40)
        expect(page.locator(".upload").first).to_contain_text("too big")
        # and nobody is invited to send the same once more
        expect(page.get_by_role("button", name="Try again")).to_have_count(0)
        assert clips_of(service, "unheard") == []


def test_a_busy_service_is_asked_again(browser, service):
    said = {"detail": "The service is busy. Try again in a moment."}
    busy = {"status": 503, "headers": {"Retry-After": "1"}, "json": said}
    with opened(browser, service, "machines/busy-line", expected=("status of 503",)) as page:
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
        expect(page.locator(".upload")).to_contain_text("normal")
        told = page.evaluate("window.told")  # all of it: it is shown for a second only
        assert any("is busy. Trying again in 1 s" in text for text in told), told
        assert len(clips_of(service, "busy-line")) == 1


def test_a_normal_that_is_not_the_one_in_the_model_is_not_played(browser, service):
    clip = service.score(wav(humming(33)), "sound").json()["clip"]
    file = service.folder / "normals" / clip["nearest"]
    own = file.read_bytes()
    assert own == wav(humming(33))
    file.write_bytes(wav(humming(1033)))  # of another machine, with the same name
    try:
        place = f"machines/sound/clips/{clip['id']}"
        with opened(browser, service, place, expected=("status of 404",)) as page:
            normal = page.locator(".player", has_text="Nearest normal")
            expect(normal).to_contain_text("is not the one in the model")
            expect(normal.get_by_role("button")).to_have_count(0)
            expect(page.get_by_role("button", name="Switch to the other sound")).to_have_count(0)
            expect(page.get_by_role("button", name="Play this clip")).to_be_visible()
    finally:
        file.write_bytes(own)


def test_without_its_database_the_page_says_so(browser, tmp_path):
    with ServiceProcess(tmp_path) as alone:
        (tmp_path / "daco.db").rename(tmp_path / "away.db")
        with opened(browser, alone, expected=("status of 503",)) as page:
            expect(page.locator("main")).to_contain_text("database cannot be used at the moment")
            (tmp_path / "away.db").rename(tmp_path / "daco.db")
            expect(page.locator("main")).to_contain_text("press")


def test_only_one_of_two_recordings_sounds(browser, service):
    clip = service.score(wav(humming(5, seconds=10)), "sound").json()["clip"]
    with opened(browser, service, f"machines/sound/clips/{clip['id']}") as page:
        mine, other = (page.locator(".player", has_text=t) for t in ("This clip", "Nearest normal"))
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
        mine.get_by_role("button", name="Play this clip").click()
        expect(mine).to_have_class(sounding)
        page.keyboard.press("x")
        expect(other).to_have_class(sounding)
        expect(mine).not_to_have_class(sounding)
        page.locator(".clip-row[aria-current]").press("Space")
        expect(mine).to_have_class(sounding)
        expect(other).not_to_have_class(sounding)


# Alarms


def test_an_alarm_is_acknowledged_with_a_comment_and_stays_closed(browser, service):
    with opened(browser, service) as page:
        expect(page.locator("#live")).to_have_text("Live")
        raise_alarm(service, "press")
        expect(page.locator("#urgent")).to_have_text("New alarm: press.")
        expect(page).to_have_title(re.compile(r"^\(\d+\) Machines"))
        expect(page.locator('.card[data-id="press"]')).to_contain_text("Alarm")
        page.locator(".alarm.open", has_text="press").get_by_role("link").click()
        expect(page.locator("h1")).to_have_text("press")
        page.get_by_role("button", name="Acknowledge").click()
        page.get_by_label("Your name").fill("Kim")
        page.get_by_label("What did you find").fill("loose belt, tightened")
        page.locator("dialog").get_by_role("button", name="Acknowledge").click()
        expect(page.locator(".alarm.open")).to_have_count(0)
        page.reload()
        expect(page.locator(".past-box summary")).to_have_text("1 past alarm")
        page.locator(".past-box summary").click()
        expect(page.locator(".alarm")).to_contain_text("Acknowledged by Kim")
        expect(page.locator(".comment")).to_have_text("loose belt, tightened")
        expect(page).to_have_title(re.compile("press"))
    alarm = service.get("/v1/alarms", params={"machine": "press"}).json()["alarms"][0]
    assert (alarm["acknowledged_by"], alarm["comment"]) == ("Kim", "loose belt, tightened")
    assert alarm["closed_by"] == "acknowledgement"


def test_an_acknowledgement_that_fails_is_taken_back(browser, service):
    raise_alarm(service, "sound")
    with opened(browser, service, "machines/sound", expected=("ERR_FAILED",)) as page:
        page.route("**/acknowledge", lambda route: route.abort(), times=1)
        page.get_by_role("button", name="Acknowledge").click()
        page.get_by_label("Your name").fill("Kim")
        page.get_by_label("What did you find").fill("nothing")
        page.locator("dialog").get_by_role("button", name="Acknowledge").click()
        expect(page.locator("dialog .problem")).to_contain_text("Not saved")
        expect(page.locator(".alarm.open")).to_have_count(1)
        expect(page.get_by_label("What did you find")).to_have_value("nothing")
        page.locator("dialog").get_by_role("button", name="Acknowledge").click()
        expect(page.locator(".alarm.open")).to_have_count(0)


def test_an_alarm_is_answered_and_its_clips_say_so(browser, service):
    raise_alarm(service, "answered")
    with opened(browser, service, "machines/answered") as page:
        page.get_by_role("button", name="Acknowledge").click()
        page.get_by_label("What was it?").select_option("false alarm")
        page.get_by_label("Your name").fill("Kim")
        page.locator("dialog").get_by_role("button", name="Acknowledge").click()
        page.locator(".past-box summary").click()
        expect(page.locator(".past")).to_contain_text("Acknowledged by Kim, ")
        expect(page.locator(".past")).to_contain_text(": a false alarm.")
        page.reload()
        expect(page.locator(".clip-panel")).to_contain_text("Answered: a false alarm.")
        page.locator(".clip-panel").get_by_role("button", name="Fault").click()
        page.get_by_label("Your name").fill("Lee")
        page.locator("dialog").get_by_role("button", name="Save").click()
        expect(page.locator(".clip-panel")).to_contain_text("Answered: a fault.")
        expect(page.locator(".clip-row[aria-current] .tag")).to_have_text("fault")
        page.get_by_text("How daco decides").click()
        expect(page.locator(".decisions").first).to_contain_text(
            "from the training recordings only"
        )
        expect(page.locator(".decisions").first).to_contain_text("1 of 1 clip with a fault")
    answers = service.get("/v1/machines/answered/feedback").json()["answers"]
    assert [each["answered_by"] for each in answers] == ["Lee", "Kim", "Kim", "Kim"]


def test_a_machine_is_declared_healthy_and_what_was_learned_is_forgotten(browser, tmp_path):
    with (
        ServiceProcess(tmp_path, "--adapt") as service,
        opened(browser, service, "machines/press", expected=("status of 404",)) as page,
    ):
        service.score(normal(), "press")
        page.get_by_text("How daco decides").click()
        page.get_by_role("button", name="Declare healthy").click()
        expect(page.locator("dialog")).to_contain_text("daco would learn the fault")
        page.get_by_label("Number of healthy clips").fill("30")
        page.get_by_label("Your name").fill("Kim")
        page.get_by_role("button", name="It is healthy").click()
        expect(page.locator(".decisions").first).to_contain_text(
            "The next 30 clips count as healthy"
        )
        service.score(normal(), "press")
        expect(page.locator(".decisions").first).to_contain_text(
            "The next 29 clips count as healthy"
        )
        page.get_by_role("button", name="Forget what was learned").click()
        page.get_by_role("button", name="Forget it").click()
        expect(page.locator(".decisions").first).to_contain_text("Nothing has been learned yet.")


def test_the_keyboard_alone_leads_to_an_acknowledgement(browser, service):
    raise_alarm(service, "keyboard")
    with opened(browser, service) as page:
        expect(page.locator('.card[data-id="keyboard"]')).to_contain_text("Alarm")
        tab_to(page, "a", "keyboard")
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("keyboard")
        expect(page.locator("h1")).to_be_focused()
        tab_to(page, "button", "Acknowledge")
        page.keyboard.press("Enter")
        expect(page.get_by_label("Your name")).to_be_focused()
        page.keyboard.type("Kim")
        page.keyboard.press("Tab")
        page.keyboard.type("seen")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator(".alarm.open")).to_have_count(0)
        expect(page.locator("h1")).to_be_focused()  # and not lost with the button


def test_the_keyboard_walks_the_chart_and_the_list(browser, service):
    add_clips(service, "keyboard", [0.1, 0.99, 0.3, 0.4])
    with opened(browser, service, "machines/keyboard") as page:
        chart = page.get_by_role("slider", name="Score history")
        expect(page.locator(".clip-row").nth(3)).to_contain_text("clip_00000.wav")
        chart.press("Home")
        expect(chart).to_have_attribute("aria-valuetext", re.compile("score 0.100, normal"))
        chart.press("Shift+ArrowRight")
        expect(chart).to_have_attribute("aria-valuetext", re.compile("score 0.990, anomalous"))
        expect(page.locator(".tooltip")).to_contain_text("clip_00001.wav")
        chart.press("Enter")
        expect(page.locator(".clip-panel h2")).to_have_text("clip_00001.wav")
        page.locator(".clip-row[aria-current]").press("ArrowUp")
        expect(page.locator(".clip-panel h2")).to_have_text("clip_00002.wav")
        expect(page.locator(".clip-row[aria-current]")).to_be_focused()


def test_pointing_at_a_clip_tells_what_it_is_and_a_tap_shows_it(browser, service, furnished):
    with opened(browser, service, "machines/furnished", PHONE, has_touch=True) as page:
        chart, tooltip = page.locator(".chart"), page.locator(".tooltip")
        expect(page.locator(".chosen-point")).to_be_attached()
        expect(page.locator(".alarm.open")).to_be_visible()  # above the chart
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


# Live


def test_what_others_send_appears_without_a_reload(browser, service):
    with opened(browser, service, "machines/live") as first, opened(browser, service) as second:
        expect(first.locator("#live")).to_have_text("Live")
        expect(second.locator("#live")).to_have_text("Live")
        service.score(normal(), "live", name="from-the-line.wav")
        expect(first.locator(".clip-row")).to_contain_text("from-the-line.wav")
        expect(second.locator('.card[data-id="live"]')).to_contain_text("just now")
        send(first, "from-the-page.wav", normal(7))
        expect(first.locator(".clip-row")).to_have_count(2)
        expect(second.locator('.card[data-id="live"] .spark-line')).to_have_attribute(
            "d", re.compile("^M[^L]+L[^L]+$")
        )


def test_the_page_recovers_when_the_service_comes_back(browser, folder, tmp_path):
    normals = ("--normals", str(folder / "normals"))
    with ServiceProcess(tmp_path, *normals) as before:
        lost = ("ERR_CONNECTION", "ERR_INCOMPLETE", "ERR_EMPTY")
        with opened(browser, before, "machines/press", expected=lost) as page:
            expect(page.locator("#live")).to_have_text("Live")
            before.end(signal.SIGKILL)
            expect(page.locator("#live")).not_to_have_text("Live")
            with ServiceProcess(tmp_path, *normals, "--port", str(before.port)) as after:
                after.score(normal(), "press", name="meanwhile.wav")
                expect(page.locator("#live")).to_have_text("Live")
                expect(page.locator(".clip-row")).to_contain_text("meanwhile.wav")


# Addresses


def test_addresses_can_be_kept_and_the_back_button_works(browser, service):
    clip = service.score(normal(), "kept-line", name="kept.wav").json()["clip"]
    with opened(browser, service) as page:
        page.get_by_role("link", name="kept line").click()
        page.get_by_role("link", name="7 days").click()
        expect(page.locator(".range[aria-current]")).to_have_text("7 days")
        page.locator(".clip-row").first.click()
        expect(page.locator(".clip-panel h2")).to_have_text("kept.wav")
        place = f"#/machines/kept-line/clips/{clip['id']}?range=7d"
        expect(page).to_have_url(re.compile(re.escape(place) + "$"))
        address = page.url
        for place in ("kept-line?range=7d", "kept-line", "#/"):
            page.go_back()
            expect(page).to_have_url(re.compile(re.escape(place) + "$"))
        expect(page.locator("h1")).to_have_text("Machines")
        page.goto("about:blank")
        page.goto(address)
        expect(page.locator(".clip-panel h2")).to_have_text("kept.wav")


def test_what_is_not_there_is_said(browser, service):
    with opened(browser, service, "machines/press/clips/999999", expected=("404",)) as page:
        expect(page.locator(".clip-panel")).to_contain_text("There is no clip 999999.")
        page.goto(f"{service.url}/#/machines/nobody")
        expect(page.locator("main")).to_contain_text("There is no machine 'nobody'.")


# What the machine is like


def test_a_stale_calibration_shows_its_rate_and_its_remedy(browser, service):
    add_clips(service, "drifting", [0.99 if row % 4 == 0 else 0.2 for row in range(200)])
    with opened(browser, service, "machines/drifting") as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        banner = page.get_by_role("region", name="Calibration")
        expect(banner).to_contain_text(
            "This points to the machine. 25 % of the last 200 clips are anomalous; of a healthy "
            "machine about 10 % would be."
        )
        expect(banner).to_contain_text("Listen to the anomalous clips first: they may be faults.")
        banner.get_by_role("button", name="Copy the command").click()
        expect(page.locator("#polite")).to_have_text("Copied.")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == "daco calibrate drifting.daco NEW_NORMALS --domain source"


def test_the_normals_are_listed_with_the_command_that_removes_one(browser, service):
    with opened(browser, service, "machines/answered") as page:
        page.get_by_text("Normals of the model").click()
        expect(page.locator(".normals tbody tr")).to_have_count(20)
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        more = page.get_by_role("button", name="Show more")
        more.evaluate("button => { button.click(); button.click(); }")
        expect(page.locator(".normals tbody tr")).to_have_count(40)
        assert len([url for url in asked if "offset=20" in url]) == 1
        page.get_by_role("button", name="Remove").first.click()
        name = page.locator(".normals tbody td").first.inner_text().strip()
        expect(page.locator(".decisions .command")).to_contain_text("daco update answered.daco")
        expect(page.locator(".decisions .command")).to_contain_text(name)


def test_ten_thousand_clips_are_drawn_as_few_points_without_losing_the_extremes(browser, service):
    scores = [0.5 + 0.3 * math.sin(row / 9) + 0.1 * math.sin(row) for row in range(10_000)]
    scores[1234], scores[4321] = 0.999, 0.001
    add_clips(service, "long", scores, spacing=30)
    with opened(browser, service, "machines/long?range=7d") as page:
        expect(page.locator(".reading")).to_contain_text("of 10,00")
        # the anomalous one is among the last that are loaded
        expect(page.locator(".anomalous-points")).to_have_attribute("d", re.compile("^M[^M]+$"))
        assert 500 < page.locator(".normal-points").get_attribute("d").count("M") < 9000
        highest, lowest = (
            page.evaluate(
                """kind => { const box = document.querySelector(kind).getBBox();
                return [box.y, box.y + box.height]; }""",
                f".{kind}-points",
            )
            for kind in ("anomalous", "normal")
        )
        assert highest[0] < lowest[0] < lowest[1]


def test_an_answer_that_comes_late_throws_no_loaded_clip_away(browser, service):
    """A page that opens while the live stream opens asks twice, for 500 clips and for 50."""
    add_clips(service, "late", [0.5] * 1200, spacing=30)
    held, released = [], []

    def hold(route):
        if released:
            route.continue_()
        else:
            held.append(route)

    with opened(browser, service, "machines/unheard") as page:
        page.route(re.compile("/late/.*limit=50(&|$)"), hold)
        page.evaluate(
            """async () => {
                window.state = await import(new URL("static/state.js", location.href));
                const first = window.state.catchUp("late", 500);
                window.second = window.state.catchUp("late", 50);
                await first;
                await window.state.reachBack("late", 0);
            }"""
        )
        released.append(True)
        for route in held:
            route.continue_()
        loaded = page.evaluate(
            """async () => {
                await window.second;
                return window.state.historyOf("late").clips.length;
            }"""
        )
    assert loaded == 1200


@pytest.mark.parametrize(
    ("question", "older", "shown"),
    [
        ("Machines", {"machines": [], "problems": {}}, ".card"),
        ("Alarms", {"alarms": []}, ".alarm.open"),
    ],
)
def test_an_answer_that_was_overtaken_is_not_shown(
    browser, service, furnished, question, older, shown
):
    pattern, held = re.compile(rf"/v1/{question.lower()}(\?|$)"), []
    with opened(browser, service) as page:
        expect(page.locator(shown).first).to_be_visible()
        page.route(pattern, lambda route: route.fallback() if held else held.append(route))
        page.evaluate(
            """async question => {
                const state = await import(new URL("static/state.js", location.href));
                window.first = state[`refresh${question}`]();
                await state[`refresh${question}`]();
            }""",
            question,
        )
        held[0].fulfill(json=older)
        page.evaluate("() => window.first")
        assert page.locator(shown).count() > 0


def test_an_answer_from_before_an_event_does_not_undo_it(browser, service):
    held = []
    with opened(browser, service) as page:
        status = page.locator('.card[data-id="told"] .chip')
        expect(page.locator("#live")).to_have_text("Live")
        expect(status).to_have_text("No data")
        page.route(re.compile("/v1/machines$"), lambda route: held.append(route))
        page.evaluate(
            """async () => {
                const state = await import(new URL("static/state.js", location.href));
                window.refreshed = state.refreshMachines();
            }"""
        )
        older = service.get("/v1/machines").json()
        service.score(normal(), "told")
        expect(status).to_have_text("OK")
        for route in held:
            route.fulfill(json=older)
        page.evaluate("() => window.refreshed")
        assert status.inner_text() == "OK"


def test_a_clip_that_arrives_while_the_history_is_loaded_is_kept(browser, service):
    held = []
    with opened(browser, service, "machines/unheard") as page:
        expect(page.locator("#live")).to_have_text("Live")
        page.route(re.compile("/meanwhile/history"), lambda route: held.append(route))
        page.evaluate(
            """async () => {
                window.state = await import(new URL("static/state.js", location.href));
                window.caught = window.state.catchUp("meanwhile");
            }"""
        )
        older = service.get("/v1/machines/meanwhile/history").json()
        clip = service.score(normal(), "meanwhile").json()["clip"]
        page.wait_for_function("() => window.state.historyOf('meanwhile').clips.length === 1")
        for route in held:
            route.fulfill(json=older)
        loaded = page.evaluate(
            """async () => {
                await window.caught;
                return window.state.historyOf("meanwhile").clips.map(clip => clip.id);
            }"""
        )
    assert loaded == [clip["id"]]


def test_text_of_others_is_inert(browser, service):
    raise_alarm(service, "naughty", name="<img src=x onerror=alert(3)>.wav")
    with opened(browser, service) as page:
        expect(page.get_by_role("link", name=NAUGHTY)).to_be_visible()
        page.goto(f"{service.url}/#/machines/naughty")
        expect(page.locator("h1")).to_have_text(NAUGHTY)
        expect(page.locator(".clip-panel h2")).to_have_text("<img src=x onerror=alert(3)>.wav")
        page.get_by_role("button", name="Acknowledge").click()
        page.get_by_label("Your name").fill("<script>alert(4)</script>")
        page.get_by_label("What did you find").fill("<img src=x onerror=alert(5)>")
        page.locator("dialog").get_by_role("button", name="Acknowledge").click()
        page.locator(".past-box summary").click()
        expect(page.locator(".comment")).to_have_text("<img src=x onerror=alert(5)>")
        page.locator(".chart").press("Home")
        expect(page.locator(".tooltip")).to_contain_text("<img src=x")
        assert page.locator("main script, main [onerror], body > script").count() == 0


# How it looks


@pytest.mark.parametrize("place", ["", "machines/furnished", "machines/unheard"])
def test_everything_fits_and_can_be_read_and_touched(browser, service, furnished, place):
    with opened(browser, service, place, has_touch=True) as page:
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
            ("unheard", "No data", "silent"),
        ):
            card = page.locator(f'.card[data-id="{machine}"]')
            expect(card.locator(".chip")).to_have_text(word)
            expect(card.locator(f".icon-{shape}")).to_be_visible()
        # those that need somebody come first
        order = page.locator(".card").evaluate_all("cards => cards.map(c => c.dataset.status)")
        assert order == sorted(order, key=["alarm", "stale", "silent", "ok"].index)


# The way in


def test_a_token_is_asked_for_and_kept_from_scripts(browser, tmp_path):
    refused = ("status of 401",)
    with (
        ServiceProcess(tmp_path, models=False, DACO_TOKEN=TOKEN) as service,
        opened(browser, service, expected=refused) as page,
    ):
        page.get_by_label("Token").fill("a guess")
        page.keyboard.press("Enter")
        expect(page.locator(".problem")).to_have_text("That is not the token of this service.")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("main")).to_contain_text("has no model yet")
        expect(page.locator("#live")).to_have_text("Live")
        assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [
            0,
            0,
            "",
        ]
        # the first model appears by itself
        model().save(tmp_path / "models" / "press.daco")
        expect(page.locator(".card")).to_contain_text("No clip has arrived yet.")
