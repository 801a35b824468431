// The healthy recordings of a model, the most suspicious first: to listen to, or to remove.

import { get, paths, post } from "./api.js";
import { announce, h, put } from "./dom.js";
import { ask } from "./people.js";
import { may } from "./state.js";
import { fileName } from "./words.js";

/** A table that is loaded when somebody opens it. */
export function normalsSection(id) {
  const rows = h("tbody", {});
  const more = h("button", { type: "button", class: "button", onclick: load }, "Show more");
  const done = h("p", { class: "normals-done", role: "status" });
  const table = h("table", { class: "normals" },
    h("thead", {}, h("tr", {}, ["Healthy recording", "Operating condition", "Remark", "", ""].map((title) => h("th", { scope: "col" }, title)))), rows);
  let next = 0;

  async function load() {
    if (next === null || more.disabled) return;
    more.disabled = true;
    try {
      const page = await get(paths.normals(id), { offset: next });
      next = page.next;
      more.hidden = next === null;
      rows.append(...page.normals.map(row));
    } finally {
      more.disabled = false;
    }
  }

  function row(normal) {
    const remove = h("button", { type: "button", class: "quiet", onclick: () => revise("Remove a healthy recording", normal.name, "Remove", { action: "remove", normals: [normal.name] }, "The model is made without it at once. You can undo this.") }, "Remove\u2026");
    const play = h("button", { type: "button", class: "quiet", onclick: () => listen(normal, play) }, "Listen");
    return h("tr", {}, h("td", {}, fileName(normal.name)), h("td", {}, normal.domain), h("td", {}, normal.warning), h("td", {}, play), h("td", {}, may("administrator") && remove));
  }

  const sound = new Audio();
  let sounding = null;

  function listen(normal, button) {
    sound.pause();
    if (sounding) sounding.textContent = "Listen";
    if (sounding === button) { sounding = null; return; }
    sounding = button;
    button.textContent = "Stop";
    sound.src = paths.normalAudio(id, normal.row);
    sound.onended = () => { button.textContent = "Listen"; sounding = null; };
    sound.play().catch(() => { button.textContent = "Not found"; sounding = null; });
  }

  /** Change the model, after a question. */
  function revise(title, about, action, body, help) {
    ask({
      title, about, action, help, withComment: false,
      async send() {
        const { sentence } = await post(paths.model(id), body);
        announce(sentence);
        put(done, sentence);
        put(rows);
        next = 0;
        setTimeout(() => load().catch(() => {}), 1500);
      },
    });
  }

  const back = () => revise("Go back to the model before", "The last change of the model is undone.", "Go back", { action: "undo" }, "Going back twice restores the change.");

  return h("details", { class: "decisions", ontoggle: () => rows.childElementCount || load().catch(() => {}) },
    h("summary", {}, "Healthy recordings of the model"), h("div", { class: "wide" }, table), more,
    may("administrator") && h("button", { type: "button", class: "button", onclick: back }, "Undo the last change\u2026"), done);
}
