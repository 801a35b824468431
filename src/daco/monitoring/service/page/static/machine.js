// One machine: its alarms, its history, its recordings, and the one that is looked at.

import { alarmSection } from "./alarms.js";
import { get, paths } from "./api.js";
import { TONES, createChart } from "./chart.js";
import { createClipPanel } from "./clip.js";
import { createClipList } from "./clips.js";
import { coalesced, h, icon, put } from "./dom.js";
import { driftBanner } from "./drift.js";
import { normalsSection } from "./normals.js";
import { decisionSection, reviseModel } from "./people.js";
import { goTo, linkTo } from "./route.js";
import { alarmsOf, catchUp, fetchClip, historyOf, listen, loadAlarms, machine as machineOf, reach } from "./state.js";
import { ago, anomalousOf, duration, isJudged, oddnessText, percent, rarity, statusChip } from "./words.js";

const HOUR = 3_600_000;
const DAY = /^\d{4}-\d\d-\d\d$/;
const REDRAW_EVERY = 250;
const FEW_CLIPS = 500;
/** Words, milliseconds, and by what a long range is summed up. */
const RANGES = {
  "1h": ["1 h", HOUR], "24h": ["24 h", 24 * HOUR], "7d": ["7 days", 168 * HOUR],
  "30d": ["30 days", 720 * HOUR, "hour"], "1y": ["1 year", 8760 * HOUR, "day"], all: ["All", Infinity],
};

