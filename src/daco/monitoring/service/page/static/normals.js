// The normals of a model, the most suspicious first, and the command that removes one.

import { get, paths } from "./api.js";
import { h, put } from "./dom.js";
import { command } from "./drift.js";
import { fileName, minus } from "./words.js";

/** A table that is loaded when somebody opens it. */
export function normalsSection(id) {
  const rows = h("tbody", {});
  const more = h("button", { type: "button", class: "button", onclick: load }, "Show more");
  const removal = h("div", {});
  const table = h("table", { class: "normals" },
    h("thead", {}, h("tr", {}, ["Normal", "Domain", "To the nearest other", "p", "Remark", ""].map((title) => h("th", { scope: "col" }, title)))), rows);
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
    return h("tr", {}, h("td", {}, fileName(normal.name)), h("td", {}, normal.domain),
      h("td", {}, minus(normal.nearest_distance.toPrecision(3))), h("td", {}, normal.p_value.toFixed(2)),
      h("td", {}, normal.warning), h("td", {}, remove));
  }

  function showRemoval(name) {
    const word = /^[\w./-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`;
    put(removal, h("p", {}, "Run this command where the model is. --undo restores the normal."), command(`daco update ${id}.daco --remove ${word}`));
  }

  return h("details", { class: "decisions", ontoggle: () => rows.childElementCount || load().catch(() => {}) },
    h("summary", {}, "Normals of the model"), h("div", { class: "wide" }, table), more, removal);
}
