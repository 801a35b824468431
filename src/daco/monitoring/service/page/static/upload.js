// Recordings from this computer: dropped anywhere or picked, sent one by one, answered in words.

import { upload } from "./api.js";
import { announce, h, icon, put } from "./dom.js";
import { currentRoute, goTo, linkTo } from "./route.js";
import { addClip, allMachines, machine as machineOf } from "./state.js";
import { decision, fileName, megabytes, scoreText, thresholdText } from "./words.js";

const MOST_TRIES = 5;
const LONGEST_WAIT = 30;
const MOST_SHOWN = 50;

const queue = [];
let busy = false;

export function startUploads() {
  const file = document.getElementById("file");
  const zone = document.getElementById("dropzone");
  file.addEventListener("change", () => {
    accept([...file.files]);
    file.value = "";
  });
  let depth = 0;
  const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragenter", (event) => {
    if (!carriesFiles(event)) return;
    depth += 1;
    const id = currentRoute().machine;
    zone.firstElementChild.textContent = id ? `Drop recordings of ${machineOf(id)?.machine ?? id}` : "Drop recordings";
    zone.hidden = false;
  });
  addEventListener("dragleave", (event) => {
    if (carriesFiles(event)) zone.hidden = (depth = Math.max(0, depth - 1)) === 0;
  });
  addEventListener("dragover", (event) => carriesFiles(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    depth = 0;
    zone.hidden = true;
    const card = event.target.closest?.("[data-id]");
    accept([...event.dataTransfer.files], card?.dataset.id);
  });
}

/** Send files to the machine that is looked at, or ask which. */
async function accept(files, dropped = null) {
  if (!files.length) return;
  const machines = allMachines() ?? [];
  const id = dropped ?? currentRoute().machine ?? (machines.length === 1 ? machines[0].id : await ask(files, machines));
  if (!id) return;
  for (const file of files) queue.push(createTask(file, id));
  work();
}

function ask(files, machines) {
  if (!machines.length) return null;
  return new Promise((resolve) => {
    const choice = h("select", { id: "upload-machine" }, machines.map((each) => h("option", { value: each.id }, each.machine)));
    const dialog = h("dialog", { class: "dialog", "aria-labelledby": "upload-title" },
      h("form", { method: "dialog" },
        h("h2", { id: "upload-title" }, "Which machine is it?"),
        h("p", { class: "muted" }, files.length === 1 ? files[0].name : `${files.length} recordings`),
        h("label", { for: "upload-machine" }, "Machine"), choice,
        h("div", { class: "actions" },
          h("button", { type: "button", class: "button", onclick: () => dialog.close() }, "Cancel"),
          h("button", { type: "submit", class: "button primary", value: "go" }, "Score"))));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "go" ? choice.value : null);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

function createTask(file, id) {
  const bar = h("progress", { max: "1", value: "0", "aria-label": `Sending ${file.name}` });
  const text = h("div", { class: "upload-text" }, "Waiting\u2026");
  const node = h("li", { class: "upload" }, fileName(file.name, { class: "upload-name" }), text, bar);
  const list = region().querySelector("ul");
  list.prepend(node);
  while (list.children.length > MOST_SHOWN) list.lastElementChild.remove();
  // Tried again after an answer that was lost, it is still the same clip.
  const key = [...crypto.getRandomValues(new Uint32Array(4))].map((word) => word.toString(36)).join("-");
  return { file, id, key, node, bar, text, tries: 0 };
}

/** The box in the corner, made when there is something to tell. */
function region() {
  const box = document.getElementById("uploads");
  if (!box.firstChild) {
    put(box,
      h("div", { class: "uploads-head" }, h("h2", {}, "Your recordings"),
        h("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: () => put(box) }, icon("close"))),
      h("ul"));
  }
  return box;
}

/** One at a time: a folder of clips dropped here must not crowd out the machines. */
async function work() {
  if (busy) return;
  busy = true;
  for (let task = queue.shift(); task; task = queue.shift()) await send(task);
  busy = false;
}

async function send(task) {
  const { file, id, bar, text } = task;
  bar.hidden = false;
  for (;;) {
    put(text, `Sending ${megabytes(file.size)}\u2026`);
    try {
      const clip = await upload(id, file, task.key, (share) => {
        bar.value = share;
        if (share === 1) {
          bar.removeAttribute("value");
          put(text, "Scoring\u2026");
        }
      });
      addClip(id, clip);
      succeed(task, clip);
      // Whoever sends a single clip to the machine they look at wants to see that clip.
      if (!queue.length && currentRoute().machine === id) goTo({ machine: id, clip: clip.id, range: currentRoute().range });
      return;
    } catch (error) {
      task.tries += 1;
      if (error.status === 401 || !error.passing || task.tries >= MOST_TRIES) {
        fail(task, error);
        return;
      }
      await countDown(task, error);
    }
  }
}

function succeed(task, clip) {
  task.bar.hidden = true;
  put(task.text, decision(clip),
    h("span", {}, `${scoreText(clip.score, clip.threshold)}, threshold ${thresholdText(clip.threshold)}`),
    h("a", { href: linkTo({ machine: task.id, clip: clip.id }) }, "Show", h("span", { class: "hidden" }, ` ${task.file.name}`)));
  announce(`${task.file.name}: ${clip.alarm ? "anomalous" : "normal"}, score ${scoreText(clip.score, clip.threshold)}.`);
}

function fail(task, error) {
  task.bar.hidden = true;
  put(task.text, h("p", { class: "problem", role: "alert" }, error.message), !error.final && h("button", {
    type: "button", class: "button",
    onclick: () => {
      task.tries = 0;
      queue.push(task);
      work();
    },
  }, "Try again"));
}

async function countDown(task, error) {
  const wait = Math.min(LONGEST_WAIT, error.retryAfter ?? 2 ** task.tries);
  for (let left = Math.ceil(wait); left > 0; left -= 1) {
    put(task.text, `${error.message} Trying again in ${left} s.`);
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
