// The healthy recordings of a model, the most suspicious first: to listen to, or to remove.

import { get, paths } from "./api.js";
import { h, put } from "./dom.js";
import { command } from "./drift.js";
import { fileName } from "./words.js";

/** A table that is loaded when somebody opens it. */
export function normalsSection(id) {
  const rows = h("tbody", {});
  const more = h("button", { type: "button", class: "button", onclick: load }, "Show more");
  const removal = h("div", {});
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
    const remove = h("button", { type: "button", class: "quiet", onclick: () => showRemoval(normal.name) }, "Remove\u2026");
    const play = h("button", { type: "button", class: "quiet", onclick: () => listen(normal, play) }, "Listen");
    return h("tr", {}, h("td", {}, fileName(normal.name)), h("td", {}, normal.domain), h("td", {}, normal.warning), h("td", {}, play), h("td", {}, remove));
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

  function showRemoval(name) {
    const word = /^[\w./-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`;
    put(removal, h("p", {}, "Run this command where the model is. --undo restores the recording."), command(`daco update ${id}.daco --remove ${word}`));
  }

  return h("details", { class: "decisions", ontoggle: () => rows.childElementCount || load().catch(() => {}) },
    h("summary", {}, "Healthy recordings of the model"), h("div", { class: "wide" }, table), more, removal);
}
