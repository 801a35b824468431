// What numbers, codes and times are called: the page speaks to a person at a machine.

import { h, icon, say } from "./dom.js";

const TAIL = 13;
const MINUTE = 60, HOUR = 3600, DAY = 86400;

export const STATUS = {
  alarm: { word: "Alarm", help: "an alarm is open", many: "in alarm", icon: "alarm" },
  problem: { word: "Needs attention", help: "daco cannot do its work for this machine", many: "that need attention", icon: "stale" },
  stale: { word: "Limit out of date", help: "the alarm limit is out of date", many: "with an alarm limit that is out of date", icon: "stale" },
  silent: { word: "No recordings", help: "nothing was recorded lately", many: "without recordings", icon: "silent" },
  shelved: { word: "Shelved", help: "its alarms are shelved for a while", many: "shelved", icon: "silent" },
  "out of service": { word: "Out of service", help: "judged and stored, without alarms and messages", many: "out of service", icon: "silent" },
  off: { word: "Off", help: "the machine is off, which is normal here", many: "off", icon: "silent" },
  ok: { word: "OK", help: "no open alarm", many: "OK", icon: "ok" },
};
export const STATUSES = Object.keys(STATUS);

/** Icon and word of a machine's status; colour only adds to them. */
export function statusChip(status) {
  const { word, help, icon: picture } = STATUS[status] ?? { word: status, help: "", icon: "silent" };
  return h("span", { class: `chip chip-${picture}`, title: help }, icon(picture), word);
}

/** What each kind of alarm is called. */
export const KINDS = {
  fault: "Sounds different from a healthy machine",
  "out of range": "Loudness that no healthy recording has",
  off: "The machine is off",
  "recorder fault": "The recorder or microphone is faulty",
  "no recordings": "No recordings arrive",
  daco: "daco itself needs attention",
  trend: "Slow change, still within its limit",
};

const SHAPES = { normal: "dot", anomalous: "triangle" };

/** Whether the sound decides on a clip. */
export const isJudged = (clip) => clip.state in SHAPES;

/** The shape of a clip's state, as in the chart. */
export const shape = (clip) => h("span", { class: SHAPES[clip.state] ?? "square", "aria-hidden": "true" });

const STATES = { normal: "healthy", anomalous: "sounds different", off: "off", "out of range": "other loudness", "recorder fault": "faulty recording" };
export const stateWord = (clip) => STATES[clip.state] ?? clip.state;

/** The state of a clip. */
export function decision(clip) {
  return h("span", { class: clip.anomalous ? "decision anomalous" : "decision" }, shape(clip), stateWord(clip));
}

/** The oddness of a clip; one that is within the limit never reads as one beyond it. */
export function oddnessText(clip) {
  if (!isJudged(clip)) return "\u2013";
  const text = clip.oddness >= 9.95 ? clip.oddness.toFixed(0) : clip.oddness.toFixed(1);
  if (clip.anomalous !== Number(text) > 1) return clip.anomalous ? "just above 1" : "just below 1";
  return text;
}

/** How rare such a sound is, as a person would say it. */
export function rarity({ one_in: n, extrapolated, anomalous }) {
  if (extrapolated) return `Fewer than 1 in ${round(n)} healthy recordings sound like this.`;
  if (n < 2 && !anomalous) return "Most healthy recordings sound like this.";
  return `1 in ${round(n)} healthy recordings sounds like this.`;
}

function round(n) {
  const step = n < 30 ? 1 : 10 ** (Math.floor(Math.log10(n)) - 1);
  return (Math.round(n / step) * step).toLocaleString("en");
}

const NOT_JUDGED = {
  off: "The machine is off: much quieter than in every healthy recording. The sound was not judged.",
  "out of range": "No healthy recording has this loudness: the surroundings or the microphone changed, or this is another machine. The sound was not judged.",
  "recorder fault": "The recording is faulty, so the sound was not judged. Look at the recorder and the microphone.",
};

/** The verdict on a clip in one or two sentences. */
export function verdictWords(clip) {
  if (clip.state === "normal") return `Sounds like the healthy machine. ${rarity(clip)}`;
  if (clip.state === "anomalous") return `Sounds different from the healthy machine. ${rarity(clip)}`;
  return NOT_JUDGED[clip.state] ?? "The sound was not judged.";
}

