// Axes: round numbers, round times, and no more points than can be told apart.

const STEPS = [1, 2, 5, 10];

/** About `n` round values that cover [low, high]. */
export function niceTicks(low, high, n) {
  const raw = (high - low) / Math.max(1, n);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * STEPS.find((each) => each * power >= raw * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  const ticks = [];
  for (let k = first; k * step <= high + step * 1e-9; k += 1) ticks.push(k * step);
  return { ticks, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const TIME_STEPS = [
  SECOND, 5 * SECOND, 15 * SECOND, 30 * SECOND,
  MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE,
  HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 91 * DAY, 364 * DAY,
];

/** About `n` round local times between two instants, and the step between them. */
export function timeTicks(from, to, n) {
  const raw = (to - from) / Math.max(1, n);
  const step = TIME_STEPS.find((each) => each >= raw) ?? TIME_STEPS.at(-1);
  const ticks = [];
  const start = new Date(from);
  start.setHours(0, 0, 0, 0);
  let at = start.getTime();
  if (step < DAY) at += Math.floor((from - at) / step) * step;
  for (; at <= to; at = next(at, step)) if (at >= from) ticks.push(at);
  return { ticks, step };
}

/** Days are not all 24 hours long where clocks are changed. */
function next(at, step) {
  if (step < DAY) return at + step;
  const day = new Date(at);
  day.setDate(day.getDate() + step / DAY);
  return day.getTime();
}

/**
 * One point for each few pixels: what is left out would be drawn under another of its kind, so
 * that the picture stays that of all points. The highest of a cell is the one that is kept.
 */
export function thinned(points, cell = 3) {
  const cells = new Map();
  for (const point of points) {
    const kind = ["normal", "anomalous"].indexOf(point.clip.state) + 1;
    const key = 3 * (Math.floor(point.x / cell) * 4096 + Math.floor(point.y / cell)) + kind;
    const kept = cells.get(key);
    if (!kept || point.y < kept.y) cells.set(key, point);
  }
  return [...cells.values()];
}
