// A spectrogram on a canvas: hertz upwards, seconds to the right, decibels on one scale for two.

import { h } from "./dom.js";
import { niceTicks } from "./scale.js";

const DEPTH = 70;
const FLOOR = -128;
const HERTZ = [125, 250, 500, 1000, 2000, 4000, 8000, 16000];
const COLOURS = {
  dark: ["#10141a", "#3b1f63", "#8c2a6b", "#d9524b", "#f79a3e", "#fcf6c8"],
  light: ["#ffffff", "#fbdca8", "#f0925c", "#c9416b", "#7c2278", "#1d1038"],
};

const DIFFERENCE = { dark: ["#56b4e9", "#12171e", "#ff8b3d"], light: ["#0072b2", "#ffffff", "#d55e00"] };
const STRONG = 20;
const COUNT = 256;

export const dark = matchMedia("(prefers-color-scheme: dark)");
export const theme = () => (dark.matches ? "dark" : "light");

/** So many colours from the first to the last of a few, as bytes. */
function palette(colours) {
  const context = new OffscreenCanvas(COUNT, 1).getContext("2d");
  context.fillStyle = context.createLinearGradient(0, 0, COUNT, 0);
  colours.forEach((colour, i) => context.fillStyle.addColorStop(i / (colours.length - 1), colour));
  context.fillRect(0, 0, COUNT, 1);
  return context.getImageData(0, 0, COUNT, 1).data;
}

/** The picture of the service with its levels as bytes, and the level that few of them exceed. */
export function unpacked(picture) {
  const bytes = Uint8Array.from(atob(picture.levels), (letter) => letter.charCodeAt(0));
  const sorted = bytes.slice().sort();
  return { ...picture, bytes, loud: sorted[Math.floor(0.995 * (sorted.length - 1))] };
}

/** Draw a picture so that `loud` has the strongest colour; axes are beside it. */
export function drawPicture(picture, { loud, theme, title }) {
  return draw(picture, COLOURS[theme], (byte) => 1 + (byte - loud) / DEPTH, `Spectrogram of ${title}`);
}

/** What is louder (warm) and quieter (cold) than usual in a healthy recording, band by band. */
export function drawDifference(picture, healthy, theme) {
  const usual = Array.from({ length: healthy.bands }, (_, band) => {
    const row = healthy.bytes.slice(band * healthy.columns, (band + 1) * healthy.columns).sort();
    return row[row.length >> 1];
  });
  return draw(picture, DIFFERENCE[theme], (byte, band) => 0.5 + (byte - usual[band]) / (2 * STRONG), "Difference from the healthy recording");
}

function draw({ bands, columns, bytes }, colours, share, label) {
  const canvas = h("canvas", { width: columns, height: bands, role: "img", "aria-label": `${label}: seconds from left to right, hertz from bottom to top` });
  const image = new ImageData(columns, bands);
  const colour = palette(colours);
  for (let at = 0; at < bytes.length; at += 1) {
    const band = Math.floor(at / columns);
    const step = Math.round((COUNT - 1) * Math.min(1, Math.max(0, share(bytes[at], band))));
    image.data.set(colour.subarray(4 * step, 4 * step + 4), 4 * ((bands - 1 - band) * columns + (at % columns)));
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/** Labels of frequencies at their places, from the top as long as there is room. */
export function hertzLabels({ hertz, bands }) {
  let free = 0.95;
  return HERTZ.toReversed().filter((each) => each > 1.2 * hertz[0] && each < hertz.at(-1)).flatMap((each) => {
    const above = hertz.findIndex((centre) => centre >= each);
    const place = (above - (hertz[above] - each) / (hertz[above] - hertz[above - 1]) + 0.5) / bands;
    if (place > free) return [];
    free = place - 0.13;
    return [at(h("span", { class: "hertz" }, each < 1000 ? `${each} Hz` : `${each / 1000} kHz`), "bottom", place)];
  });
}

/** Labels of seconds, at their places. */
export function secondLabels({ seconds }) {
  const { ticks, digits } = niceTicks(0, seconds, 4);
  return ticks.filter((tick) => tick <= 0.97 * seconds).map((tick, i) => at(h("span", { class: "second" }, `${tick.toFixed(digits)}${i ? "" : " s"}`), "left", tick / seconds));
}

/** The one scale of both pictures, in decibels. */
export function decibelScale(loud) {
  return h("p", { class: "decibels muted" },
    h("span", {}, `${loud + FLOOR - DEPTH}`.replace("-", "\u2212")), h("i", { class: "scale-bar", "aria-hidden": "true" }), h("span", {}, `${loud + FLOOR} dB`.replace("-", "\u2212")));
}

function at(node, side, share) {
  node.style[side] = `${100 * share}%`;
  return node;
}