const REMARKS = {
  silent: "The recording is silent: the microphone may be off, unplugged or far away.",
  clipped: "The recording is too loud for the microphone. Lower its gain: distortion can sound like a fault.",
  short: "The recording is much shorter than the healthy ones, so the result is less certain.",
  long: "The recording is much longer than the healthy ones and may hide a brief fault. Send it in parts.",
  rate: "The recorder uses another sample rate than for the healthy recordings. Set it up as before.",
  score: "By its sound alone it would count as different as well. A fault may be the cause.",
  far: "It is unlike every healthy recording: a fault, another machine or microphone, or an operating condition that daco does not know.",
};

/** What else to know about a clip; nothing that speaks against its verdict. */
export function remarks(clip) {
  const codes = clip.reasons.map((text) => text.split(":", 1)[0]);
  return codes.filter((code) => code in REMARKS && (code !== "far" || clip.anomalous) && (code !== "score" || !isJudged(clip)))
    .map((code) => REMARKS[code]);
}

export const answerWord = (answer) => `a ${answer}`;

/** What a list says of a clip: what somebody answered, or that its sound was not judged. */
export const tagOf = (clip) => (clip.answer ? clip.answer : isJudged(clip) ? null : stateWord(clip));

export function percent(share, digits = 0) {
  return `${(100 * share).toFixed(digits)}\u202f%`;
}

export function count(n, one, many = `${one}s`) {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}

/** `30 of 1,439 recordings sound different (2.1 %)`. */
export function anomalousOf({ clips, anomalous }) {
  if (!anomalous) return `${count(clips, "recording")}, all as healthy`;
  return `${anomalous.toLocaleString("en")} of ${count(clips, "recording")} sound different (${percent(anomalous / clips, 1)})`;
}

/** A file's name that loses its middle where room is short: names of clips differ at their ends. */
export function fileName(path, attributes = {}) {
  const name = path.split(/[\\/]/).pop() || path;
  const outer = { ...attributes, class: `file-name ${attributes.class ?? ""}`, title: path };
  if (name.length < 2 * TAIL) return h("span", outer, h("span", { class: "file-head" }, name));
  return h("span", outer,
    h("span", { class: "hidden" }, name),
    h("span", { class: "file-head", "aria-hidden": "true" }, name.slice(0, -TAIL)),
    h("span", { class: "file-tail", "aria-hidden": "true" }, name.slice(-TAIL)));
}

/** A time as `12 min ago` that keeps counting; the exact time is its title. */
export function ago(iso) {
  return h("time", { datetime: iso, title: exactTime(iso), "data-ago": "" }, since(iso));
}

function since(iso, now = Date.now()) {
  const seconds = Math.max(0, (now - Date.parse(iso)) / 1000);
  if (seconds < 10) return "just now";
  if (seconds < MINUTE) return `${Math.floor(seconds / 10) * 10} s ago`;
  if (seconds < HOUR) return `${Math.floor(seconds / MINUTE)} min ago`;
  if (seconds < DAY) return `${Math.floor(seconds / HOUR)} h ago`;
  if (seconds < 60 * DAY) return count(Math.floor(seconds / DAY), "day") + " ago";
  return date(iso);
}

/** Let every `ago` on the page count on. */
export function keepCounting() {
  setInterval(() => {
    for (const node of document.querySelectorAll("time[data-ago]")) say(node, since(node.dateTime));
  }, 10_000);
}

const CLOCK = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const clockFormat = new Intl.DateTimeFormat("en-GB", { ...CLOCK, second: "2-digit" });
const minuteFormat = new Intl.DateTimeFormat("en-GB", CLOCK);
const dateFormat = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const exactFormat = new Intl.DateTimeFormat("en-GB", {
  ...CLOCK, day: "numeric", month: "short", year: "numeric", second: "2-digit", timeZoneName: "short",
});

export const clock = (iso) => clockFormat.format(new Date(iso));
export const minutes = (iso) => minuteFormat.format(new Date(iso));
export const date = (iso) => dateFormat.format(new Date(iso));
export const exactTime = (iso) => exactFormat.format(new Date(iso));

/** The time of day, and the date where it is not today's. */
export function when(iso) {
  const then = new Date(iso);
  return then.toDateString() === new Date().toDateString() ? clock(iso) : `${date(iso)}, ${clock(iso)}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 100) return `${seconds.toFixed(1)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1).replace(".0", "")} h`;
}

export function megabytes(bytes) {
  return bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}
