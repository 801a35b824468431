// All machines at a glance: those that need somebody first.

import { alarmSection } from "./alarms.js";
import { h, put, say } from "./dom.js";
import { allMachines, brokenModels, catchUp, historyOf, listen, refreshAlarms } from "./state.js";
import { SPARK_CLIPS, sparkline } from "./sparkline.js";
import { STATUS, ago, anomalousOf, count, scoreText, statusChip, thresholdText } from "./words.js";

const SEARCH_FROM = 12;

/** Draw the overview into `root` until `signal` ends it. */
export function mountOverview(root, { signal }) {
  const cards = new Map();
  const summary = h("p", { class: "lead" });
  const grid = h("ul", { class: "cards" });
  const broken = h("ul", { class: "broken" });
  const search = h("input", { type: "search", class: "search", placeholder: "Find a machine", "aria-label": "Find a machine", hidden: true, oninput: arrange });
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      catchUp(target.dataset.id, SPARK_CLIPS).catch(() => {});
    }
  }, { rootMargin: "200px" });
  signal.addEventListener("abort", () => seen.disconnect());
  put(root,
    h("div", { class: "heading" }, h("h1", { tabindex: "-1" }, "Machines"), search),
    summary, alarmSection({ machine: null, signal }), grid, broken);

  function arrange() {
    const wanted = search.value.trim().toLowerCase();
    const found = (allMachines() ?? [])
      .filter((machine) => `${machine.machine} ${machine.id}`.toLowerCase().includes(wanted))
      .sort((one, other) => rank(one) - rank(other) || one.machine.localeCompare(other.machine, "en", { numeric: true }));
    const order = found.map((machine) => cards.get(machine.id).element);
    if (order.length === grid.children.length && order.every((card, i) => grid.children[i] === card)) return;
    const focused = document.activeElement;
    put(grid, ...order);
    if (grid.contains(focused)) focused.focus();
  }

  function update() {
    const machines = allMachines();
    if (machines === null) return;
    const ids = new Set(machines.map((machine) => machine.id));
    for (const id of cards.keys()) if (!ids.has(id)) cards.delete(id);
    for (const machine of machines) {
      if (!cards.has(machine.id)) {
        cards.set(machine.id, createCard(machine));
        seen.observe(cards.get(machine.id).element);
      }
      cards.get(machine.id).update(machine);
    }
    search.hidden = machines.length < SEARCH_FROM;
    say(summary, inWords(machines));
    put(broken, Object.entries(brokenModels()).map(([file, why]) =>
      h("li", {}, h("b", {}, `${file} is not used: `), why)));
    if (machines.length) arrange();
    else put(grid, noMachines());
  }

  listen("machines", update, signal);
  listen("history", (id) => cards.get(id)?.draw(), signal);
  refreshAlarms().catch(() => {});
  update();
}

const rank = (machine) => STATUS[machine.status]?.rank ?? 9;

function inWords(machines) {
  const parts = ["alarm", "stale", "silent", "ok"].map((status) => {
    const n = machines.filter((machine) => machine.status === status).length;
    const word = { alarm: "in alarm", stale: "with stale calibration", silent: "without data", ok: "OK" }[status];
    return n ? `${n} ${word}` : null;
  });
  return parts.filter(Boolean).join(", ");
}

function createCard(machine) {
  const status = h("span");
  const body = h("div", { class: "card-body" });
  const spark = h("div", { class: "card-spark" });
  const element = h("li", { class: "card", "data-id": machine.id },
    h("div", { class: "card-head" },
      h("h2", {}, h("a", { href: `#/machines/${encodeURIComponent(machine.id)}` }, machine.machine)), status),
    body, spark);
  let shown = machine;

  function draw() {
    const clips = historyOf(shown.id)?.clips.slice(-SPARK_CLIPS) ?? [];
    put(spark, clips.length > 0 && sparkline(clips));
  }

  return {
    element,
    draw,
    update(now) {
      shown = now;
      element.dataset.status = now.status;
      put(status, statusChip(now.status));
      put(body, now.last ? lastScore(now) : h("p", { class: "muted" }, "No clip has arrived yet."), facts(now));
      draw();
    },
  };
}

function lastScore({ last }) {
  return h("p", { class: "score-line" },
    h("b", { class: last.alarm ? "score anomalous" : "score" }, scoreText(last.score, last.threshold)),
    h("span", {}, `${last.alarm ? "above threshold" : "threshold"} ${thresholdText(last.threshold)}`));
}

function facts(machine) {
  const day = machine.last_24h;
  return h("p", { class: "facts" },
    machine.last && h("span", {}, "heard ", ago(machine.last.received_at)),
    day.clips > 0 && h("span", { title: "In the last 24 hours" }, `24 h: ${anomalousOf(day)}`),
    machine.open_alarms > 0 && h("b", { class: "anomalous" }, count(machine.open_alarms, "open alarm")));
}

function noMachines() {
  return h("li", { class: "empty" },
    h("p", {}, "The folder of the service has no model yet. Make one from normal recordings of a machine:"),
    h("p", {}, h("code", {}, "daco fit RECORDINGS --out MODELS/press.daco")),
    h("p", {}, "The machine then appears here."));
}