/** Draw a machine into `root`; `update(route)` follows the address. */
export function mountMachine(root, { route, signal }) {
  const id = route.machine;
  const head = h("div", { class: "machine-head" });
  const banner = h("div");
  const chart = createChart({ onSelect: (clip) => select(clip, true), onZoom: (time) => goTo({ machine: id, clip: route.clip, range: dayOf(time) }) });
  const jump = h("input", { type: "date", "aria-label": "Jump to a day", onchange: () => jump.value && goTo({ machine: id, clip: route.clip, range: jump.value }) });
  const ranges = h("div", { class: "ranges", role: "group", "aria-label": "Range of time" });
  const legend = h("ul", { class: "legend" });
  const reading = h("p", { class: "muted reading" });
  const decisions = decisionSection();
  const panel = createClipPanel({ onAnswer: () => list.update({}) });
  const list = createClipList({
    linkTo: (clip) => linkTo({ machine: id, clip: clip.id, range: route.range }),
    onSelect: (clip) => select(clip),
    onListen: () => panel.toggle(),
    onSwap: () => panel.swap(),
    onCalibrate: (clips) => reviseModel(id, "calibrate", clips, "Set the alarm limit"),
  });
  const title = h("h1", { tabindex: "-1" }, machineOf(id)?.title ?? id);
  let selected = null;
  let trend = [];
  let notes = [];
  let problem = "";
  let passing = false;

  put(root,
    h("p", { class: "crumb" }, h("a", { href: "#/" }, icon("back"), "All machines")),
    h("div", { class: "heading" }, title, head),
    alarmSection({ machine: id, signal }),
    banner, decisions.element, normalsSection(id),
    h("section", { class: "history", "aria-label": "History" },
      h("div", { class: "heading" }, h("h2", {}, "Oddness"), h("div", { class: "answer" }, jump, ranges)),
      chart.element, h("div", { class: "under-chart" }, legend, reading, h("div", { class: "links" }, h("a", { href: paths.table(id), download: `${id}.csv` }, "Download as CSV")))),
    h("div", { class: "beside" }, panel.element, list.element),
    firstSteps(id));
  panel.element.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() === "x" && !event.ctrlKey && !event.metaKey) panel.swap();
  });

  function summarise() {
    const machine = machineOf(id);
    if (!machine) return;
    title.textContent = machine.title;
    const day = machine.last_24h;
    const last = machine.last;
    put(head, statusChip(machine.status),
      h("dl", { class: "figures" },
        figure("Oddness, limit 1", last && isJudged(last) && h("span", { class: last.anomalous ? "anomalous" : "", title: rarity(last) }, oddnessText(last))),
        figure("Last recording", last && ago(last.time)),
        figure("Last 24 h", day.clips > 0 && anomalousOf(day)),
        figure("Alarm", alarmWords(machine)),
        figure("Evidence of a fault", machine.evidence_limit && evidenceBar(machine)),
        figure("Expected", machine.expect_every && `every ${duration(machine.expect_every)}`),
        figure("Comes from", machine.source)));
    put(banner, machine.problems.map((words) => h("p", { class: "banner" }, icon("stale"), words)), driftBanner(machine));
    decisions.update(machine);
    const conditions = machine.conditions.length > 1 ? machine.conditions : [];
    put(legend,
      h("li", {}, h("span", { class: "dot", "aria-hidden": "true" }), "healthy"),
      h("li", {}, h("span", { class: "triangle", "aria-hidden": "true" }), "sounds different"),
      h("li", {}, h("span", { class: "square", "aria-hidden": "true" }), "not judged"),
      conditions.length > 1 && h("li", { class: "muted" }, "operating condition:"),
      conditions.map((name, i) => h("li", {}, h("i", { class: `swatch tone-${Math.min(i, TONES - 1)}`, "aria-hidden": "true" }), name)));
    put(legend, ...legend.children, h("li", {}, h("i", { class: "line", "aria-hidden": "true" }), "smoothed"),
      machine.evidence_limit && h("li", {}, h("i", { class: "line dashed", "aria-hidden": "true" }), "evidence of a fault, as a share of its limit"));
    chart.update({ conditions, limit: machine.evidence_limit });
  }

  function drawRanges() {
    put(ranges, Object.entries(RANGES).map(([key, [words]]) =>
      h("a", { class: "range", href: linkTo({ ...route, range: key }), "aria-current": key === range() ? "true" : null }, words)));
  }

  /** The range of the address; else the last day, or everything where that is little or long ago. */
  function range() {
    if (route.range in RANGES || DAY.test(route.range ?? "")) return route.range;
    const history = historyOf(id);
    const last = history?.clips.at(-1);
    const long = last && Date.now() - last.at > 24 * HOUR;
    const few = history?.loaded && history.complete && history.clips.length <= FEW_CLIPS;
    return long || few ? "all" : "24h";
  }

  function drawHistory() {
    const history = historyOf(id);
    const loaded = history?.loaded ?? false;
    const { from, to, period } = span();
    const clips = history?.clips ?? [];
    const shown = clips.filter((clip) => clip.at >= from && clip.at <= to);
    const note = problem || (!loaded ? "Loading\u2026" : clips.length ? "No recording in this range of time." : "No recording has arrived yet.");
    chart.update({ clips: period ? [] : shown, trend: period ? trend : [], notes, ...extentInTime(shown, from, to), note, selected });
    jump.value = DAY.test(route.range ?? "") ? route.range : "";
    list.update({ clips: shown, selected, note });
    root.classList.toggle("is-empty", loaded && !clips.length);
    reading.textContent = period ? `Mean of each ${period}, and the highest value above it` : inWords(shown, history);
  }

  /** The times of the range, and by what it is summed up. */
  function span() {
    const key = range();
    if (!(key in RANGES)) {
      const from = new Date(`${key}T00:00`).getTime();
      return { from, to: from + 24 * HOUR };
    }
    const [, length, period] = RANGES[key];
    return { from: Date.now() - length, to: Infinity, period };
  }

  async function select(clip, show = false) {
    if (clip.id === selected) return;
    selected = clip.id;
    goTo({ machine: id, clip: clip.id, range: route.range }, { replace: route.clip !== null });
    present(clip);
    list.update({ selected }, { reveal: true });
    if (show) bringIntoView(panel.element);
  }

  function present(clip) {
    chart.update({ selected: clip.id });
    const machine = machineOf(id);
    if (machine) panel.show(clip, machine);
  }

  /** The clip of the address, else the newest. */
  async function follow() {
    try {
      if (route.clip !== null) {
        if (route.clip === selected) return;
        selected = route.clip;
        const clip = await fetchClip(route.clip, id);
        if (!signal.aborted && route.clip === clip.id) present(clip);
        list.update({ selected }, { reveal: true });
      } else if (selected === null && historyOf(id)?.clips.length) {
        const clip = historyOf(id).clips.at(-1);
        selected = clip.id;
        present(clip);
        list.update({ selected });
      }
    } catch (error) {
      panel.say(`Recording ${route.clip}: ${error.message}`);
    }
  }

  async function load() {
    try {
      await catchUp(id);
      problem = "";
      await follow();
      drawRanges();
      drawHistory();
      const { from, to, period } = span();
      await loadTrend(period ?? "day", from);
      if (historyOf(id).clips.length && !historyOf(id).complete && !period) await reach(id, from, Number.isFinite(to) ? to : null);
    } catch (error) {
      [problem, passing] = [error.message, error.passing];
      drawHistory();
    }
  }

  async function loadTrend(period, from) {
    const since = Number.isFinite(from) ? new Date(from).toISOString() : null;
    const found = await get(paths.trend(id), { period, since }, { signal });
    trend = found.points.map((point) => ({ ...point, at: Date.parse(point.start) }));
    notes = found.notes;
    drawHistory();
  }

  /** The recording of the next or the one before, among those that opened alarms. */
  function stepAlarm(direction) {
    const opened = alarmsOf(id).map((alarm) => alarm.clip_id).filter(Boolean).sort((one, other) => one - other);
    const next = direction > 0 ? opened.find((clip) => clip > (selected ?? 0)) : opened.findLast((clip) => clip < (selected ?? Infinity));
    if (next) goTo({ machine: id, clip: next, range: route.range });
  }

  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, dialog")) return;
    if (event.key === "n") stepAlarm(1);
    if (event.key === "p") stepAlarm(-1);
  }, { signal });

  const drawSoon = coalesced(() => signal.aborted || drawHistory(), REDRAW_EVERY);
  listen("history", (changed) => changed === id && (drawSoon(), follow()), signal);
  listen("machines", () => {
    summarise();
    drawSoon();
    if (problem && passing) load();
  }, signal);
  const clock = setInterval(drawSoon, 30_000);
  signal.addEventListener("abort", () => {
    clearInterval(clock);
    panel.end();
    root.classList.remove("is-empty");
  });
  loadAlarms(id).catch(() => {});
  panel.say("Choose a recording to look at it and to listen to it.");
  summarise();
  drawRanges();
  drawHistory();
  load();

  return {
    update(next) {
      const wider = next.range !== route.range;
      const chosen = next.clip !== null && next.clip !== selected;
      route = next;
      follow();
      if (chosen) bringIntoView(panel.element);
      drawRanges();
      drawHistory();
      if (wider) load();
    },
  };
}

