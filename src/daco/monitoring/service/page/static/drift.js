// An alarm limit that is out of date: what was seen, what it points to, and what to do first.

import { announce, h, icon } from "./dom.js";

/** How the alarm limit of a machine holds: a line, or a banner with the remedy where it does not. */
export function driftBanner({ drift }) {
  if (!drift) return null;
  if (!drift.stale) return h("p", { class: "muted calibration" }, drift.sentence);
  return h("section", { class: "banner", "aria-label": "Alarm limit" },
    icon("stale"),
    h("div", {},
      h("p", {}, h("b", {}, "The alarm limit is out of date. "), drift.sentence),
      h("p", {}, drift.caution),
      drift.remedy && command(drift.remedy)));
}

/** A command, and a button that copies it. */
export function command(text) {
  const button = h("button", { type: "button", class: "button", "aria-label": "Copy the command", onclick: copy }, icon("copy"), "Copy");
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      announce("Copied.");
      button.lastChild.textContent = "Copied";
      setTimeout(() => { button.lastChild.textContent = "Copy"; }, 2000);
    } catch {
      // No clipboard without HTTPS or permission: let the person copy what is selected.
      getSelection().selectAllChildren(button.previousSibling);
    }
  }
  return h("p", { class: "command" }, h("code", {}, text), button);
}
