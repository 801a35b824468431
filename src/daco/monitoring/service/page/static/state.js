// What the page knows: machines, their clips, alarms. Views listen to topics and read from here.

import { get, paths } from "./api.js";

const PAGE = 500;
const MOST_CLIPS = 10_000;
const MOST_PAGES = 5;

const bus = new EventTarget();

/** In the order the service gives; null until it has answered once. */
let machines = null;

/** The number of the last change that is known. */
let last = 0;

/** Who looks at the page: {name, role, needs_token}. */
let person = { name: "", role: "viewer", needs_token: false };

/** Machine id to its clips, by time, and how to get older ones. */
const histories = new Map();

const alarms = new Map();

export function listen(topic, action, signal) {
  bus.addEventListener(topic, (event) => action(event.detail), { signal });
}

function tell(topic, detail = null) {
  bus.dispatchEvent(new CustomEvent(topic, { detail }));
}

export const allMachines = () => machines;
export const machine = (id) => machines?.find((each) => each.id === id) ?? null;
export const titleOf = (id) => machine(id)?.title ?? id;
export const historyOf = (id) => histories.get(id) ?? null;
export const whoAmI = () => person;

const ROLES = ["viewer", "operator", "administrator"];
export const may = (role) => ROLES.indexOf(person.role) >= ROLES.indexOf(role);

/** Whether somebody has yet to do something about an alarm. */
export const isOpen = (alarm) => alarm.state !== "cleared" || !alarm.acknowledged_at;

/** Newest first, of one machine or all. */
export function alarmsOf(id = null) {
  return [...alarms.values()]
    .filter((alarm) => id === null || alarm.machine === id)
    .sort((one, other) => other.id - one.id);
}

/** Everything from the start: machines and open alarms. */
export async function loadAll() {
  person = await get(paths.session());
  const [listed, open] = await Promise.all([get(paths.machines()), get(paths.alarms(), { open: true })]);
  machines = listed.machines;
  last = listed.last;
  alarms.clear();
  for (const alarm of open.alarms) alarms.set(alarm.id, alarm);
  tell("machines");
  tell("alarms");
}

/** What has changed since the last question. */
export async function askChanges() {
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const changes = await get(paths.changes(), { after: last });
    // Smaller numbers than before are those of another database.
    if (changes.last < last) return startAnew();
    last = changes.last;
    apply(changes);
    if (!changes.more) return null;
  }
  return startAnew();
}

async function startAnew() {
  const shown = [...histories.keys()];
  histories.clear();
  await loadAll();
  for (const id of shown) await catchUp(id);
}

function apply(changes) {
  for (const clip of changes.clips) addClip(clip);
  const isNew = changes.alarms.filter((alarm) => !alarms.has(alarm.id));
  for (const alarm of changes.alarms) alarms.set(alarm.id, alarm);
  for (const changed of changes.machines) {
    const at = machines.findIndex((each) => each.id === changed.id);
    if (at < 0) machines.push(changed);
    else machines[at] = changed;
  }
  if (changes.machines.length) tell("machines");
  if (changes.alarms.length) tell("alarms");
  for (const alarm of isNew) if (isOpen(alarm)) tell("alarm", alarm);
}

/** Statuses change with time as well, and models without any clip. */
export async function refreshMachines() {
  machines = (await get(paths.machines())).machines;
  tell("machines");
}

/** The latest alarms of one machine, cleared or not. */
export async function loadAlarms(id) {
  for (const alarm of (await get(paths.alarms(), { machine: id })).alarms) alarms.set(alarm.id, alarm);
  tell("alarms");
}

export function setAlarm(alarm) {
  alarms.set(alarm.id, alarm);
  tell("alarms");
}

/** Load the newest clips of a machine, once; later ones come with the changes. */
export function catchUp(id, limit = PAGE) {
  if (!histories.has(id)) {
    const history = { clips: [], known: new Map(), loaded: false, complete: false, cut: false, loading: false };
    histories.set(id, history);
    history.first = loadFirst(id, history, limit);
    history.first.catch(() => histories.get(id) === history && histories.delete(id));
  }
  return histories.get(id).first;
}

async function loadFirst(id, history, limit) {
  const page = await get(paths.history(id), { limit });
  history.loaded = true;
  history.complete = page.next === null;
  insert(history, page.clips);
  tell("history", id);
}

/** Load what was recorded between two times, the newest first, until it is too much to draw. */
export async function reach(id, from, to = null) {
  const history = histories.get(id);
  const since = new Date(Math.max(0, from)).toISOString();
  history.loading = true;
  try {
    for (let until = to, before = null; until !== before || before === null;) {
      const page = await get(paths.history(id), { since, until: until && new Date(until).toISOString(), limit: 2 * PAGE });
      insert(history, page.clips);
      history.cut = page.next !== null && history.clips.length >= MOST_CLIPS;
      tell("history", id);
      if (page.next === null || history.cut) return;
      [before, until] = [until, Date.parse(page.clips.at(-1).time) + 1];
    }
  } finally {
    history.loading = false;
  }
}

/** Clips by the time of recording: those that arrive late take their own place. */
function insert(history, found) {
  for (const clip of found) {
    clip.at = Date.parse(clip.time);
    const known = history.known.get(clip.id);
    if (known) Object.assign(known, clip);
    else {
      history.clips.push(clip);
      history.known.set(clip.id, clip);
    }
  }
  history.clips.sort((one, other) => one.at - other.at || one.id - other.id);
}

/** A clip that has just been judged or changed. */
export function addClip(clip) {
  const history = histories.get(clip.machine);
  if (!history) return;
  insert(history, [clip]);
  const tooMany = history.clips.length > 1.2 * MOST_CLIPS ? history.clips.length - MOST_CLIPS : 0;
  for (const old of history.clips.splice(0, tooMany)) history.known.delete(old.id);
  tell("history", clip.machine);
}

/** A clip that somebody deleted. */
export function dropClip(clip) {
  const history = histories.get(clip.machine);
  if (!history?.known.delete(clip.id)) return;
  history.clips = history.clips.filter((each) => each.id !== clip.id);
  tell("history", clip.machine);
}

/** The clip of this id, from memory or from the service. */
export async function fetchClip(id, machineId) {
  const known = histories.get(machineId)?.known.get(id);
  if (known) return known;
  const { clip } = await get(paths.clip(id));
  return { ...clip, at: Date.parse(clip.time) };
}
