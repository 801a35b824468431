// What people say and do: what a recording was, that a machine is healthy, a note, out of service.

import { get, paths, post } from "./api.js";
import { announce, h, put } from "./dom.js";
import { dropClip, may, refreshMachines } from "./state.js";
import { answerWord, date, isJudged } from "./words.js";

const CHOICES = [["", "Not known yet"], ["false alarm", "A false alarm: the machine is healthy"], ["fault", "A fault"]];
const SHELVES = [[30, "30 minutes"], [120, "2 hours"], [480, "8 hours"], [1440, "1 day"], [10080, "7 days"]];

const options = (choices, chosen) => choices.map(([value, words]) => h("option", { value, selected: value === chosen }, words));

/** Ask a person, and hand `send` what they said; a failure is told where they can try again. */
export function ask({ title, about, help, action, withAnswer = false, withMinutes = false, withComment = true, label = "What did you find and do?", clips = null, said = {}, problem = "", send }) {
  const note = h("textarea", { id: "say-comment", rows: "3", maxlength: "4000" }, said.comment ?? "");
  const answer = h("select", { id: "say-answer" }, options(CHOICES, said.answer ?? ""));
  const minutes = h("select", { id: "say-minutes" }, options(SHELVES, said.minutes ?? 120));
  const number = h("input", { id: "say-clips", type: "number", min: "10", max: "500", required: true, value: said.clips ?? clips });
  const field = (input, words) => [h("label", { for: input.id }, words), input];
  const dialog = h("dialog", { class: "dialog", "aria-labelledby": "say-title" },
    h("form", { method: "dialog", onsubmit: tell },
      h("h2", { id: "say-title" }, title), h("p", { class: "muted" }, about),
      problem && h("p", { class: "problem", role: "alert" }, problem),
      withAnswer && field(answer, "What was it?"), withMinutes && field(minutes, "For how long?"),
      clips !== null && field(number, "Number of healthy recordings"),
      withComment && clips === null && field(note, label),
      h("p", { class: "muted" }, help),
      h("div", { class: "actions" },
        h("button", { type: "button", class: "button", onclick: () => dialog.close() }, "Cancel"),
        h("button", { type: "submit", class: "button primary" }, action))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();

  async function tell() {
    const words = { comment: note.value.trim(), answer: withAnswer ? answer.value || null : null, minutes: Number(minutes.value), clips: Number(number.value) };
    try {
      await send(words);
      refreshMachines().catch(() => {});
    } catch (error) {
      ask({ title, about, help, action, withAnswer, withMinutes, withComment, label, clips, said: words, problem: `Not saved: ${error.message}`, send });
    }
  }
}

const button = (words, onclick) => h("button", { type: "button", class: "button", onclick }, words);

/** What a recording was: what somebody answered, and buttons to answer. */
export function answerRow(clip, onAnswer) {
  const open = (answer) => ask({
    title: answer === "fault" ? "This recording has a fault" : "This was a false alarm",
    about: clip.name, action: "Save",
    help: answer === "fault" ? "daco never learns from faults." : "The recording counts as healthy from now on.",
    async send({ comment }) {
      const saved = await post(paths.clipAnswer(clip.id), { answer, comment });
      announce("Saved.");
      onAnswer(saved.clip);
    },
  });
  const remove = () => ask({
    title: "Delete the recording", about: clip.name, action: "Delete", withComment: false,
    help: "The recording, its sound and its result are removed for good. Who deleted it is kept.",
    async send() {
      await post(paths.clip(clip.id), null, "DELETE");
      announce("Deleted.");
      dropClip(clip);
    },
  });
  return h("div", { class: "answer" },
    clip.answer && h("b", {}, `Answered: ${answerWord(clip.answer)}.`),
    may("operator") && clip.anomalous && clip.answer !== "false alarm" && button("False alarm", () => open("false alarm")),
    may("operator") && isJudged(clip) && clip.answer !== "fault" && button(clip.anomalous ? "Fault" : "A fault was missed", () => open("fault")),
    may("administrator") && clip.has_audio && clip.answer !== "fault" && button("Add to the healthy ones\u2026", () => reviseModel(clip.machine, "add", [clip], "Add to the healthy recordings")),
    may("administrator") && button("Delete\u2026", remove));
}

/** Add recordings to the model's healthy ones, or set its alarm limit by them. */
export function reviseModel(id, action, clips, title) {
  ask({
    title, about: clips.length === 1 ? clips[0].name : `${clips.length} recordings`, action: "They are healthy", withComment: false,
    help: "Listen to them before: daco would learn a fault among them and never report one like it. You can undo this below the healthy recordings of the model.",
    async send() {
      const { sentence } = await post(paths.model(id), { action, clips: clips.map((clip) => clip.id) });
      announce(sentence);
      ask({ title: "Done", about: sentence, action: "Close", withComment: false, help: "Later recordings are judged by it.", send: () => {} });
    },
  });
}

/** What the alarm limit rests on, what was learned since, and what can be done about a machine. */
export function decisionSection() {
  const basis = h("p");
  const learned = h("p");
  const buttons = h("div", { class: "answer" });
  const rates = h("ul");
  const element = h("details", { class: "decisions" }, h("summary", {}, "How daco decides"), basis, learned, rates, buttons);
  let machine = null;

  const healthy = () => ask({
    title: "Declare the machine healthy", about: machine.title, action: "It is healthy", clips: 100,
    help: "daco judges later recordings by the next ones. Do this only if you know that the machine has no fault. Otherwise daco would learn the fault.",
    async send({ clips }) {
      await post(paths.healthy(machine.id), { clips });
      announce("The next recordings count as healthy.");
    },
  });
  const reset = () => ask({
    title: "Forget what was learned", about: machine.title, action: "Forget it", withComment: false,
    help: "The model alone decides again.",
    async send() {
      await post(paths.reset(machine.id));
      announce("Forgotten.");
    },
  });
  const service = () => {
    const out = !machine.out_of_service_since;
    ask({
      title: out ? "Take the machine out of service" : "Back in service", about: machine.title, action: out ? "Out of service" : "In service",
      help: out ? "Its recordings are judged and stored, without alarms and messages." : "Its recordings raise alarms again.", label: "Why?",
      async send({ comment }) {
        await post(paths.service(machine.id), { out, comment });
        announce("Saved.");
      },
    });
  };
  const note = () => ask({
    title: "Write a note", about: machine.title, action: "Save", help: "It appears on the chart.", label: "What was done?",
    async send({ comment }) {
      await post(paths.notes(machine.id), { text: comment });
      announce("Saved.");
    },
  });

  function update(now) {
    machine = now;
    basis.textContent = limitWords(machine);
    if (element.open) refresh();
    learned.hidden = !machine.adaptation?.sentence;
    learned.textContent = machine.adaptation?.sentence ?? "";
    put(buttons,
      may("operator") && button("Write a note\u2026", note),
      may("operator") && machine.adaptation && button("Declare healthy\u2026", healthy),
      may("operator") && machine.adaptation?.sentence && button("Forget what was learned\u2026", reset),
      may("administrator") && button(machine.out_of_service_since ? "Back in service\u2026" : "Out of service\u2026", service));
  }

  async function refresh() {
    const { sentences } = await get(paths.feedback(machine.id)).catch(() => ({ sentences: [] }));
    put(rates, sentences.map((words) => h("li", {}, words)));
  }

  element.addEventListener("toggle", () => element.open && refresh());
  return { element, update };
}

/** The alarm limit and its origin. */
function limitWords(machine) {
  if (machine.false_alarm_rate === null) return "There is no usable model.";
  const n = Math.round(1 / machine.false_alarm_rate);
  const rule = { every: "each of them raises an alarm", off: "none raises an alarm" }[machine.rule] ?? (/ an? /.test(machine.rule) ? "evidence that adds up raises an alarm" : `${machine.rule} raise an alarm`);
  return `The limit of oddness is 1: about 1 in ${n} healthy recordings is beyond it, and ${rule}. ${machine.expectation.join(" ")} `
    + `It is estimated ${machine.basis.replace(/ \([^)]*\)/g, "")}; the model has ${machine.normals} healthy recordings.`
    + (machine.out_of_service_since ? ` Out of service since ${date(machine.out_of_service_since)}, by ${machine.out_of_service_by}.` : "");
}
