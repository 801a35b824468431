// The page: which view the address asks for, and what keeps all of them up to date.

import { post, whenUnauthorised } from "./api.js";
import { announce, h, put } from "./dom.js";
import { resumeLive, startLive, stopLive } from "./live.js";
import { mountMachine } from "./machine.js";
import { mountMessages } from "./messages.js";
import { mountOverview } from "./overview.js";
import { currentRoute } from "./route.js";
import { mountSignIn } from "./signin.js";
import { allMachines, askChanges, listen, loadAll, machine, may, refreshMachines, titleOf, whoAmI } from "./state.js";
import { startUploads } from "./upload.js";
import { KINDS, keepCounting } from "./words.js";

const REFRESH = 30_000;
const SOON = 3000;
const MOUNTS = { overview: mountOverview, machine: mountMachine, messages: mountMessages };

const main = document.getElementById("main");
const scrolled = new Map();
let view = null;
let signedOut = false;
let refreshedAt = 0;

/** Show what the address asks for; a step within the same machine keeps the view. */
function show({ focus = true } = {}) {
  const route = currentRoute();
  const place = `${route.view}/${route.machine ?? ""}`;
  if (view && view.place === place) {
    view.update?.(route);
    return;
  }
  if (view) scrolled.set(view.place, scrollY);
  view?.ends.abort();
  const ends = new AbortController();
  const mounted = MOUNTS[route.view](main, { route, signal: ends.signal });
  view = { place, machine: route.machine, ends, ...mounted };
  scrollTo(0, route.view === "overview" ? scrolled.get(place) ?? 0 : 0);
  if (focus) main.querySelector("h1")?.focus({ preventScroll: true });
  entitle();
}

/** The number of alarms goes first: it is what a tab has room for. */
function entitle() {
  const open = (allMachines() ?? []).reduce((sum, each) => sum + each.open_alarms, 0);
  const name = view?.machine ? machine(view.machine)?.title ?? view.machine : "Machines";
  document.title = `${open ? `(${open}) ` : ""}${name} \u2013 daco`;
}

function drawLinks() {
  const { name, needs_token: signedIn } = whoAmI();
  document.getElementById("pick").hidden = !may("operator");
  put(document.getElementById("links"),
    h("a", { href: "#/messages" }, "Messages"),
    signedIn && h("button", { type: "button", class: "quiet", onclick: signOut }, `Sign out ${name}`));
}

async function signOut() {
  await post("logout").catch(() => {});
  location.reload();
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

async function ask() {
  await askChanges();
  if (Date.now() - refreshedAt > REFRESH) {
    await refreshMachines();
    refreshedAt = Date.now();
  }
}

async function start() {
  try {
    await loadAll();
  } catch (error) {
    if (signedOut) return;
    put(main, h("p", { class: "empty" }, `${error.message} The page keeps trying.`));
    setTimeout(start, SOON);
    return;
  }
  refreshedAt = Date.now();
  drawLinks();
  show({ focus: false });
  resumeLive();
}

whenUnauthorised(signIn);
listen("machines", entitle);
listen("alarm", (alarm) => {
  const who = alarm.machine === null ? "daco" : titleOf(alarm.machine);
  announce(`New alarm: ${who}. ${KINDS[alarm.kind] ?? alarm.kind}.`, { urgent: true });
});
addEventListener("hashchange", () => signedOut || allMachines() === null || show());
document.getElementById("skip").addEventListener("click", () => main.focus());
history.scrollRestoration = "manual";
startLive(ask);
startUploads();
keepCounting();
start();
