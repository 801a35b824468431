// What people say: what an alarm or a clip was, and that a machine is healthy.

import { get, paths, post } from "./api.js";
import { announce, h, put } from "./dom.js";
import { refreshMachines } from "./state.js";
import { isJudged } from "./words.js";

/** Kept while the page is open, so that ten alarms do not ask ten times. */
let lastName = "";

const CHOICES = [["", "Not known yet"], ["false alarm", "A false alarm: the machine is healthy"], ["fault", "A fault"]];

/** Ask a person, and hand `send` what they said; a failure is told where they can try again. */
export function ask({ title, about, help, action, withAnswer = false, withWords = true, clips = null, said = {}, problem = "", send }) {
  const by = h("input", { id: "say-by", name: "by", required: true, maxlength: "100", autocomplete: "name", value: lastName });
  const note = h("textarea", { id: "say-comment", name: "comment", rows: "3", maxlength: "2000" }, said.comment ?? "");
  const answer = h("select", { id: "say-answer" }, CHOICES.map(([value, words]) => h("option", { value, selected: value === (said.answer ?? "") }, words)));
  const number = h("input", { id: "say-clips", type: "number", min: "10", max: "500", required: true, value: said.clips ?? clips });
  const field = (input, words) => [h("label", { for: input.id }, words), input];
  const dialog = h("dialog", { class: "dialog", "aria-labelledby": "say-title" },
    h("form", { method: "dialog", onsubmit: tell },
      h("h2", { id: "say-title" }, title), h("p", { class: "muted" }, about),
      problem && h("p", { class: "problem", role: "alert" }, problem),
      withAnswer && field(answer, "What was it?"), clips !== null && field(number, "Number of healthy clips"),
      withWords && field(by, "Your name"), withWords && clips === null && field(note, "What did you find and do?"),
      h("p", { class: "muted" }, help),
      h("div", { class: "actions" },
        h("button", { type: "button", class: "button", onclick: () => dialog.close() }, "Cancel"),
        h("button", { type: "submit", class: "button primary" }, action))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  (lastName ? note : by).focus();

  async function tell() {
    lastName = by.value.trim();
    const words = { by: lastName, comment: note.value.trim(), answer: answer.value || said.answer, clips: Number(number.value) };
    try {
      await send(words);
      refreshMachines().catch(() => {});
    } catch (error) {
      ask({ title, about, help, action, withAnswer, withWords, clips, said: words, problem: `Not saved: ${error.message}`, send });
    }
  }
}

/** What a clip was: what somebody answered, and buttons to answer. */
export function answerRow(clip, onAnswer) {
  const open = (answer) => ask({
    title: answer === "fault" ? "This clip has a fault" : "This clip was a false alarm",
    about: clip.name, action: "Save", said: { answer },
    help: answer === "fault" ? "daco never learns from faults." : "The clip counts as normal from now on.",
    async send({ by, comment }) {
      const saved = await post(paths.clipAnswer(clip.id), { answer, by, comment });
      announce("Saved.");
      onAnswer(saved.clip);
    },
  });
  return h("div", { class: "answer" },
    clip.answer && h("b", {}, clip.answer === "fault" ? "Answered: a fault." : "Answered: a false alarm."),
    clip.alarm && clip.answer !== "false alarm" && h("button", { type: "button", class: "button", onclick: () => open("false alarm") }, "False alarm"),
    isJudged(clip) && clip.answer !== "fault" && h("button", { type: "button", class: "button", onclick: () => open("fault") }, clip.alarm ? "Fault" : "A fault was missed"));
}

/** What decisions rest on, what was learned since, and how often they were right. */
export function decisionSection() {
  const basis = h("p", {});
  const learned = h("p", {});
  const buttons = h("div", { class: "answer" });
  const rates = h("ul", {});
  const element = h("details", { class: "decisions" }, h("summary", {}, "How daco decides"), basis, learned, buttons, rates);
  let machine = null;

  const healthy = () => ask({
    title: "Declare the machine healthy", about: machine.machine, action: "It is healthy", clips: 100,
    help: "daco judges later clips by the next ones. Do this only if you know that the machine has no fault. Otherwise daco would learn the fault.",
    async send({ by, clips }) {
      await post(paths.healthy(machine.id), { by, clips });
      announce("The next clips count as healthy.");
    },
  });

  const reset = () => ask({
    title: "Forget what was learned", about: machine.machine, action: "Forget it", withWords: false,
    help: "The model alone decides again.",
    async send() {
      await post(paths.reset(machine.id), {});
      announce("Forgotten.");
    },
  });

  function update(now) {
    machine = now;
    basis.textContent = `The threshold of the model is estimated ${machine.basis}.`;
    if (element.open) refresh();
    const state = machine.adaptation;
    learned.hidden = buttons.hidden = !state;
    if (!state) return;
    learned.textContent = state.sentence;
    if (!buttons.childElementCount) {
      put(buttons, h("button", { type: "button", class: "button", onclick: healthy }, "Declare healthy\u2026"),
        h("button", { type: "button", class: "button", onclick: reset }, "Forget what was learned\u2026"));
    }
  }

  async function refresh() {
    const { sentences } = await get(paths.feedback(machine.id)).catch(() => ({ sentences: [] }));
    put(rates, sentences.map((words) => h("li", {}, words)));
  }

  element.addEventListener("toggle", () => element.open && refresh());
  return { element, update };
}
