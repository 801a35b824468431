// Alarms: what opened them, and what a person answers.

import { paths, post } from "./api.js";
import { announce, h, icon, put } from "./dom.js";
import { ask } from "./people.js";
import { alarmsOf, listen, machine as machineOf, setAlarm } from "./state.js";
import { ago, count, when } from "./words.js";

/** The alarms of one machine, or the open ones of all where `machine` is null. */
export function alarmSection({ machine, signal }) {
  const title = h("h2", { tabindex: "-1" });
  const open = h("ul", { class: "alarms" });
  const past = h("ul", { class: "alarms past" });
  const pastTitle = h("summary");
  const pastBox = h("details", { class: "past-box" }, pastTitle, past);
  const openBox = h("div", { class: "open-alarms" }, title, open);
  const section = h("section", { class: "alarm-section", "aria-label": "Alarms" }, openBox, machine !== null && pastBox);
  const rows = new Map();

  function update() {
    const all = alarmsOf(machine);
    const opened = all.filter((alarm) => !alarm.closed_at);
    const closed = all.filter((alarm) => alarm.closed_at);
    openBox.hidden = !opened.length;
    title.textContent = count(opened.length, "open alarm");
    show(open, opened);
    show(past, closed);
    pastTitle.textContent = count(closed.length, "past alarm");
    pastBox.hidden = !closed.length;
  }

  /** Where the keyboard goes when an alarm leaves the list: to the others, or to the top. */
  function afterwards() {
    (openBox.hidden ? document.querySelector("main h1") : title).focus();
  }

  function show(list, alarms) {
    const nodes = alarms.map((alarm) => {
      // The same alarm asked for again keeps its row: a new one would take the focus away.
      const drawn = rows.get(alarm.id);
      const said = JSON.stringify(alarm);
      if (drawn && drawn.said === said) return drawn.node;
      const node = row(alarm, machine === null, afterwards);
      rows.set(alarm.id, { said, node });
      return node;
    });
    if (nodes.length !== list.children.length || nodes.some((node, i) => list.children[i] !== node)) put(list, ...nodes);
  }

  listen("alarms", update, signal);
  listen("machines", update, signal);
  update();
  return section;
}

function row(alarm, withMachine, afterwards) {
  const known = machineOf(alarm.machine);
  const clip = `#/machines/${encodeURIComponent(alarm.machine)}/clips/${alarm.clip_id}`;
  const contributing = alarm.clip_ids.length;
  return h("li", { class: alarm.closed_at ? "alarm" : "alarm open", "data-alarm": alarm.id },
    icon(alarm.closed_at ? "ok" : "alarm"),
    h("div", { class: "alarm-text" },
      h("p", {},
        withMachine && h("b", { class: "alarm-machine" }, known?.machine ?? alarm.machine),
        `${when(alarm.opened_at)} (`, ago(alarm.opened_at), `), ${count(contributing, "clip")} ${alarm.kind}. `,
        h("a", { href: clip }, "Listen", h("span", { class: "hidden" }, ` to the clip that opened alarm ${alarm.id}`))),
      ending(alarm)),
    (!alarm.acknowledged_at || alarm.kind === "anomalous") && h("button", {
      type: "button", class: alarm.closed_at ? "button" : "button primary",
      onclick: () => answer(alarm, known?.machine ?? alarm.machine, afterwards),
    }, !alarm.acknowledged_at ? "Acknowledge" : alarm.answer ? "Change the answer" : "Answer"));
}

function ending(alarm) {
  if (alarm.acknowledged_at) {
    return h("p", { class: "muted" },
      `Acknowledged by ${alarm.acknowledged_by}, ${when(alarm.acknowledged_at)}`,
      alarm.answer && `: ${alarm.answer === "fault" ? "a fault" : "a false alarm"}`, alarm.saving ? ": saving\u2026" : ".",
      alarm.comment && h("q", { class: "comment" }, alarm.comment));
  }
  if (alarm.closed_at) return h("p", { class: "muted" }, `The machine recovered, ${when(alarm.closed_at)}. Nobody has acknowledged the alarm.`);
  return null;
}

/** Ask who answers for the alarm. What is shown at once is taken back when the service refuses. */
function answer(alarm, machineName, afterwards) {
  const first = !alarm.acknowledged_at;
  ask({
    title: first ? "Acknowledge the alarm" : "What was the alarm?", action: first ? "Acknowledge" : "Save",
    about: `${machineName}, ${when(alarm.opened_at)}`, withAnswer: alarm.kind === "anomalous", said: { answer: alarm.answer },
    help: "The answer is kept with the alarm. daco never learns from faults. The machine can raise a new alarm afterwards.",
    async send({ by, comment, answer: said }) {
      const now = new Date().toISOString();
      const taken = first ? { acknowledged_at: now, acknowledged_by: by, comment } : {};
      setAlarm({ ...alarm, ...taken, closed_at: alarm.closed_at ?? now, saving: true });
      requestAnimationFrame(afterwards);
      try {
        const path = said ? paths.alarmAnswer(alarm.id) : paths.acknowledge(alarm.id);
        const { alarm: saved } = await post(path, said ? { by, comment, answer: said } : { by, comment });
        setAlarm(saved);
        announce("The alarm is acknowledged.");
      } catch (error) {
        setAlarm(alarm);
        throw error;
      }
    },
  });
}
