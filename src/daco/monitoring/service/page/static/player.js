// A recording to look at and to listen to. Of two players only one sounds.

import { get } from "./api.js";
import { h, icon, put, say } from "./dom.js";
import { dark, drawPicture, hertzLabels, secondLabels, theme, unpacked } from "./picture.js";
import { fileName } from "./words.js";

const MOST_TRIES = 5;

let playing = null;

/**
 * `recording`: {title, name, seconds, audio, picture, kept, absent, marks}. `audio` and `picture`
 * are paths; `kept` says that the sound is there, `absent` why not, and neither that nobody knows;
 * `marks` are [{start, end, title}] in seconds. `onPicture()` is called when a picture has arrived.
 */
export function createPlayer(recording, { signal, onPicture }) {
  const sound = new Audio();
  sound.preload = "none";
  const picture = h("div", { class: "spectrogram", onpointerdown: seekByPointer },
    h("p", { class: "spectrogram-wait" }, "Loading\u2026"));
  const axis = h("div", { class: "seconds", "aria-hidden": "true" });
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
    picture, axis, controls);
  let frame = 0;

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

  async function load(tries = 0) {
    if (recording.absent) {
      isAbsent(recording.absent);
      return;
    }
    try {
      player.picture = unpacked(await get(recording.picture, {}, { signal }));
      onPicture();
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 404 && !recording.kept) {
        isAbsent(error.message);
        return;
      }
      put(picture, h("p", { class: "spectrogram-wait" }, error.message));
      if (error.passing && tries < MOST_TRIES) setTimeout(() => signal.aborted || load(tries + 1), 1000 * (error.retryAfter ?? 2));
    }
  }

  function mark({ start, end, title }) {
    const box = h("div", { class: "worst", title });
    box.style.left = `${(100 * start) / player.picture.seconds}%`;
    if (end > start) box.style.width = `${(100 * (end - start)) / player.picture.seconds}%`;
    return box;
  }

  const player = {
    element,
    absent: false,
    picture: null,
    get isPlaying() { return !sound.paused; },
    get seconds() { return sound.currentTime; },
    /** Draw the picture with a scale that others share, and play as loud as the quieter of both. */
    draw({ loud, loudness }) {
      if (!player.picture) return;
      put(picture, drawPicture(player.picture, { loud, theme: theme(), title: recording.title.toLowerCase() }),
        ...hertzLabels(player.picture), ...recording.marks.map(mark), head);
      put(axis, ...secondLabels(player.picture));
      sound.volume = Math.min(1, 10 ** ((loudness - player.picture.loudness) / 20));
    },
    pause: () => sound.pause(),
    async play(from = null) {
      if (playing && playing !== player) playing.pause();
      playing = player;
      if (!sound.src) sound.src = recording.audio;
      if (from !== null) sound.currentTime = from;
      try {
        await sound.play();
      } catch (error) {
        if (error.name !== "AbortError") say(time, "It is no longer kept, or this browser cannot play it.");
      }
    },
    toggle,
  };

  for (const event of ["play", "pause", "ended"]) sound.addEventListener(event, label);
  signal.addEventListener("abort", () => {
    sound.pause();
    sound.removeAttribute("src");
  });
  dark.addEventListener("change", onPicture, { signal });
  label();
  load();
  return player;
}
