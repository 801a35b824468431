// The history as a picture: oddness over time, its limit, and the operating conditions underneath.
//
// It is a slider to the keyboard and to screen readers: arrows go from clip to clip.

import { h, put, s } from "./dom.js";
import { niceTicks, thinned, timeTicks } from "./scale.js";
import { clock, date, exactTime, isJudged, minutes, oddnessText, percent, rarity, stateWord } from "./words.js";

const MARGIN = { left: 54, right: 10, top: 14, bottom: 22 };
const HEIGHT = 270;
const STRIP = 12;
const GAP = 8;
const REACH = 24;
const SMOOTH = 20;
const DAY = 86_400_000;
export const TONES = 4;

/** `onSelect(clip)` is called when a person chooses a point, `onZoom(time)` where points are sums. */
export function createChart({ onSelect, onZoom }) {
  const svg = s("svg", { class: "chart-picture", "aria-hidden": "true" });
  const tooltip = h("div", { class: "tooltip", hidden: true, "aria-hidden": "true" });
  const element = h("div", {
    class: "chart", tabindex: "0", role: "slider", "aria-label": "History of oddness",
    "aria-orientation": "horizontal", "aria-valuemin": "0",
    onkeydown, onpointermove: hover, onpointerdown: hover, onpointerleave: leave, onclick: choose, onblur: leave,
  }, svg, tooltip);
  let data = { clips: [], trend: [], notes: [], from: 0, to: 1, conditions: [], limit: null, selected: null, note: "" };
  let points = [];
  let cursor = null;
  let width = 0;
  let frame = 0;

  new ResizeObserver(([entry]) => {
    const now = Math.floor(entry.contentRect.width);
    if (now !== width) { width = now; redraw(); }
  }).observe(element);

  function redraw() {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(draw);
  }

  function draw() {
    if (width < 80) return;
    const { clips, trend, from, to } = data;
    const right = width - MARGIN.right;
    const bottom = HEIGHT - MARGIN.bottom - STRIP - GAP;
    const x = (time) => MARGIN.left + ((time - from) / (to - from)) * (right - MARGIN.left);
    const high = highest(clips, trend);
    const y = (oddness) => bottom - (Math.max(0, oddness) / high) * (bottom - MARGIN.top);
    points = clips.map((clip) => ({ x: x(clip.at), y: isJudged(clip) ? y(clip.oddness) : bottom, clip }));
    const shown = thinned(points);
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    svg.setAttribute("height", HEIGHT);
    put(svg,
      ...valueAxis(niceTicks(0, high, 5), y, right),
      ...timeAxis(timeTicks(from, to, Math.max(2, (right - MARGIN.left) / 90)), x, right),
      ...conditionStrip(points, data.conditions, bottom + GAP, right),
      ...trendLines(trend, x, y),
      s("path", { class: "smoothed", d: pathOf(smoothed(clips), x, y) }),
      data.limit && s("path", { class: "evidence-line", d: pathOf(evidence(clips, data.limit), x, y) }),
      s("path", { class: "normal-points", d: shown.filter((p) => p.clip.state === "normal").map(dot).join("") }),
      s("path", { class: "other-points", d: shown.filter((p) => !isJudged(p.clip)).map(square).join("") }),
      s("path", { class: "threshold", d: `M${MARGIN.left} ${y(1).toFixed(1)}H${right}` }),
      s("path", { class: "anomalous-points", d: shown.filter((p) => p.clip.anomalous).map(triangle).join("") }),
      s("text", { class: "threshold-label", x: MARGIN.left + 4, y: y(1) - 6 }, "alarm limit"),
      ...noteMarks(data.notes, x, right),
      !clips.length && !trend.length && s("text", { class: "chart-note", x: (MARGIN.left + right) / 2, y: bottom / 2 }, data.note),
      s("g", { class: "chart-cursor" }));
    mark();
  }

  /** Ring around the selected clip, line through the one under the cursor. */
  function mark() {
    const layer = svg.querySelector(".chart-cursor");
    if (!layer) return;
    const chosen = points.find((point) => point.clip.id === data.selected);
    const at = current();
    put(layer,
      chosen && s("circle", { class: "chosen-point", cx: chosen.x, cy: chosen.y, r: 7.5 }),
      at && s("path", { class: "cursor-line", d: `M${at.x} ${MARGIN.top}V${HEIGHT - MARGIN.bottom}` }),
      at && s("circle", { class: "cursor-point", cx: at.x, cy: at.y, r: 5 }));
    element.setAttribute("aria-valuemax", Math.max(0, points.length - 1));
    const index = at ? points.indexOf(at) : Math.max(0, chosen ? points.indexOf(chosen) : points.length - 1);
    element.setAttribute("aria-valuenow", index);
    element.setAttribute("aria-valuetext", points[index] ? spoken(points[index].clip) : data.note);
    showTooltip(at);
  }

  const current = () => cursor !== null && points.find((point) => point.clip.id === cursor);

  function showTooltip(at) {
    tooltip.hidden = !at;
    if (!at) return;
    put(tooltip, ...tooltipLines(at.clip));
    const half = tooltip.offsetWidth / 2;
    tooltip.style.left = `${Math.min(Math.max(at.x, half), width - half)}px`;
    const above = at.y - tooltip.offsetHeight - 14;
    tooltip.style.top = `${above >= 0 ? above : at.y + 16}px`;
  }

  function nearest(event) {
    const box = svg.getBoundingClientRect();
    const px = event.clientX - box.left;
    const py = event.clientY - box.top;
    let best = null;
    let least = Infinity;
    for (let i = firstFrom(points, px - REACH); i < points.length && points[i].x <= px + REACH; i += 1) {
      const far = Math.hypot(points[i].x - px, 0.4 * (points[i].y - py));
      // Anomalous points win over normal ones behind them.
      const distance = points[i].clip.anomalous ? far - 3 : far;
      if (distance < least) [best, least] = [points[i], distance];
    }
    return best;
  }

  function hover(event) {
    const id = nearest(event)?.clip.id ?? null;
    if (id !== cursor) { cursor = id; mark(); }
  }

  function leave() {
    if (cursor !== null) { cursor = null; mark(); }
  }

  function choose(event) {
    const point = nearest(event);
    if (point) onSelect(point.clip);
    else if (data.trend.length) {
      const share = (event.clientX - svg.getBoundingClientRect().left - MARGIN.left) / (width - MARGIN.left - MARGIN.right);
      onZoom(Math.min(Date.now(), data.from + share * (data.to - data.from)));
    }
  }

  function onkeydown(event) {
    const start = current() || points.find((point) => point.clip.id === data.selected) || points.at(-1);
    if (!start) return;
    const at = points.indexOf(start);
    const last = points.length - 1;
    const to = {
      ArrowLeft: () => at - 1, ArrowDown: () => at - 1, ArrowRight: () => at + 1, ArrowUp: () => at + 1,
      PageUp: () => at - 25, PageDown: () => at + 25, Home: () => 0, End: () => last,
    }[event.key];
    if (event.key === "Enter" || event.key === " ") onSelect(start.clip);
    else if (event.key === "Escape") leave();
    else if (to && event.shiftKey) step(at, Math.sign(to() - at));
    else if (to) cursor = points[Math.min(last, Math.max(0, to()))].clip.id;
    else return;
    event.preventDefault();
    mark();
  }

  /** To the next anomalous clip. */
  function step(at, direction) {
    for (let i = at + direction; i >= 0 && i < points.length; i += direction) {
      if (points[i].clip.anomalous) { cursor = points[i].clip.id; return; }
    }
  }

  return {
    element,
    update(changes) {
      const moved = Object.keys(changes).some((key) => key !== "selected");
      data = { ...data, ...changes };
      if (moved) redraw();
      else mark();
    },
  };
}

