// What the page knows: machines, their clips, alarms. Views listen to topics and read from here.

import { get, paths } from "./api.js";
import { coalesced } from "./dom.js";

const PAGE = 500;
const MOST_CLIPS = 10_000;

const bus = new EventTarget();

/** In the order the service gives; null until it has answered once. */
let machines = null;

/** Model files that cannot be used, and why. */
let broken = {};

/** Machine id to its clips, oldest first and without holes, and how to get older ones. */
const histories = new Map();

/** Machine id to the loading of its newest clips that was begun last. */
const catching = new Map();

const alarms = new Map();

/** The machine that is looked at, whose past alarms are shown as well. */
let watched = null;

const newestMachines = inTurn();
const newestAlarms = inTurn();

/** For each question about the machines that is under way: those that events told of meanwhile. */
const toldMeanwhile = new Set();

export function listen(topic, action, signal) {
  bus.addEventListener(topic, (event) => action(event.detail), { signal });
}

function tell(topic, detail = null) {
  bus.dispatchEvent(new CustomEvent(topic, { detail }));
}

export const allMachines = () => machines;
export const brokenModels = () => broken;
export const machine = (id) => machines?.find((each) => each.id === id) ?? null;
export const historyOf = (id) => histories.get(id) ?? null;

/** Newest first, of one machine or all. */
export function alarmsOf(id = null) {
  return [...alarms.values()]
    .filter((alarm) => id === null || alarm.machine === id)
    .sort((one, other) => other.id - one.id);
}

/** Answers may overtake each other: for each question, a test whether no later one was answered. */
function inTurn() {
  let asked = 0;
  let answered = 0;
  return () => {
    const turn = (asked += 1);
    return () => {
      if (turn < answered) return false;
      answered = turn;
      return true;
    };
  };
}

export async function refreshMachines() {
  const isNewest = newestMachines();
  const told = new Map();
  toldMeanwhile.add(told);
  const answer = await get(paths.machines()).finally(() => toldMeanwhile.delete(told));
  if (!isNewest()) return;
  machines = answer.machines.map((each) => told.get(each.id) ?? each);
  broken = answer.problems ?? {};
  tell("machines");
}

/** The open alarms of all machines, and the latest of one, open or not. */
export async function refreshAlarms(id = null) {
  watched = id;
  const isNewest = newestAlarms();
  const asked = [get(paths.alarms(), { open: true })];
  if (id !== null) asked.push(get(paths.alarms(), { machine: id }));
  const found = (await Promise.all(asked)).flatMap((answer) => answer.alarms);
  if (!isNewest()) return;
  const unsaved = [...alarms.values()].filter((alarm) => alarm.saving);
  alarms.clear();
  for (const alarm of [...found, ...unsaved]) alarms.set(alarm.id, alarm);
  tell("alarms");
}

export function setAlarm(alarm) {
  alarms.set(alarm.id, alarm);
  tell("alarms");
}

/** Load the newest clips of a machine, back to those that are known already. */
export function catchUp(id, limit = PAGE) {
  // One after the other: two that both begin without a history would each start a new one, and
  // the later answer would throw away what was loaded since the earlier.
  const before = catching.get(id) ?? Promise.resolve();
  const caught = before.catch(() => {}).then(() => loadNewest(id, limit));
  catching.set(id, caught);
  return caught;
}

async function loadNewest(id, limit) {
  let history = histories.get(id) ?? emptyHistory();
  histories.set(id, history);
  const sure = history.sure ?? history.clips.at(-1)?.id ?? null;
  const before = new Set(history.known.keys());
  const fresh = [];
  let cursor = null;
  do {
    const page = await get(paths.history(id), { limit, before: cursor });
    fresh.push(...page.clips);
    cursor = page.next;
  } while (sure !== null && cursor !== null && fresh.at(-1).id > sure && fresh.length < MOST_CLIPS);
  const met = fresh.find((clip) => clip.id === sure);
  // Another clip under a known number is another database: nothing of the old one is kept.
  const meets = met && met.received_at === history.known.get(sure)?.received_at;
  // Clips that arrived meanwhile may be newer than the answer.
  fresh.push(...history.clips.filter((clip) => !before.has(clip.id)));
  if (!meets) history = emptyHistory(cursor);
  history.sure = null;
  history.loaded = true;
  histories.set(id, history);
  insert(history, fresh);
  tell("history", id);
}

