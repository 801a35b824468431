// The last clips of a machine in the size of a word.

import { s } from "./dom.js";
import { isJudged } from "./words.js";

const WIDTH = 220, HEIGHT = 44, PAD = 6;
export const SPARK_CLIPS = 50;

/** A line of oddness, triangles where clips sound different, and the limit dashed. */
export function sparkline(clips) {
  const top = Math.max(2, ...clips.filter(isJudged).map((clip) => clip.oddness));
  const y = (oddness) => HEIGHT - PAD - (Math.max(0, oddness) / top) * (HEIGHT - 2 * PAD);
  // Few clips are drawn from the right as well, so that "now" is at the same place everywhere.
  const x = (i) => WIDTH - PAD - (clips.length - 1 - i) * ((WIDTH - 2 * PAD) / (SPARK_CLIPS - 1));
  const at = (i) => `${x(i).toFixed(1)} ${y(clips[i].oddness).toFixed(1)}`;
  let line = "", marks = "", others = "", drawn = false;
  clips.forEach((clip, i) => {
    if (isJudged(clip)) line += `${drawn ? "L" : "M"}${at(i)}`;
    else others += `M${(x(i) - 2).toFixed(1)} ${HEIGHT - PAD - 4}h4v4h-4z`;
    if (clip.anomalous) marks += `M${x(i).toFixed(1)} ${(y(clip.oddness) - 3.6).toFixed(1)}l3.4 6h-6.8z`;
    drawn = isJudged(clip);
  });
  return s("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" },
    s("path", { class: "threshold", d: `M0 ${y(1).toFixed(1)}H${WIDTH}` }),
    s("path", { class: "spark-line", d: line }),
    s("path", { class: "other-points", d: others }),
    s("path", { class: "anomalous-points", d: marks }),
    clips.at(-1).state === "normal" && s("path", { class: "spark-last", d: `M${at(clips.length - 1)}h0` }));
}
