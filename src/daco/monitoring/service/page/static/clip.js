// One clip: its verdict in words, and its sound beside that of the most similar normal clip.

import { paths } from "./api.js";
import { h, icon, put } from "./dom.js";
import { TONES } from "./chart.js";
import { answerRow } from "./people.js";
import { createPlayer } from "./player.js";
import { decision, duration, exactTime, isJudged, oddness, percent, reason, scoreText, thresholdText } from "./words.js";

const NOT_KEPT = "The recording was not kept. The service keeps anomalous clips only, unless it runs with --keep-audio all.";
const NOT_KNOWN = "The present model does not have this normal.";

/** The panel of the selected clip; `onAnswer(clip)` is called when somebody said what it was. */
export function createClipPanel({ onAnswer }) {
  const element = h("section", { class: "clip-panel", "aria-label": "Selected clip" });
  let ends = new AbortController();
  let shown = null;
  let players = [];

  function show(clip, machine) {
    if (shown === clip.id) return;
    shown = clip.id;
    ends.abort();
    ends = new AbortController();
    players = pair(clip, machine, ends.signal);
    const both = players.length > 1 && !players.some((player) => player.absent);
    const hint = both && h("div", { class: "swap" },
      h("button", { type: "button", class: "button", onclick: swap }, icon("swap"), "Switch to the other sound"),
      h("span", { class: "muted keys" }, "at the same moment; keys: ", h("kbd", {}, "Space"), " plays, ", h("kbd", {}, "X"), " switches"));
    const answer = h("div", {}, answerRow(clip, answered));
    function answered(saved) {
      Object.assign(clip, saved);
      put(answer, answerRow(clip, answered));
      onAnswer(clip);
    }
    put(element,
      h("div", { class: "clip-head" }, h("h2", { tabindex: "-1" }, clip.name), decision(clip)),
      h("p", { class: "muted" }, [exactTime(clip.received_at), duration(clip.seconds)].filter(Boolean).join(" \u00b7 ")),
      verdict(clip),
      reasons(clip),
      answer,
      h("div", { class: "players", onabsent: () => hint && hint.remove() }, ...players.map((player) => player.element)),
      hint,
      domainBar(clip, machine),
      details(clip));
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

function verdict(clip) {
  const side = clip.score > clip.threshold ? "above" : "not above";
  if (!isJudged(clip)) return h("p", { class: "verdict" }, `Not judged: ${clip.state}. The score does not count.`);
  return h("p", { class: "verdict" },
    "Score ", h("b", { class: clip.alarm ? "anomalous" : "" }, scoreText(clip.score, clip.threshold)),
    `, ${side} the threshold ${thresholdText(clip.threshold)}. `,
    oddness(clip),
    clip.basis && h("span", { class: "muted basis" }, ` The threshold is estimated ${clip.basis}.`));
}

function reasons(clip) {
  if (!clip.reasons.length) return null;
  return h("ul", { class: "reasons" }, clip.reasons.map(reason).map(({ title, words, figures }) =>
    h("li", {}, h("b", {}, title), words && ` \u2013 ${words}`, figures && h("span", { class: "muted" }, ` (${figures})`))));
}

function pair(clip, machine, signal) {
  const mine = createPlayer({
    title: "This clip", name: clip.name, seconds: clip.seconds,
    audio: paths.clipAudio(clip.id), picture: paths.clipPicture(clip.id), top: highestHertz(machine),
    kept: clip.has_audio, absent: clip.has_audio ? null : NOT_KEPT,
    mark: clip.worst_window !== null && clip.seconds ? clip.worst_window / clip.seconds : null,
  }, { signal });
  if (!clip.nearest) return [mine];
  const known = Number.isInteger(clip.nearest_index);
  const normal = createPlayer({
    title: "Nearest normal", name: clip.nearest, seconds: null,
    audio: paths.normalAudio(machine.id, clip.nearest_index), picture: paths.normalPicture(machine.id, clip.nearest_index),
    top: highestHertz(machine), kept: false, absent: known ? null : NOT_KNOWN, mark: null,
  }, { signal });
  return [mine, normal];
}

const highestHertz = (machine) => (machine.sample_rate ? machine.sample_rate / 2 : null);

/** What share of the clip each domain explains; text beside tone, never tone alone. */
function domainBar(clip, machine) {
  const names = Object.keys(machine.domains);
  if (names.length < 2) return null;
  const weights = names.map((name, i) => ({ name, tone: Math.min(i, TONES - 1), weight: clip.domain_weights[name] ?? 0 }));
  const bar = h("div", { class: "weight-bar", "aria-hidden": "true" }, weights.map(({ tone, weight }) => {
    const part = h("span", { class: `tone-${tone}` });
    part.style.flexGrow = weight;
    return part;
  }));
  return h("div", { class: "weights" },
    h("h3", {}, "Which domain it resembles"), bar,
    h("p", { class: "weight-words" }, weights.map(({ name, tone, weight }) =>
      h("span", {}, h("i", { class: `swatch tone-${tone}`, "aria-hidden": "true" }), `${name} ${percent(weight)}`))));
}

function details(clip) {
  const rows = [
    ["Clip", String(clip.id)],
    ["p-value", clip.p_value.toPrecision(3)],
    ["Most similar normal", clip.nearest],
    ["Its distance", clip.nearest_distance?.toPrecision(3)],
    ["Windows", clip.windows > 1 ? `${clip.windows}, the oddest at ${duration(clip.worst_window)}` : null],
    ["Model", clip.model_sha256?.slice(0, 12)],
    ["SHA-256 of the sound", clip.audio_sha256?.slice(0, 12)],
  ];
  return h("details", {}, h("summary", {}, "Figures"),
    h("dl", { class: "pairs" }, rows.filter(([, value]) => value).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    h("p", {},
      clip.has_audio && h("a", { href: paths.clipAudio(clip.id), download: clip.name }, "Download the recording"),
      clip.has_audio && " \u00b7 ",
      h("a", { href: paths.clip(clip.id) }, "As JSON")));
}
