// What numbers, codes and times are called: the page speaks to a person at a machine.

import { h, icon, say } from "./dom.js";

const TAIL = 13;
const MINUTE = 60, HOUR = 3600, DAY = 86400;

export const STATUS = {
  alarm: { word: "Alarm", help: "an alarm is open", rank: 0 },
  stale: { word: "Calibration stale", help: "the clips no longer fit the calibration", rank: 1 },
  silent: { word: "No data", help: "no clip has arrived lately", rank: 2 },
  ok: { word: "OK", help: "no open alarm", rank: 3 },
};

/** Icon and word of a machine's status; colour only adds to them. */
export function statusChip(status) {
  const { word, help } = STATUS[status] ?? { word: status, help: "" };
  return h("span", { class: `chip chip-${status}`, title: help },
    icon(status in STATUS ? status : "silent"), word);
}

const SHAPES = { normal: "dot", anomalous: "triangle" };

/** Whether the score decides on a clip. */
export const isJudged = (clip) => clip.state in SHAPES;

/** The shape of a clip's state, as in the chart. */
export const shape = (clip) => h("span", { class: SHAPES[clip.state] ?? "square", "aria-hidden": "true" });

/** The state of a clip. */
export function decision(clip) {
  return h("span", { class: clip.alarm ? "decision anomalous" : "decision" }, shape(clip), clip.state);
}

/** The thresholds of a model by domain, or one where they are the same. */
export function thresholdsText(thresholds) {
  const parts = Object.entries(thresholds).map(([name, value]) => [name, thresholdText(value)]);
  const same = parts.every(([, text]) => text === parts[0][1]);
  return same ? parts[0][1] : parts.map(([name, text]) => `${name} ${text}`).join(", ");
}

/** Three significant digits of the machine's scale, so that scores line up in columns. */
export function scoreText(score, threshold) {
  if (!Number.isFinite(score)) return "not a number";
  const digits = digitsFor(threshold);
  for (let more = digits; more <= 8; more += 1) {
    // Two scores on either side of the threshold must not read the same.
    if (score === threshold || score.toFixed(more) !== threshold.toFixed(more)) {
      return minus(score.toFixed(more));
    }
  }
  return minus(score.toPrecision(9));
}

export function thresholdText(threshold) {
  return minus(threshold.toFixed(digitsFor(threshold)));
}

function digitsFor(threshold) {
  const size = Math.abs(threshold);
  return size > 0 ? Math.min(8, Math.max(0, 2 - Math.floor(Math.log10(size)))) : 3;
}

export function minus(text) {
  return text.replace("-", "\u2212");
}

export function percent(share, digits = 0) {
  return `${(100 * share).toFixed(digits)}\u202f%`;
}

export function count(n, one, many = `${one}s`) {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}

/** Counts of clips: `30 of 1,439 anomalous (2.1 %)`. */
export function anomalousOf({ clips, anomalous }) {
  const some = `${anomalous.toLocaleString("en")} of ${clips.toLocaleString("en")} anomalous`;
  return anomalous ? `${some} (${percent(anomalous / clips, 1)})` : some;
}

/** The p-value as a person would say it; below the supported rate it is only a limit. */
export function oddness({ p_value: p, extrapolated, supported_rate: least }) {
  if (extrapolated) {
    return `Odder than every known normal clip: at most about 1 in ${round(1 / least)} would sound this odd.`;
  }
  if (p >= 0.95) return "Very ordinary: nearly every normal clip sounds odder.";
  if (p >= 0.25) return `Ordinary: about ${Math.round(10 * p)} in 10 normal clips sound at least this odd.`;
  return `About 1 in ${round(1 / p)} normal clips sounds this odd.`;
}

function round(n) {
  const step = n < 30 ? 1 : 10 ** (Math.floor(Math.log10(n)) - 1);
  return (Math.round(n / step) * step).toLocaleString("en");
}

const REASONS = {
  silent: ["Silent", "The microphone may be off, unplugged or far away. The score means little."],
  clipped: ["Clipped", "The recording is too loud for the microphone. Lower its gain, because distortion can look like a fault."],
  short: ["Short", "The clip is much shorter than the normal clips, so the score is less certain."],
  long: ["Long", "The clip is much longer than the normal clips and may hide a brief fault. Send it in parts."],
  rate: ["Other sample rate", "The clip has another sample rate than the normal clips. Set up the recorder as before."],
  off: ["Off", "The clip is much quieter than every normal clip in all bands. The machine is off, or the microphone is far away."],
  range: ["Out of range", "No normal clip has this level. The loudness or the surroundings changed, or this is another machine. The clip is not judged."],
  score: ["Anomalous as well", "By the score alone the clip would be anomalous. A fault may be the cause."],
  views: ["Views of the sound", "How unusual the clip is in each of them."],
  far: ["Far from all normals", "The clip is unlike all normals. Possible causes are a fault, another machine or microphone, or a new operating condition."],
};

/** A reason code and its figures, explained. */
export function reason(text) {
  const at = text.indexOf(":");
  const code = at < 0 ? text : text.slice(0, at);
  const figures = at < 0 ? "" : text.slice(at + 1).trim();
  const [title, words] = REASONS[code] ?? [code, ""];
  return { code, title, words, figures: figures.replace(/(?<!\w)-(?=\d)/g, "\u2212") };
}

/** What a list says of a clip: what somebody answered, or the first reason to mistrust its score. */
export const tagOf = (clip) => clip.answer ?? clip.reasons.map((each) => reason(each).code).find((code) => code !== "views");

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
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

export function megabytes(bytes) {
  return bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}
