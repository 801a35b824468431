// All machines at a glance: those that need somebody first.

import { alarmSection } from "./alarms.js";
import { paths } from "./api.js";
import { h, put, say } from "./dom.js";
import { allMachines, catchUp, historyOf, listen } from "./state.js";
import { SPARK_CLIPS, sparkline } from "./sparkline.js";
import { STATUS, STATUSES, ago, anomalousOf, count, oddnessText, rarity, isJudged, statusChip, verdictWords } from "./words.js";

const SEARCH_FROM = 12;

/** Draw the overview into `root` until `signal` ends it. */
export function mountOverview(root, { signal }) {
  const cards = new Map();
  const summary = h("p", { class: "lead" });
  const grid = h("ul", { class: "cards" });
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
    h("div", { class: "heading" }, h("h1", { tabindex: "-1" }, "Machines"), h("a", { class: "touch", href: paths.report() }, "Shift report"), search),
    summary, alarmSection({ machine: null, signal }), grid);

  function arrange() {
    const wanted = search.value.trim().toLowerCase();
    const found = (allMachines() ?? [])
      .filter((machine) => `${machine.title} ${machine.id}`.toLowerCase().includes(wanted))
      .sort((one, other) => rank(one) - rank(other) || one.title.localeCompare(other.title, "en", { numeric: true }));
    const order = found.map((machine) => cards.get(machine.id).element);
    if (order.length === grid.children.length && order.every((card, i) => grid.children[i] === card)) return;
    const focused = document.activeElement;
    put(grid, ...order);
    if (grid.contains(focused)) focused.focus();
  }

  function update() {
    const machines = allMachines();
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
    if (machines.length) arrange();
    else put(grid, noMachines());
  }

  listen("machines", update, signal);
  listen("history", (id) => cards.get(id)?.draw(), signal);
  update();
}

const rank = (machine) => STATUSES.indexOf(machine.status);

function inWords(machines) {
  return STATUSES.map((status) => {
    const n = machines.filter((machine) => machine.status === status).length;
    return n ? `${n} ${STATUS[status].many}` : null;
  }).filter(Boolean).join(", ");
}

function createCard(machine) {
  const title = h("a", { href: `#/machines/${encodeURIComponent(machine.id)}` });
  const status = h("span");
  const body = h("div", { class: "card-body" });
  const spark = h("div", { class: "card-spark" });
  const element = h("li", { class: "card", "data-id": machine.id },
    h("div", { class: "card-head" }, h("h2", {}, title), status), body, spark);
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
      say(title, now.title);
      put(status, statusChip(now.status));
      put(body, now.last ? lastClip(now.last) : h("p", { class: "muted" }, "No recording has arrived yet."), facts(now));
      draw();
    },
  };
}

function lastClip(clip) {
  if (!isJudged(clip)) return h("p", { class: "card-words" }, verdictWords(clip));
  return [
    h("p", { class: "score-line" },
      h("b", { class: clip.anomalous ? "score anomalous" : "score" }, oddnessText(clip)),
      h("span", {}, "oddness, limit 1")),
    h("p", { class: "card-words" }, rarity(clip)),
  ];
}

function facts(machine) {
  const day = machine.last_24h;
  return h("p", { class: "facts" },
    machine.last && h("span", {}, "recorded ", ago(machine.last.time)),
    day.clips > 0 && h("span", {}, `24 h: ${anomalousOf(day)}`),
    machine.open_alarms > 0 && h("b", { class: "anomalous" }, count(machine.open_alarms, "open alarm")),
    machine.problems.map((words) => h("span", { class: "problem" }, words)));
}

function noMachines() {
  return h("li", { class: "empty" }, "No machine is configured yet. Start with recordings of healthy ones: ", h("code", {}, "daco start RECORDINGS"));
}
