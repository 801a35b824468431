// One recording: its verdict in words, and its sound beside that of the most similar healthy one.

import { paths } from "./api.js";
import { h, icon, put } from "./dom.js";
import { TONES } from "./chart.js";
import { answerRow } from "./people.js";
import { decibelScale, drawDifference, hertzLabels, secondLabels, theme } from "./picture.js";
import { createPlayer } from "./player.js";
import { decision, duration, exactTime, isJudged, oddnessText, percent, remarks, verdictWords } from "./words.js";

const NOT_KEPT = "The sound was not kept. By default only recordings that sound different are.";
const NOT_KNOWN = "The present model does not have this healthy recording.";

/** The panel of the selected clip; `onAnswer(clip)` is called when somebody said what it was. */
export function createClipPanel({ onAnswer }) {
  const element = h("section", { class: "clip-panel", "aria-label": "Selected recording" });
  const scale = h("div");
  let ends = new AbortController();
  let shown = null;
  let players = [];

  function show(clip, machine) {
    if (shown === clip.id) return;
    shown = clip.id;
    ends.abort();
    ends = new AbortController();
    put(scale);
    players = [];
    players = pair(clip, machine, ends.signal, drawPictures);
    drawPictures();
    const both = players.length > 1 && !players.some((player) => player.absent);
    const hint = both && h("div", { class: "swap" },
      h("button", { type: "button", class: "button", onclick: swap }, icon("swap"), "Switch to the other sound"),
      h("span", { class: "muted keys" }, "at the same moment, equally loud; keys: ", h("kbd", {}, "Space"), " plays, ", h("kbd", {}, "X"), " switches"));
    const answer = h("div", {}, answerRow(clip, answered));
    function answered(saved) {
      Object.assign(clip, saved);
      put(answer, answerRow(clip, answered));
      onAnswer(clip);
    }
    put(element,
      h("div", { class: "clip-head" }, h("h2", { tabindex: "-1" }, clip.name), decision(clip)),
      h("p", { class: "muted" }, `${clip.recorded_at ? "Recorded" : "Received"} ${exactTime(clip.time)}${clip.seconds ? ` \u00b7 ${duration(clip.seconds)}` : ""}`),
      h("p", { class: "verdict" }, verdictWords(clip), " ",
        isJudged(clip) && h("span", { class: "nowrap" }, "Oddness ", h("b", { class: clip.anomalous ? "anomalous" : "" }, oddnessText(clip)), ", limit 1.")),
      findings(clip),
      answer,
      h("div", { class: "players", onabsent: () => hint && hint.remove() }, ...players.map((player) => player.element)),
      scale,
      hint,
      conditionWords(clip, machine),
      links(clip));
  }

  /** Both pictures on one scale, both sounds equally loud. */
  function drawPictures() {
    const drawn = players.filter((player) => player.picture);
    if (!drawn.length) return;
    const loud = Math.max(...drawn.map((player) => player.picture.loud));
    const loudness = Math.min(...drawn.map((player) => player.picture.loudness));
    for (const player of drawn) player.draw({ loud, loudness });
    const [one, other] = drawn.map((player) => player.picture);
    put(scale, decibelScale(loud), other?.bands === one.bands && h("details", { class: "difference", open: true },
      h("summary", {}, "Difference"), h("div", { class: "spectrogram" }, drawDifference(one, other, theme()), ...hertzLabels(one)),
      h("div", { class: "seconds", "aria-hidden": "true" }, ...secondLabels(one)),
      h("p", { class: "muted keys" }, "Warm: up to 20 dB louder than the healthy recording; cold: quieter")));
  }

  /** Hear the same moment of the other recording: differences are easiest to hear that way. */
  function swap() {
    if (players.length < 2 || players.some((player) => player.absent)) return;
    const [one, other] = players;
    const [from, to] = other.isPlaying ? [other, one] : [one, other];
    to.play(from.isPlaying ? from.seconds : null);
  }

  return {
    element,
    show,
    swap,
    toggle: () => players[0]?.toggle(),
    say: (text) => { shown = null; players = []; ends.abort(); put(element, h("p", { class: "empty" }, text)); },
    end: () => ends.abort(),
  };
}

/** What sounds different, the most important first, and what else to know. */
function findings(clip) {
  const known = clip.anomalous ? clip.findings : null;
  const found = known?.length === 0 ? [{ text: "No single feature stands out." }] : known ?? [];
  const lines = [...found.map((finding) => h("li", { class: "finding" }, finding.text)), ...remarks(clip).map((words) => h("li", {}, words))];
  return lines.length ? h("ul", { class: "reasons" }, lines) : null;
}

function pair(clip, machine, signal, onPicture) {
  const marks = (clip.anomalous ? clip.findings ?? [] : []).filter((each) => each.start_s !== null && each.start_s !== undefined)
    .map((each) => ({ start: each.start_s, end: each.end_s ?? each.start_s, title: each.text }));
  if (!marks.length && clip.worst_window !== null) marks.push({ start: clip.worst_window, end: clip.worst_window, title: "The oddest part begins here" });
  const mine = createPlayer({
    title: "This recording", name: clip.name, seconds: clip.seconds,
    audio: paths.clipAudio(clip.id), picture: paths.clipPicture(clip.id),
    kept: clip.has_audio, absent: clip.has_audio ? null : NOT_KEPT, marks,
  }, { signal, onPicture });
  if (!clip.nearest) return [mine];
  const known = Number.isInteger(clip.nearest_index);
  const normal = createPlayer({
    title: "Most similar healthy recording", name: clip.nearest, seconds: null,
    audio: paths.normalAudio(machine.id, clip.nearest_index), picture: paths.normalPicture(machine.id, clip.nearest_index),
    kept: false, absent: known ? null : NOT_KNOWN, marks: [],
  }, { signal, onPicture });
  return [mine, normal];
}

/** Which operating condition it resembles. */
function conditionWords(clip, { conditions }) {
  if (conditions.length < 2) return null;
  return h("p", { class: "weight-words" }, "Operating condition:", conditions.map((name, i) =>
    h("span", {}, h("i", { class: `swatch tone-${Math.min(i, TONES - 1)}`, "aria-hidden": "true" }), `${name} ${percent(clip.domain_weights[name] ?? 0)}`)));
}

function links(clip) {
  return h("p", { class: "links" },
    clip.windows > 1 && h("span", {}, `${clip.windows} parts were judged; the oddest begins at ${duration(clip.worst_window)}.`),
    clip.has_audio && h("a", { href: paths.clipAudio(clip.id), download: clip.name }, "Download the recording"),
    h("a", { href: paths.clip(clip.id) }, "All figures as JSON"));
}
