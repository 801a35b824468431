// The last scores of a machine in the size of a word.

import { s } from "./dom.js";

const WIDTH = 220, HEIGHT = 44, PAD = 6;
export const SPARK_CLIPS = 50;

/** A line of scores, triangles where clips are anomalous, and the threshold of the last one dashed. */
export function sparkline(clips) {
  const { threshold } = clips.at(-1);
  const scores = clips.map((clip) => clip.score);
  const low = Math.min(threshold, ...scores);
  const high = Math.max(threshold, ...scores);
  const y = (score) => HEIGHT - PAD - ((score - low) / (high - low || 1)) * (HEIGHT - 2 * PAD);
  // Few clips are drawn from the right as well, so that "now" is at the same place everywhere.
  const x = (i) => WIDTH - PAD - (clips.length - 1 - i) * ((WIDTH - 2 * PAD) / (SPARK_CLIPS - 1));
  const line = scores.map((score, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(score).toFixed(1)}`).join("");
  const marks = clips.map((clip, i) => (clip.alarm
    ? `M${x(i).toFixed(1)} ${(y(clip.score) - 3.6).toFixed(1)}l3.4 6h-6.8z` : "")).join("");
  return s("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" },
    s("path", { class: "threshold", d: `M0 ${y(threshold)}H${WIDTH}` }),
    s("path", { class: "spark-line", d: line }),
    s("path", { class: "anomalous-points", d: marks }),
    clips.length && !clips.at(-1).alarm && s("path", { class: "spark-last", d: `M${x(clips.length - 1)} ${y(scores.at(-1))}h0` }));
}
