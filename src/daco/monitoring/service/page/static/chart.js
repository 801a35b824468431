// The score history as a picture: points over time, the threshold, and the domains underneath.
//
// It is a slider to the keyboard and to screen readers: arrows go from clip to clip.

import { h, put, s } from "./dom.js";
import { niceTicks, thinned, timeTicks } from "./scale.js";
import { date, exactTime, minutes, clock, minus, percent, scoreText, thresholdText } from "./words.js";

const MARGIN = { left: 54, right: 10, top: 14, bottom: 22 };
const HEIGHT = 270;
const STRIP = 12;
const GAP = 8;
const REACH = 24;
const DAY = 86_400_000;
export const TONES = 4;

/** `onSelect(clip)` is called when a person chooses a point. */
export function createChart({ onSelect }) {
  const svg = s("svg", { class: "chart-picture", "aria-hidden": "true" });
  const tooltip = h("div", { class: "tooltip", hidden: true, "aria-hidden": "true" });
  const element = h("div", {
    class: "chart", tabindex: "0", role: "slider", "aria-label": "Score history",
    "aria-orientation": "horizontal", "aria-valuemin": "0",
    onkeydown, onpointermove: hover, onpointerdown: hover, onpointerleave: leave, onclick: choose, onblur: leave,
  }, svg, tooltip);
  let data = { clips: [], from: 0, to: 1, threshold: 0, domains: [], selected: null, note: "" };
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
    const { clips, from, to, threshold } = data;
    const right = width - MARGIN.right;
    const bottom = HEIGHT - MARGIN.bottom - STRIP - GAP;
    const x = (time) => MARGIN.left + ((time - from) / (to - from)) * (right - MARGIN.left);
    const [low, high] = extent(clips, threshold);
    const y = (score) => bottom - ((score - low) / (high - low)) * (bottom - MARGIN.top);
    points = clips.map((clip) => ({ x: x(clip.time), y: y(clip.score), clip }));
    points.sort((one, other) => one.x - other.x);
    const shown = thinned(points);
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    svg.setAttribute("height", HEIGHT);
    put(svg,
      ...valueAxis(niceTicks(low, high, 5), y, right),
      ...timeAxis(timeTicks(from, to, Math.max(2, (right - MARGIN.left) / 90)), x, right),
      ...domainStrip(points, data.domains, bottom + GAP, right),
      s("path", { class: "normal-points", d: shown.filter((p) => p.clip.state === "normal").map(dot).join("") }),
      s("path", { class: "other-points", d: shown.filter((p) => !["normal", "anomalous"].includes(p.clip.state)).map(square).join("") }),
      s("path", { class: "threshold", d: thresholdPath(points, threshold, y, right) }),
      s("path", { class: "anomalous-points", d: shown.filter((p) => p.clip.alarm).map(triangle).join("") }),
      s("text", { class: "threshold-label", x: MARGIN.left + 4, y: y(points[0]?.clip.threshold ?? threshold) - 6 }, "threshold"),
      !clips.length && s("text", { class: "chart-note", x: (MARGIN.left + right) / 2, y: bottom / 2 }, data.note),
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
      const distance = points[i].clip.alarm ? far - 3 : far;
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
      if (points[i].clip.alarm) { cursor = points[i].clip.id; return; }
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

function extent(clips, threshold) {
  let low = threshold;
  let high = threshold;
  for (const { score, threshold: own } of clips) {
    low = Math.min(low, score, own);
    high = Math.max(high, score, own);
  }
  const pad = (high - low || Math.abs(high) || 1) * 0.06;
  return [low >= 0 ? Math.max(0, low - pad) : low - pad, high + pad];
}

const dot = ({ x, y }) => `M${x.toFixed(1)} ${y.toFixed(1)}h0`;
const square = ({ x, y }) => `M${(x - 3).toFixed(1)} ${(y - 3).toFixed(1)}h6v6h-6z`;
const triangle = ({ x, y }) => `M${x.toFixed(1)} ${(y - 5).toFixed(1)}l4.6 8.4h-9.2z`;

function valueAxis({ ticks, digits }, y, right) {
  return ticks.flatMap((tick) => [
    s("path", { class: "grid", d: `M${MARGIN.left} ${y(tick)}H${right}` }),
    s("text", { class: "tick", x: MARGIN.left - 8, y: y(tick) + 4, "text-anchor": "end" }, minus(tick.toFixed(digits))),
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

/** Each clip's own threshold, from half-way to the clip before to half-way to the next. */
function thresholdPath(points, threshold, y, right) {
  if (!points.length) return `M${MARGIN.left} ${y(threshold)}H${right}`;
  let path = "";
  let drawn = MARGIN.left;
  points.forEach(({ x, clip }, i) => {
    const level = y(clip.threshold).toFixed(1);
    const to = i + 1 < points.length ? (x + points[i + 1].x) / 2 : right;
    if (to - drawn < 2) return;
    path += `M${drawn.toFixed(1)} ${level}H${to.toFixed(1)}`;
    drawn = to;
  });
  return path;
}

/** Mean domain weights of the clips of every few pixels, stacked; wider where clips are few. */
function domainStrip(points, domains, top, right) {
  const column = Math.min(24, Math.max(4, (right - MARGIN.left) / (points.length + 1)));
  const sums = new Map();
  for (const { x, clip } of points) {
    const key = Math.floor(x / column);
    const sum = sums.get(key) ?? { n: 0, weights: domains.map(() => 0) };
    sum.n += 1;
    domains.forEach((name, i) => { sum.weights[i] += clip.domain_weights[name] ?? 0; });
    sums.set(key, sum);
  }
  const paths = domains.map(() => "");
  for (const [key, { n, weights }] of sums) {
    const left = Math.max(MARGIN.left, key * column);
    const wide = Math.min(column, right - left);
    let y = top + STRIP;
    weights.forEach((weight, i) => {
      const high = (weight / n) * STRIP;
      y -= high;
      if (high > 0.05) paths[i] += `M${left} ${y.toFixed(2)}h${wide.toFixed(2)}v${high.toFixed(2)}h${(-wide).toFixed(2)}z`;
    });
  }
  if (!domains.length) return [];
  return [
    s("text", { class: "tick", x: MARGIN.left - 8, y: top + STRIP - 2, "text-anchor": "end" }, "domain"),
    s("path", { class: "strip-frame", d: `M${MARGIN.left} ${top}H${right}V${top + STRIP}H${MARGIN.left}z` }),
    ...paths.map((d, i) => s("path", { class: `tone-${Math.min(i, TONES - 1)}`, d })),
  ];
}

function tooltipLines(clip) {
  const weights = Object.entries(clip.domain_weights).sort((one, other) => other[1] - one[1]);
  return [
    h("b", {}, `${{ anomalous: "\u25b2", normal: "\u25cf" }[clip.state] ?? "\u25a1"} ${clip.state}`),
    h("span", {}, `score ${scoreText(clip.score, clip.threshold)}, threshold ${thresholdText(clip.threshold)}`),
    h("span", {}, exactTime(clip.received_at)),
    h("span", { class: "tooltip-name" }, clip.name),
    weights.length > 1 && h("span", {}, weights.slice(0, 2).map(([name, w]) => `${name} ${percent(w)}`).join(", ")),
  ].filter(Boolean);
}

function spoken(clip) {
  const side = `${clip.state}, ${clip.score > clip.threshold ? "above" : "not above"}`;
  return `${exactTime(clip.received_at)}: score ${scoreText(clip.score, clip.threshold)}, ${side} the threshold ${thresholdText(clip.threshold)}`;
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
