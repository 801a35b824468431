// A recording to look at and to listen to. Of two players only one sounds.

import { ApiError, getBlob } from "./api.js";
import { h, icon, put, say } from "./dom.js";
import { fileName } from "./words.js";

const MOST_TRIES = 5;

let playing = null;

const mel = (hertz) => Math.log10(1 + hertz / 700);

const dark = matchMedia("(prefers-color-scheme: dark)");

/**
 * `recording`: {title, name, seconds, audio, picture, kept, absent, mark, top}. `audio` and `picture`
 * are paths; `kept` says that the sound is there, `absent` why not, and neither that nobody knows;
 * `mark` is a share of the length, `top` the picture's highest Hz.
 */
export function createPlayer(recording, { signal }) {
  const sound = new Audio();
  sound.preload = "none";
  const picture = h("div", { class: "spectrogram", onpointerdown: seekByPointer },
    h("p", { class: "spectrogram-wait" }, "Loading\u2026"));
  const head = h("div", { class: "playhead", hidden: true, "aria-hidden": "true" });
  const button = h("button", { type: "button", class: "play", onclick: toggle });
  const position = h("input", {
    type: "range", class: "position", min: "0", max: "1000", step: "1", value: "0",
    "aria-label": `Position in ${recording.title.toLowerCase()}`, oninput: () => seek(position.value / 1000),
  });
  const time = h("span", { class: "time" });
  const controls = h("div", { class: "controls" }, button, position, time);
  const element = h("figure", { class: "player", role: "group", "aria-label": recording.title, onkeydown },
    h("figcaption", {}, h("b", {}, recording.title), fileName(recording.name, { class: "player-name" })),
    picture, controls);
  let frame = 0;
  let address = null;

  function toggle() {
    if (player.absent) return;
    if (sound.paused) player.play();
    else player.pause();
  }

  function seek(share) {
    if (!sound.src) sound.src = recording.audio;
    if (Number.isFinite(sound.duration)) {
      sound.currentTime = share * sound.duration;
      follow();
    } else {
      sound.preload = "metadata";
      sound.addEventListener("loadedmetadata", () => seek(share), { once: true });
    }
  }

  function seekByPointer(event) {
    const box = picture.getBoundingClientRect();
    seek(Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
  }

  function onkeydown(event) {
    const onButton = event.target === button;
    const onRange = event.target === position;
    if (event.key === " " && !onButton) toggle();
    else if (event.key === "ArrowLeft" && !onRange) nudge(-1);
    else if (event.key === "ArrowRight" && !onRange) nudge(1);
    else return;
    event.preventDefault();
  }

  function nudge(seconds) {
    const length = sound.duration || recording.seconds || 1;
    seek(Math.min(1, Math.max(0, (sound.currentTime + seconds) / length)));
  }

  /** The playhead and the slider follow the sound. */
  function follow() {
    const length = sound.duration || recording.seconds || 0;
    const share = length ? sound.currentTime / length : 0;
    position.value = Math.round(1000 * share);
    position.setAttribute("aria-valuetext", `${sound.currentTime.toFixed(1)} of ${length.toFixed(1)} seconds`);
    head.hidden = sound.paused && sound.currentTime === 0;
    head.style.left = `${100 * share}%`;
    say(time, `${sound.currentTime.toFixed(1)}${length ? ` / ${length.toFixed(1)}` : ""} s`);
    cancelAnimationFrame(frame);
    if (!sound.paused) frame = requestAnimationFrame(follow);
  }

  function label() {
    put(button, icon(sound.paused ? "play" : "pause"));
    button.setAttribute("aria-label", `${sound.paused ? "Play" : "Pause"} ${recording.title.toLowerCase()}`);
    element.classList.toggle("sounding", !sound.paused);
    follow();
  }

  /** There is nothing to see or to hear, and why. */
  function isAbsent(why) {
    controls.hidden = true;
    player.absent = true;
    put(picture, h("p", { class: "spectrogram-wait" }, why));
    element.dispatchEvent(new Event("absent", { bubbles: true }));
  }

  async function draw(tries = 0) {
    if (recording.absent) {
      isAbsent(recording.absent);
      return;
    }
    try {
      const blob = await getBlob(recording.picture, { theme: dark.matches ? "dark" : "light" }, { signal });
      if (address) URL.revokeObjectURL(address);
      address = URL.createObjectURL(blob);
      put(picture,
        h("img", { src: address, alt: `Spectrogram of ${recording.title.toLowerCase()}: time from left to right, pitch from bottom to top`, draggable: "false" }),
        recording.top && pitches(recording.top), recording.mark !== null && mark(), head);
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 404 && !recording.kept) {
        isAbsent(error.message);
        return;
      }
      put(picture, h("p", { class: "spectrogram-wait" }, error.message));
      if (error.passing && tries < MOST_TRIES) setTimeout(() => signal.aborted || draw(tries + 1), 1000 * (error.retryAfter ?? 2));
    }
  }

  function mark() {
    const line = h("div", { class: "worst", title: "The oddest part begins here" });
    line.style.left = `${100 * recording.mark}%`;
    return line;
  }

  /** Kilohertz at their places on the mel scale. */
  function pitches(top) {
    return [500, 1000, 2000, 4000, 8000, 16000].filter((hertz) => hertz < 0.9 * top).map((hertz) => {
      const label = h("span", { class: "pitch" }, `${hertz / 1000} kHz`);
      label.style.bottom = `${(100 * mel(hertz)) / mel(top)}%`;
      return label;
    });
  }

  async function explain() {
    try {
      await getBlob(recording.audio, {}, { signal });
    } catch (error) {
      if (error instanceof ApiError) say(time, error.message);
      return;
    }
    say(time, "This browser cannot play it.");
  }

  const player = {
    element,
    absent: false,
    get isPlaying() { return !sound.paused; },
    get seconds() { return sound.currentTime; },
    pause: () => sound.pause(),
    async play(from = null) {
      if (playing && playing !== player) playing.pause();
      playing = player;
      if (!sound.src) sound.src = recording.audio;
      if (from !== null) sound.currentTime = from;
      try {
        await sound.play();
      } catch (error) {
        if (error.name !== "AbortError") explain();
      }
    },
    toggle,
  };

  for (const event of ["play", "pause", "ended"]) sound.addEventListener(event, label);
  signal.addEventListener("abort", () => {
    sound.pause();
    sound.removeAttribute("src");
    if (address) URL.revokeObjectURL(address);
  });
  dark.addEventListener("change", () => draw(), { signal });
  label();
  draw();
  return player;
}