/** The alarm rule in words. */
function alarmWords({ rule }) {
  if (rule === "every") return "at every recording that sounds different";
  if (rule === "off") return "switched off";
  return / an? /.test(rule) ? `when evidence adds up, about ${rule.replace(" a ", rule.startsWith("1 ") ? " false alarm a " : " false alarms a ")}` : `at ${rule} recordings`;
}

/** How far the evidence of a fault is from its alarm: a slow fault is seen coming. */
function evidenceBar({ evidence, evidence_limit: limit }) {
  const share = Math.min(1, evidence / limit);
  return h("span", {}, h("meter", { min: "0", max: "1", value: `${share}`, title: `${evidence.toFixed(1)} of ${limit.toFixed(1)}` }), ` ${percent(share)} of its limit`);
}

/** The local day of a time, as dates are written in addresses. */
const dayOf = (time) => new Date(time - 60_000 * new Date(time).getTimezoneOffset()).toISOString().slice(0, 10);

function figure(name, value) {
  return value ? h("div", {}, h("dt", {}, name), h("dd", {}, value)) : null;
}

/** On a phone the clip is above the list and below the chart; where it can be seen nothing moves. */
function bringIntoView(element) {
  const { top } = element.getBoundingClientRect();
  if (top < 0 || top > innerHeight - 150) element.scrollIntoView();
}

/** Where the time axis begins and ends, with some air beside the points. */
function extentInTime(clips, from, to) {
  const now = Date.now();
  if (Number.isFinite(to)) return { from, to };
  if (Number.isFinite(from)) return { from, to: now + 0.01 * (now - from) };
  if (!clips.length) return { from: now - HOUR, to: now };
  let [first, last] = [Infinity, -Infinity];
  for (const { at } of clips) [first, last] = [Math.min(first, at), Math.max(last, at)];
  const air = Math.max(1000, 0.01 * (last - first));
  return { from: first - air, to: last + air };
}

function inWords(clips, history) {
  if (!clips.length) return "";
  const anomalous = clips.filter((clip) => clip.anomalous).length;
  const all = anomalousOf({ clips: clips.length, anomalous });
  if (history.loading) return `${all}; loading older ones\u2026`;
  return history.cut ? `${all}; older ones are not shown` : all;
}

/** What to do while nothing was recorded. */
function firstSteps(id) {
  const address = new URL(`v1/machines/${encodeURIComponent(id)}/score`, location.href);
  return h("section", { class: "empty first-steps", "aria-label": "First steps" },
    h("h2", {}, "No recording has arrived yet"),
    h("p", {}, "Recordings come from the source of daco.toml, or over the network: ",
      h("code", {}, `curl -H "Content-Type: audio/wav" --data-binary @clip.wav ${address}`)));
}
