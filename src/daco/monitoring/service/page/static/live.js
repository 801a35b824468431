// The stream of events: kept open, opened again with growing pauses, and honest about its state.

import { paths } from "./api.js";
import { h, put, say } from "./dom.js";
import { minutes } from "./words.js";

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 10_000;
const OFFLINE_AFTER = 3;
const HIDDEN_FOR = 60_000;
const KINDS = ["clip", "alarm", "machine", "model"];

let source = null;
let failures = 0;
let timer = null;
let lastHeard = null;
let handlers = null;
let stopped = true;

/** `onEvent(kind, data)` for each event; `onOpen()` to catch up after `onLost()`. */
export function startLive({ onEvent, onOpen, onLost }) {
  handlers = { onEvent, onOpen, onLost };
  addEventListener("online", retryNow);
  addEventListener("offline", show);
  let hiding = null;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding);
    // A browser has six connections to a host: tabs nobody looks at must not hold them all.
    if (document.hidden) hiding = setTimeout(pause, HIDDEN_FOR);
    else retryNow();
  });
}

export function resumeLive() {
  stopped = false;
  retryNow();
}

/** Until the page is signed in again. */
export function stopLive() {
  stopped = true;
  pause();
}

function pause() {
  clearTimeout(timer);
  if (source) handlers.onLost();
  source?.close();
  source = null;
}

function retryNow() {
  if (stopped || source?.readyState === EventSource.OPEN) return;
  pause();
  connect();
}

function connect() {
  show();
  const opened = new EventSource(paths.events());
  source = opened;
  opened.onopen = () => {
    failures = 0;
    lastHeard = Date.now();
    show();
    handlers.onOpen();
  };
  opened.onerror = () => {
    if (source !== opened) return;
    pause();
    failures += 1;
    const wait = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (failures - 1));
    timer = setTimeout(connect, wait * (0.75 + 0.5 * Math.random()));
    show();
  };
  for (const kind of KINDS) {
    opened.addEventListener(kind, (event) => {
      lastHeard = Date.now();
      handlers.onEvent(kind, JSON.parse(event.data));
    });
  }
}

function stateNow() {
  if (source?.readyState === EventSource.OPEN) return "live";
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
      state === "offline" && h("button", { type: "button", class: "quiet", onclick: retryNow }, "Try now"));
  }
  region.title = state === "live" ? "New clips appear by themselves."
    : `The page was last updated ${lastHeard ? `at ${minutes(lastHeard)}` : "earlier"}. It keeps trying to connect.`;
  say(region.querySelector(".live-word"), word);
}
