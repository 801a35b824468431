// What is new: asked for every few seconds, with growing pauses while nobody answers.

import { h, put, say } from "./dom.js";
import { minutes } from "./words.js";

const EVERY = 3000;
const EVERY_HIDDEN = 30_000;
const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 10_000;
const OFFLINE_AFTER = 3;

let failures = 0;
let timer = null;
let lastHeard = null;
let stopped = true;
let asking = false;
let ask = async () => {};

/** `question()` asks the service once; a failure is tried again. */
export function startLive(question) {
  ask = question;
  addEventListener("online", askNow);
  addEventListener("offline", show);
  document.addEventListener("visibilitychange", () => document.hidden || askNow());
}

export function resumeLive() {
  stopped = false;
  failures = 0;
  askNow();
}

/** Until the page is signed in again. */
export function stopLive() {
  stopped = true;
  clearTimeout(timer);
}

export async function askNow() {
  if (stopped || asking) return;
  clearTimeout(timer);
  asking = true;
  let wait = document.hidden ? EVERY_HIDDEN : EVERY;
  try {
    await ask();
    failures = 0;
    lastHeard = Date.now();
  } catch {
    failures += 1;
    wait = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (failures - 1));
  }
  asking = false;
  show();
  // Many tabs must not ask at the same moment.
  if (!stopped) timer = setTimeout(askNow, wait * (0.85 + 0.3 * Math.random()));
}

function stateNow() {
  if (!failures && lastHeard) return "live";
  return navigator.onLine && failures <= OFFLINE_AFTER ? "reconnecting" : "offline";
}

function show() {
  const state = stateNow();
  const region = document.getElementById("live");
  const trying = lastHeard ? "Reconnecting\u2026" : "Connecting\u2026";
  const word = { live: "Live", reconnecting: trying, offline: "Offline" }[state];
  if (region.dataset.state !== state) {
    region.dataset.state = state;
    put(region,
      h("span", { class: "pulse", "aria-hidden": "true" }),
      h("span", { class: "live-word" }, word),
      state === "offline" && h("button", { type: "button", class: "quiet", onclick: askNow }, "Try now"));
  }
  region.title = state === "live" ? "New recordings appear by themselves."
    : `The page was last updated ${lastHeard ? `at ${minutes(lastHeard)}` : "earlier"}. It keeps trying to connect.`;
  say(region.querySelector(".live-word"), word);
}
