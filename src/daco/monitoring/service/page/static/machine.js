// One machine: its alarms, its score history, its clips, and the clip that is looked at.

import { alarmSection } from "./alarms.js";
import { TONES, createChart } from "./chart.js";
import { createClipPanel } from "./clip.js";
import { createClipList } from "./clips.js";
import { coalesced, h, icon, put } from "./dom.js";
import { driftBanner } from "./drift.js";
import { normalsSection } from "./normals.js";
import { decisionSection } from "./people.js";
import { goTo, linkTo } from "./route.js";
import { catchUp, fetchClip, historyOf, listen, machine as machineOf, reachBack, refreshAlarms } from "./state.js";
import { ago, anomalousOf, count, percent, scoreText, statusChip, thresholdsText } from "./words.js";

const HOUR = 3_600_000;
const REDRAW_EVERY = 250;
const FEW_CLIPS = 500;
const RANGES = { "1h": ["1 h", HOUR], "24h": ["24 h", 24 * HOUR], "7d": ["7 days", 168 * HOUR], all: ["All", Infinity] };

/** Draw a machine into `root`; `update(route)` follows the address. */
export function mountMachine(root, { route, signal }) {
  const id = route.machine;
  const head = h("div", { class: "machine-head" });
  const banner = h("div");
  const chart = createChart({ onSelect: (clip) => select(clip, true) });
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
  });
  const title = h("h1", { tabindex: "-1" }, machineOf(id)?.machine ?? id);
  let selected = null;
  let problem = "";
  let passing = false;

  put(root,
    h("p", { class: "crumb" }, h("a", { href: "#/" }, icon("back"), "All machines")),
    h("div", { class: "heading" }, title, head),
    alarmSection({ machine: id, signal }),
    banner, decisions.element, normalsSection(id),
    h("section", { class: "history", "aria-label": "Score history" },
      h("div", { class: "heading" }, h("h2", {}, "Scores"), ranges),
      chart.element, h("div", { class: "under-chart" }, legend, reading)),
    h("div", { class: "beside" }, panel.element, list.element),
    firstSteps(id));
  panel.element.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() === "x" && !event.ctrlKey && !event.metaKey) panel.swap();
  });

  function summarise() {
    const machine = machineOf(id);
    if (!machine) return;
    title.textContent = machine.machine;
    const day = machine.last_24h;
    put(head, statusChip(machine.status),
      h("dl", { class: "figures" },
        figure("Last score", machine.last && h("span", { class: machine.last.alarm ? "anomalous" : "" }, scoreText(machine.last.score, machine.last.threshold))),
        figure("Threshold", thresholdsText(machine.thresholds)),
        figure("Last clip", machine.last && ago(machine.last.received_at)),
        figure("Last 24 h", day.clips > 0 && anomalousOf(day)),
        figure("False alarms allowed", percent(machine.false_alarm_rate, 1).replace(".0", ""))));
    put(banner,
      machine.problem && h("p", { class: "banner" }, icon("stale"), `A newer model file is not used: ${machine.problem}`),
      driftBanner(machine));
    decisions.update(machine);
    const domains = Object.entries(machine.domains);
    put(legend,
      h("li", {}, h("span", { class: "dot", "aria-hidden": "true" }), "normal"),
      h("li", {}, h("span", { class: "triangle", "aria-hidden": "true" }), "anomalous"),
      h("li", {}, h("span", { class: "square", "aria-hidden": "true" }), "not judged"),
      domains.length > 1 && h("li", { class: "muted" }, "domain:"),
      domains.length > 1 && domains.map(([name, n], i) => h("li", { title: count(n, "normal clip") },
        h("i", { class: `swatch tone-${Math.min(i, TONES - 1)}`, "aria-hidden": "true" }), name)));
    chart.update({ threshold: Math.max(...Object.values(machine.thresholds)), domains: domains.length > 1 ? Object.keys(machine.domains) : [] });
  }

  function drawRanges() {
    put(ranges, Object.entries(RANGES).map(([key, [words]]) =>
      h("a", { class: "range", href: linkTo({ ...route, range: key }), "aria-current": key === range() ? "true" : null }, words)));
  }

  /** The range of the address; else the last day, or everything where that is little or long ago. */
  function range() {
    if (route.range in RANGES) return route.range;
    const history = historyOf(id);
    const last = history?.clips.at(-1);
    const long = last && Date.now() - last.time > 24 * HOUR;
    const few = history?.loaded && history.complete && history.clips.length <= FEW_CLIPS;
    return long || few ? "all" : "24h";
  }

  function drawHistory() {
    const history = historyOf(id);
    const clips = history?.clips ?? [];
    const loaded = history?.loaded ?? false;
    const now = Date.now();
    const span = RANGES[range()][1];
    const shown = clips.filter((clip) => clip.time >= now - span);
    const note = problem || (!loaded ? "Loading\u2026" : clips.length ? "No clip in this range of time." : "No clip has arrived yet.");
    chart.update({ clips: shown, ...extentInTime(shown, span, now), note, selected });
    list.update({ clips: shown, selected, note });
    root.classList.toggle("is-empty", loaded && !clips.length);
    reading.textContent = inWords(shown, history, now - span);
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

  /** The clip of the address, else that of an open alarm, else the newest. */
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
      panel.say(`Clip ${route.clip}: ${error.message}`);
    }
  }

  async function load() {
    try {
      await catchUp(id);
      problem = "";
      await follow();
      drawRanges();
      drawHistory();
      const span = RANGES[range()][1];
      if (historyOf(id).clips.length) await reachBack(id, Date.now() - span);
    } catch (error) {
      [problem, passing] = [error.message, error.passing];
      drawHistory();
    }
  }

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
  refreshAlarms(id).catch(() => {});
  panel.say("Choose a clip to look at it and to listen to it.");
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

function figure(name, value) {
  return value ? h("div", {}, h("dt", {}, name), h("dd", {}, value)) : null;
}

/** On a phone the clip is above the list and below the chart; where it can be seen nothing moves. */
function bringIntoView(element) {
  const { top } = element.getBoundingClientRect();
  if (top < 0 || top > innerHeight - 150) element.scrollIntoView();
}

/** Where the time axis begins and ends, with some air beside the points. */
function extentInTime(clips, span, now) {
  if (span !== Infinity) return { from: now - span, to: now + 0.01 * span };
  if (!clips.length) return { from: now - HOUR, to: now };
  let [first, last] = [Infinity, -Infinity];
  for (const { time } of clips) [first, last] = [Math.min(first, time), Math.max(last, time)];
  const air = Math.max(1000, 0.01 * (last - first));
  return { from: first - air, to: last + air };
}

function inWords(clips, history, from) {
  if (!clips.length) return "";
  const anomalous = clips.filter((clip) => clip.alarm).length;
  const all = anomalousOf({ clips: clips.length, anomalous });
  if (history.loading) return `${all}; loading older ones\u2026`;
  const cut = !history.complete && history.clips[0].time > from;
  return cut ? `${all}; older ones are not shown` : all;
}

/** What to do while nothing was heard. */
function firstSteps(id) {
  const address = new URL(`v1/machines/${encodeURIComponent(id)}/score`, location.href);
  return h("section", { class: "empty first-steps", "aria-label": "First steps" },
    h("h2", {}, "No clip has arrived yet"),
    h("p", {}, "Drop a recording anywhere on this page, or send one:"),
    h("p", {}, h("code", {}, `curl -H "Content-Type: audio/wav" --data-binary @clip.wav ${address}`)),
    h("p", {}, "The clip then appears here."));
}
