// The list of recordings: newest first, page by page; arrows walk it, Space listens.

import { h, put } from "./dom.js";
import { may } from "./state.js";
import { clock, count, date, fileName, oddnessText, shape, stateWord, tagOf } from "./words.js";

const ROWS = 15;
const FEWEST = 10;

/** `linkTo(clip)` is a clip's address; `onSelect(clip)`, `onListen()` and `onSwap()` follow keys. */
export function createClipList({ linkTo, onSelect, onListen, onSwap, onCalibrate }) {
  const title = h("h2", {}, "Recordings");
  const only = h("input", { type: "checkbox", id: "only", onchange: () => { first = 0; draw(); } });
  const rows = h("ol", { class: "clip-rows", onkeydown });
  const newer = h("button", { type: "button", class: "button", onclick: () => turn(-1) }, "Newer");
  const older = h("button", { type: "button", class: "button", onclick: () => turn(1) }, "Older");
  const where = h("span", { class: "muted", role: "status" });
  const chosen = new Map();
  let choosing = false;
  const choose = h("button", { type: "button", class: "button", onclick: () => { choosing = !choosing; chosen.clear(); draw(); } });
  const calibrate = h("button", { type: "button", class: "button primary", onclick: () => onCalibrate([...chosen.values()]) });
  const element = h("section", { class: "clip-list", "aria-label": "Recordings" },
    h("div", { class: "heading" }, title, h("label", { class: "check", for: "only" }, only, "only different ones")),
    rows, h("div", { class: "pager" }, newer, where, older),
    may("administrator") && h("div", { class: "answer" }, choose, calibrate));
  let data = { clips: [], selected: null, note: "" };
  let first = 0;

  /** Newest first. */
  function found() {
    const all = data.clips;
    return (only.checked ? all.filter((clip) => clip.anomalous) : all).toReversed();
  }

  function draw() {
    const clips = found();
    first = Math.max(0, Math.min(first, Math.floor((clips.length - 1) / ROWS) * ROWS));
    const page = clips.slice(first, first + ROWS);
    const focused = rows.contains(document.activeElement) ? document.activeElement.dataset.clip : null;
    put(rows, ...page.map(row));
    if (!page.length) put(rows, h("li", { class: "empty" }, only.checked && data.clips.length ? "None sounds different in this range." : data.note));
    newer.disabled = first === 0;
    older.disabled = first + ROWS >= clips.length;
    choose.textContent = choosing ? "Cancel" : "Set the alarm limit by recordings\u2026";
    calibrate.hidden = !choosing;
    calibrate.disabled = chosen.size < FEWEST;
    calibrate.textContent = chosen.size < FEWEST ? `Choose ${FEWEST} healthy ones (${chosen.size})` : `Set the limit by these ${chosen.size}`;
    where.textContent = clips.length ? `${first + 1}\u2013${first + page.length} of ${count(clips.length, "recording")}` : "";
    const stop = rows.querySelector("[aria-current]") ?? rows.querySelector("a");
    if (stop) stop.tabIndex = 0;
    if (focused) rows.querySelector(`[data-clip="${focused}"]`)?.focus();
  }

  function row(clip) {
    const time = new Date(clip.time).toDateString() === new Date().toDateString()
      ? clock(clip.time) : `${date(clip.time)} ${clock(clip.time)}`;
    const box = choosing && h("input", { type: "checkbox", "aria-label": `Choose ${clip.name}`, checked: chosen.has(clip.id), disabled: !clip.has_audio, onchange: pick });
    function pick() {
      if (!chosen.delete(clip.id)) chosen.set(clip.id, clip);
      draw();
    }
    return h("li", { class: choosing ? "choosing" : null }, box,
      h("a", { href: linkTo(clip), class: "clip-row", tabindex: "-1", "data-clip": clip.id, "aria-current": clip.id === data.selected ? "true" : null },
        shape(clip),
        h("span", { class: "clip-time" }, time),
        h("span", { class: "clip-score" }, oddnessText(clip),
          h("span", { class: "hidden" }, ` ${stateWord(clip)}`)),
        fileName(clip.name, { class: "clip-name" }),
        tagOf(clip) && h("span", { class: "tag" }, tagOf(clip))));
  }

  function turn(direction) {
    first += direction * ROWS;
    draw();
    const links = rows.querySelectorAll("a");
    return direction > 0 ? links[0] : links[links.length - 1];
  }

  function onkeydown(event) {
    const links = [...rows.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const target = {
      ArrowDown: () => links[at + 1] ?? (older.disabled ? null : turn(1)),
      ArrowUp: () => links[at - 1] ?? (newer.disabled ? null : turn(-1)),
      Home: () => links[0],
      End: () => links.at(-1),
    }[event.key];
    if (event.key === " ") onListen();
    else if (event.key.toLowerCase() === "x") onSwap();
    else if (target) go(target());
    else return;
    event.preventDefault();
  }

  function go(link) {
    if (!link) return;
    link.focus();
    const clip = data.clips.find((each) => each.id === Number(link.dataset.clip));
    if (clip) onSelect(clip);
  }

  return {
    element,
    /** `reveal` turns to the page that holds the selected clip. */
    update(changes, { reveal = false } = {}) {
      data = { ...data, ...changes };
      const at = reveal ? found().findIndex((clip) => clip.id === data.selected) : -1;
      if (at >= 0) first = Math.floor(at / ROWS) * ROWS;
      draw();
    },
  };
}
