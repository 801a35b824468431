// Messages to people and systems: what waits, what was refused and set aside, and who did what.

import { get, paths, post } from "./api.js";
import { announce, h, icon, put } from "./dom.js";
import { may, titleOf } from "./state.js";
import { count, when } from "./words.js";

const EVERY = 5000;
const KINDS = { "alarm.opened": "New alarm", "alarm.cleared": "Alarm is over", clip: "Recording", test: "Test message" };

/** Draw the messages into `root` until `signal` ends it. */
export function mountMessages(root, { signal }) {
  const receivers = h("ul", { class: "receivers" });
  const refused = h("ul", { class: "alarms" });
  const results = h("div", { role: "status" });
  const audit = h("tbody");
  const test = h("button", { type: "button", class: "button", onclick: sendTest }, "Send a test message");
  put(root,
    h("p", { class: "crumb" }, h("a", { href: "#/" }, icon("back"), "All machines")),
    h("div", { class: "heading" }, h("h1", { tabindex: "-1" }, "Messages"), may("administrator") && test),
    results, receivers,
    h("section", { class: "set-aside", "aria-label": "Refused messages" }, h("h2", {}, "Refused messages"), refused),
    may("administrator") && h("section", { "aria-label": "Who did what" }, h("h2", {}, "Who did what"),
      h("div", { class: "wide" }, h("table", { class: "normals" },
        h("thead", {}, h("tr", {}, ["When", "Who", "What", "Machine", ""].map((title) => h("th", { scope: "col" }, title)))), audit))));

  async function load() {
    const listed = await get(paths.messages(), {}, { signal });
    put(receivers, listed.receivers.length
      ? listed.receivers.map((name) => h("li", {}, h("b", {}, name), listed.pending[name] ? ` \u2013 ${count(listed.pending[name], "message")} waiting` : " \u2013 nothing waits"))
      : h("li", { class: "empty" }, "Nobody gets messages yet: fill in the table ", h("code", {}, "[notify]"), " of daco.toml."));
    put(refused, listed.refused.length ? listed.refused.map(row) : h("li", { class: "empty" }, "None."));
    if (may("administrator")) {
      const { entries } = await get(paths.audit(), { limit: 50 }, { signal });
      put(audit, entries.map((entry) => h("tr", {}, h("td", {}, when(entry.at)), h("td", {}, entry.who), h("td", {}, entry.action),
        h("td", {}, entry.machine === null ? "" : titleOf(entry.machine)), h("td", {}, entry.detail ?? ""))));
    }
  }

  function row(message) {
    const act = (action, words) => h("button", { type: "button", class: "button", onclick: () => tell(message, action) }, words);
    return h("li", { class: "alarm", "data-message": message.id },
      h("div", { class: "alarm-text" },
        h("p", {}, h("b", {}, KINDS[message.kind] ?? message.kind), message.machine ? `, ${titleOf(message.machine)}` : "", ` to ${message.receiver}, ${when(message.created_at)}`),
        h("p", { class: "muted" }, message.error ?? "")),
      may("administrator") && h("div", { class: "alarm-buttons" }, act("resend", "Send again"), act("discard", "Discard")));
  }

  async function tell(message, action) {
    try {
      await post(paths.message(message.id, action));
      announce(action === "resend" ? "It is sent again." : "Discarded.");
    } catch (error) {
      put(results, h("p", { class: "problem" }, error.message));
    }
    load().catch(() => {});
  }

  async function sendTest() {
    test.disabled = true;
    put(results, h("p", { class: "muted" }, "Sending\u2026"));
    try {
      const { results: said } = await post(paths.testMessage());
      const lines = Object.entries(said).map(([name, problem]) => h("p", { class: problem ? "problem" : "" }, `${name}: ${problem ?? "delivered"}`));
      put(results, lines.length ? lines : h("p", {}, "Nobody gets messages yet."));
    } catch (error) {
      put(results, h("p", { class: "problem" }, error.message));
    }
    test.disabled = false;
    load().catch(() => {});
  }

  const failed = (error) => signal.aborted || put(results, h("p", { class: "problem" }, error.message));
  const timer = setInterval(() => document.hidden || load().catch(failed), EVERY);
  signal.addEventListener("abort", () => clearInterval(timer));
  load().catch(failed);
}
