// The page: which view the address asks for, and what keeps all of them up to date.

import { whenUnauthorised } from "./api.js";
import { announce, h, put } from "./dom.js";
import { resumeLive, startLive, stopLive } from "./live.js";
import { mountMachine } from "./machine.js";
import { mountOverview } from "./overview.js";
import { currentRoute } from "./route.js";
import { mountSignIn } from "./signin.js";
import { allMachines, applyEvent, expectGaps, listen, machine, mendGaps, refreshAlarms, refreshMachines } from "./state.js";
import { startUploads } from "./upload.js";
import { keepCounting } from "./words.js";

const POLL = 30_000;
const SOON = 3000;

const main = document.getElementById("main");
const scrolled = new Map();
let view = null;
let signedOut = false;
let timer = null;

/** Show what the address asks for; a step within the same machine keeps the view. */
function show({ focus = true } = {}) {
  const route = currentRoute();
  if (view && view.machine === route.machine) {
    view.update?.(route);
    return;
  }
  if (view) scrolled.set(view.machine, scrollY);
  view?.ends.abort();
  const ends = new AbortController();
  const options = { route, signal: ends.signal };
  const mounted = route.machine === null ? mountOverview(main, options) : mountMachine(main, options);
  view = { machine: route.machine, ends, ...mounted };
  scrollTo(0, route.machine === null ? scrolled.get(null) ?? 0 : 0);
  if (focus) main.querySelector("h1")?.focus({ preventScroll: true });
  entitle();
}

/** The number of alarms goes first: it is what a tab has room for. */
function entitle() {
  const open = (allMachines() ?? []).reduce((sum, each) => sum + each.open_alarms, 0);
  const name = view?.machine ? machine(view.machine)?.machine ?? view.machine : "Machines";
  document.title = `${open ? `(${open}) ` : ""}${name} \u2013 daco`;
}

function signIn() {
  if (signedOut) return;
  signedOut = true;
  stopLive();
  view?.ends.abort();
  view = null;
  document.body.classList.add("signed-out");
  mountSignIn(main, {
    onDone() {
      signedOut = false;
      document.body.classList.remove("signed-out");
      start();
    },
  });
}

/** Whatever no event told: clips that were missed, and statuses, which change with time as well. */
async function refresh(next = POLL) {
  clearTimeout(timer);
  if (signedOut || !view) return;
  try {
    await Promise.all([refreshMachines(), refreshAlarms(view.machine)]);
    await mendGaps();
  } catch {
    next = SOON;
  }
  clearTimeout(timer);
  timer = setTimeout(refresh, next);
}

async function start() {
  try {
    await refreshMachines();
  } catch (error) {
    if (signedOut) return;
    put(main, h("p", { class: "empty" }, `${error.message} The page keeps trying.`));
    setTimeout(start, 3000);
    return;
  }
  show({ focus: false });
  resumeLive();
}

whenUnauthorised(signIn);
listen("machines", entitle);
listen("alarm", (alarm) => {
  if (alarm.closed_at || alarm.acknowledged_at) return;
  announce(`New alarm: ${machine(alarm.machine)?.machine ?? alarm.machine}.`, { urgent: true });
});
addEventListener("hashchange", () => signedOut || show());
document.getElementById("skip").addEventListener("click", () => main.focus());
history.scrollRestoration = "manual";
// Twice: an event may have been on its way while the stream was opened.
startLive({ onEvent: applyEvent, onOpen: () => refresh(SOON), onLost: expectGaps });
startUploads();
keepCounting();
start();