/** The top of the scale: the limit is always in the lower half. */
function highest(clips, trend) {
  let high = 2;
  for (const clip of clips) if (isJudged(clip)) high = Math.max(high, 1.06 * clip.oddness);
  for (const { oddness_max: most } of trend) high = Math.max(high, 1.06 * (most ?? 0));
  return high;
}

/** Means of hours or days as a line, and their highest values above it. */
function trendLines(trend, x, y) {
  const told = trend.filter((point) => point.oddness_mean !== null);
  const line = (key) => pathOf(told.map((point) => [point.at, point[key]]), x, y);
  return told.length ? [s("path", { class: "trend-most", d: line("oddness_max") }), s("path", { class: "trend-mean", d: line("oddness_mean") })] : [];
}

const pathOf = (points, x, y) => points.map(([at, value], i) => `${i ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");

/** The mean oddness of the last recordings, older ones counting less: wear shows in it. */
function smoothed(clips) {
  const judged = clips.filter(isJudged);
  let mean = judged.slice(0, SMOOTH).reduce((sum, clip) => sum + clip.oddness / Math.min(SMOOTH, judged.length), 0);
  return judged.length < SMOOTH ? [] : judged.map((clip) => [clip.at, (mean += (clip.oddness - mean) / SMOOTH)]);
}

/** The evidence of a fault as a share of its limit, as `daco.monitoring.evidence` adds it up. */
function evidence(clips, limit) {
  let [value, model] = [0, null];
  return clips.filter(isJudged).map((clip) => {
    if (clip.model_sha256 !== model) [value, model] = [0, clip.model_sha256];
    value = Math.min(limit, Math.max(0, value + quantile(clip.p_value) - 0.5));
    return [clip.at, value / limit];
  });
}

/** The normal quantile of 1 - p (Abramowitz and Stegun 26.2.23). */
function quantile(p) {
  if (p > 0.5) return -quantile(Math.max(0.01, 1 - p));
  const t = Math.sqrt(-2 * Math.log(Math.max(p, 1e-4)));
  return t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
}

/** What people wrote, at its time. */
function noteMarks(notes, x, right) {
  return notes.map((note) => [note, x(Date.parse(note.at))]).filter(([, at]) => at >= MARGIN.left && at <= right).map(([note, at]) =>
    s("g", { class: "note-mark" }, s("title", {}, `${note.text} (${note.by}, ${exactTime(note.at)})`),
      s("path", { d: `M${at.toFixed(1)} ${MARGIN.top}V${HEIGHT - MARGIN.bottom}` }),
      s("text", at > right - 140 ? { x: at - 4, y: MARGIN.top + 8, "text-anchor": "end" } : { x: at + 4, y: MARGIN.top + 8 }, note.text.length > 24 ? `${note.text.slice(0, 23)}\u2026` : note.text)));
}

const dot = ({ x, y }) => `M${x.toFixed(1)} ${y.toFixed(1)}h0`;
const square = ({ x, y }) => `M${(x - 3).toFixed(1)} ${(y - 3).toFixed(1)}h6v6h-6z`;
const triangle = ({ x, y }) => `M${x.toFixed(1)} ${(y - 5).toFixed(1)}l4.6 8.4h-9.2z`;

function valueAxis({ ticks, digits }, y, right) {
  return ticks.flatMap((tick) => [
    s("path", { class: "grid", d: `M${MARGIN.left} ${y(tick)}H${right}` }),
    s("text", { class: "tick", x: MARGIN.left - 8, y: y(tick) + 4, "text-anchor": "end" }, tick.toFixed(digits)),
  ]);
}

function timeAxis({ ticks, step }, x, right) {
  const label = (tick) => {
    const midnight = new Date(tick).getHours() === 0 && new Date(tick).getMinutes() === 0;
    if (step >= DAY || (midnight && step >= 60_000)) return date(tick);
    return step < 60_000 ? clock(tick) : minutes(tick);
  };
  const room = step < 60_000 ? 28 : 18;
  return ticks.filter((tick) => x(tick) <= right + MARGIN.right - room).flatMap((tick) => [
    s("path", { class: "grid", d: `M${x(tick)} ${HEIGHT - MARGIN.bottom}v4` }),
    s("text", { class: "tick", x: x(tick), y: HEIGHT - 4, "text-anchor": "middle" }, label(tick)),
  ]);
}

/** The operating condition that each clip resembles most, in tones. */
function conditionStrip(points, conditions, top, right) {
  if (!conditions.length) return [];
  const paths = conditions.map(() => "");
  for (const { x, clip } of points) {
    const weights = conditions.map((name) => clip.domain_weights[name] ?? 0);
    paths[weights.indexOf(Math.max(...weights))] += `M${(x - 2).toFixed(1)} ${top}h4v${STRIP}h-4z`;
  }
  return [
    s("path", { class: "strip-frame", d: `M${MARGIN.left} ${top}H${right}V${top + STRIP}H${MARGIN.left}z` }),
    ...paths.map((d, i) => s("path", { class: `tone-${Math.min(i, TONES - 1)}`, d })),
  ];
}

function tooltipLines(clip) {
  const weights = Object.entries(clip.domain_weights).sort((one, other) => other[1] - one[1]);
  return [
    h("b", {}, `${{ anomalous: "\u25b2", normal: "\u25cf" }[clip.state] ?? "\u25a1"} ${stateWord(clip)}`),
    isJudged(clip) && h("span", {}, `oddness ${oddnessText(clip)}, limit 1`),
    h("span", {}, exactTime(clip.time)),
    h("span", { class: "tooltip-name" }, clip.name),
    weights.length > 1 && h("span", {}, weights.slice(0, 2).map(([name, w]) => `${name} ${percent(w)}`).join(", ")),
  ].filter(Boolean);
}

function spoken(clip) {
  const odd = isJudged(clip) ? `oddness ${oddnessText(clip)}, limit 1. ${rarity(clip)}` : "not judged";
  return `${exactTime(clip.time)}: ${stateWord(clip)}, ${odd}`;
}

function firstFrom(points, x) {
  let low = 0;
  let high = points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle].x < x) low = middle + 1;
    else high = middle;
  }
  return low;
}
