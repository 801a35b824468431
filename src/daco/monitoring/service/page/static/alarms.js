// Alarms: what opened them, what is known since, and what a person does about them.

import { paths, post } from "./api.js";
import { announce, h, icon, put } from "./dom.js";
import { ask } from "./people.js";
import { alarmsOf, isOpen, listen, may, setAlarm, titleOf } from "./state.js";
import { KINDS, ago, answerWord, count, when } from "./words.js";

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
    const opened = all.filter(isOpen);
    const closed = all.filter((alarm) => !isOpen(alarm));
    const active = opened.some((alarm) => alarm.state === "active");
    openBox.hidden = !opened.length;
    openBox.classList.toggle("calm", !active);
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
      const said = JSON.stringify([alarm, titleOf(alarm.machine)]);
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

const nameOf = (alarm) => (alarm.machine === null ? "daco" : titleOf(alarm.machine));

function row(alarm, withMachine, afterwards) {
  const act = (...action) => () => answer(alarm, afterwards, ...action);
  return h("li", { class: `alarm ${alarm.state}${isOpen(alarm) ? " open" : ""}`, "data-alarm": alarm.id },
    icon({ active: "alarm", cleared: "ok" }[alarm.state] ?? "silent"),
    h("div", { class: "alarm-text" },
      h("p", {},
        withMachine && h("b", { class: "alarm-machine" }, nameOf(alarm)),
        h("b", {}, KINDS[alarm.kind] ?? alarm.kind), alarm.detail ? `: ${alarm.detail} ` : ". ",
        `Since ${when(alarm.opened_at)} (`, ago(alarm.opened_at), ")",
        alarm.n_clips > 0 && `, ${count(alarm.n_clips, "recording")}`, ". ",
        alarm.clip_id && alarm.machine && h("a", { href: `#/machines/${encodeURIComponent(alarm.machine)}/clips/${alarm.clip_id}` },
          "Listen", h("span", { class: "hidden" }, ` to the recording that opened alarm ${alarm.id}`))),
      history(alarm)),
    may("operator") && h("div", { class: "alarm-buttons" }, buttons(alarm, act)));
}

/** What can be done about an alarm, by its state. */
function buttons(alarm, act) {
  const button = (words, action, primary = false) => h("button", { type: "button", class: primary ? "button primary" : "button", onclick: action }, words);
  const isAboutSound = alarm.kind === "fault" || alarm.kind === "trend";
  return [
    !alarm.acknowledged_at && button("Acknowledge", act("acknowledge"), alarm.state === "active"),
    ["active", "acknowledged"].includes(alarm.state) && button("Shelve\u2026", act("shelve")),
    alarm.state === "shelved" && button("Unshelve", act("unshelve")),
    alarm.acknowledged_at && isAboutSound && button(alarm.answer ? "Change the answer" : "Answer", act("answer")),
    alarm.acknowledged_at && alarm.state !== "cleared" && button("Clear\u2026", act("clear")),
  ];
}

/** What happened to an alarm, the latest last. */
function history(alarm) {
  const parts = [
    alarm.state === "shelved" && `Shelved until ${when(alarm.shelved_until)}.`,
    alarm.acknowledged_at && `Acknowledged by ${alarm.acknowledged_by}, ${when(alarm.acknowledged_at)}${alarm.answer ? `: ${answerWord(alarm.answer)}` : ""}.`,
    alarm.cleared_at && (alarm.cleared_by === "recovery" || !alarm.cleared_by ? `Over since ${when(alarm.cleared_at)}.` : `Cleared by ${alarm.cleared_by}, ${when(alarm.cleared_at)}.`),
    alarm.cleared_at && !alarm.acknowledged_at && "Nobody has acknowledged it.",
  ].filter(Boolean);
  if (!parts.length && !alarm.comment) return null;
  return h("p", { class: "muted" }, parts.join(" "), alarm.comment && h("q", { class: "comment" }, alarm.comment));
}

const DIALOGS = {
  acknowledge: { title: "Acknowledge the alarm", action: "Acknowledge", help: "It stays the one alarm of this fault until the machine sounds healthy again. daco never learns from faults." },
  shelve: { title: "Shelve the alarm", action: "Shelve", help: "It is quiet until then, and active again if its cause lasts." },
  unshelve: { title: "Unshelve the alarm", action: "Unshelve", help: "It is active again." },
  answer: { title: "What was the alarm?", action: "Save", help: "The answer is kept with the alarm. daco never learns from faults." },
  clear: { title: "Clear the alarm", action: "Clear", help: "Its cause is over. The machine can raise a new alarm." },
};

function answer(alarm, afterwards, action) {
  const isAboutSound = alarm.kind === "fault" || alarm.kind === "trend";
  ask({
    ...DIALOGS[action],
    about: `${nameOf(alarm)}, ${when(alarm.opened_at)}`,
    withAnswer: isAboutSound && ["acknowledge", "answer"].includes(action),
    withMinutes: action === "shelve",
    said: { answer: alarm.answer },
    async send({ comment, answer: said, minutes }) {
      const path = said && action === "acknowledge" ? "answer" : action;
      const body = { comment, ...(path === "answer" ? { answer: said } : {}), ...(action === "shelve" ? { minutes } : {}) };
      const { alarm: saved } = await post(paths.alarm(alarm.id, path), body);
      setAlarm(saved);
      announce("Saved.");
      requestAnimationFrame(afterwards);
    },
  });
}