function emptyHistory(cursor = null) {
  return { clips: [], known: new Map(), loaded: false, cursor, complete: cursor === null, sure: null, wanted: Infinity, loading: false };
}

/** From now on clips may be missed: the next `catchUp` starts where the histories are whole. */
export function expectGaps() {
  for (const history of histories.values()) history.sure ??= history.clips.at(-1)?.id ?? null;
}

/** Catch up with every history that is behind what the machine's summary tells. */
export async function mendGaps() {
  for (const [id, history] of histories) {
    const newest = history.clips.at(-1)?.id ?? 0;
    const behind = !history.loaded || history.sure !== null || (machine(id)?.last?.id ?? 0) > newest;
    if (behind) await catchUp(id, Math.min(PAGE, Math.max(50, history.clips.length)));
  }
}

/** Load older clips until `from` (milliseconds) is reached, the beginning, or the limit. */
export async function reachBack(id, from) {
  const history = histories.get(id);
  history.wanted = from;
  if (history.loading) return;
  history.loading = true;
  try {
    while (!history.complete && history.clips.length < MOST_CLIPS
           && history.clips[0].time > history.wanted) {
      const page = await get(paths.history(id), { limit: PAGE, before: history.cursor });
      history.cursor = page.next;
      history.complete = page.next === null;
      insert(history, page.clips);
      tell("history", id);
    }
  } finally {
    history.loading = false;
  }
}

function insert(history, found) {
  let sorted = true;
  for (const clip of found) {
    // Milliseconds; they need not follow the order of arrival: clocks are set back.
    clip.time = Date.parse(clip.received_at);
    if (!history.known.has(clip.id)) {
      history.clips.push(clip);
      sorted = false;
    }
    history.known.set(clip.id, clip);
  }
  if (!sorted) history.clips.sort((one, other) => one.id - other.id);
}

/** A clip that has just been judged, told by the service or by an upload's answer. */
export function addClip(id, clip) {
  const history = histories.get(id);
  const summary = machine(id);
  if (summary && (summary.last?.id ?? -1) < clip.id) {
    summary.last = clip;
    tell("machines");
  }
  if (!history) return;
  if (history.known.has(clip.id)) Object.assign(history.known.get(clip.id), clip);
  else insert(history, [clip]);
  if (history.clips.length > 1.2 * MOST_CLIPS) {
    for (const old of history.clips.splice(0, history.clips.length - MOST_CLIPS)) history.known.delete(old.id);
    history.cursor = history.clips[0].id;
    history.complete = false;
  }
  tell("history", id);
}

/** The clip of this id, from memory or from the service. */
export async function fetchClip(id, machineId) {
  const known = histories.get(machineId)?.known.get(id);
  return known ?? (await get(paths.clip(id))).clip;
}

const refreshSoon = coalesced(() => refreshMachines().catch(() => {}), 2000);
const alarmsSoon = coalesced(() => refreshAlarms(watched).catch(() => {}), 500);

/** What the service tells by itself. */
export function applyEvent(kind, data) {
  if (kind === "clip") addClip(data.machine, data);
  if (kind === "alarm") {
    alarmsSoon();
    tell("alarm", data);
  }
  if (kind === "machine") for (const told of toldMeanwhile) told.set(data.id, data);
  if (kind === "machine" && machine(data.id)) {
    machines[machines.findIndex((each) => each.id === data.id)] = data;
    tell("machines");
  }
  if (kind === "model") refreshSoon();
}
