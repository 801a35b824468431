// Recordings from this computer: dropped anywhere or picked, sent one by one, answered in words.

import { upload } from "./api.js";
import { announce, h, icon, put } from "./dom.js";
import { currentRoute, goTo, linkTo } from "./route.js";
import { addClip, allMachines, may, titleOf } from "./state.js";
import { decision, fileName, megabytes, stateWord, verdictWords } from "./words.js";

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
    zone.firstElementChild.textContent = id ? `Drop recordings of ${titleOf(id)}` : "Drop recordings";
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

/** Ask which machine it is and whether to record it, and send the files. */
async function accept(files, dropped = null) {
  const machines = allMachines() ?? [];
  if (!files.length || !machines.length || !may("operator")) return;
  const chosen = await ask(files, machines, dropped ?? currentRoute().machine);
  if (!chosen) return;
  for (const file of files) queue.push(createTask(file, chosen));
  work();
}

function ask(files, machines, guess) {
  return new Promise((resolve) => {
    const choice = h("select", { id: "upload-machine" }, machines.map((each) => h("option", { value: each.id, selected: each.id === guess }, each.title)));
    const record = h("input", { type: "checkbox", id: "upload-record" });
    const dialog = h("dialog", { class: "dialog", "aria-labelledby": "upload-title" },
      h("form", { method: "dialog" },
        h("h2", { id: "upload-title" }, "Judge a recording"),
        h("p", { class: "muted" }, files.length === 1 ? files[0].name : `${files.length} recordings`),
        h("label", { for: "upload-machine" }, "Machine"), choice,
        h("label", { class: "check", for: "upload-record" }, record, "Record it: store it and let it count for alarms"),
        h("p", { class: "muted" }, "Otherwise it is only a trial: nothing is stored."),
        h("div", { class: "actions" },
          h("button", { type: "button", class: "button", onclick: () => dialog.close() }, "Cancel"),
          h("button", { type: "submit", class: "button primary", value: "go" }, "Judge"))));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "go" ? { id: choice.value, record: record.checked } : null);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

function createTask(file, { id, record }) {
  const bar = h("progress", { max: "1", value: "0", "aria-label": `Sending ${file.name}` });
  const text = h("div", { class: "upload-text" }, "Waiting\u2026");
  const node = h("li", { class: "upload" }, fileName(file.name, { class: "upload-name" }), text, bar);
  const list = region().querySelector("ul");
  list.prepend(node);
  while (list.children.length > MOST_SHOWN) list.lastElementChild.remove();
  // Tried again after an answer that was lost, it is still the same clip.
  const key = [...crypto.getRandomValues(new Uint32Array(4))].map((word) => word.toString(36)).join("-");
  return { file, id, key, record, node, bar, text, tries: 0 };
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
      const clip = await upload(id, file, task, (share) => {
        bar.value = share;
        if (share === 1) {
          bar.removeAttribute("value");
          put(text, "Judging\u2026");
        }
      });
      succeed(task, clip);
      if (!task.record) return;
      addClip(clip);
      // Whoever sends a single recording of the machine they look at wants to see it.
      if (!queue.length && currentRoute().machine === id) goTo({ machine: id, clip: clip.id, range: currentRoute().range });
      return;
    } catch (error) {
      task.tries += 1;
      if (error.status === 401 || !error.passing || task.tries >= MOST_TRIES) {
        fail(task, error);
        return;
      }
      const wait = Math.min(LONGEST_WAIT, error.retryAfter ?? 2 ** task.tries);
      put(text, `${error.message} Trying again in ${wait} s.`);
      await new Promise((resolve) => setTimeout(resolve, 1000 * wait));
    }
  }
}

function succeed(task, clip) {
  task.bar.hidden = true;
  put(task.text, decision(clip),
    h("p", {}, verdictWords(clip), task.record ? "" : " Only a trial: it is not stored."),
    task.record && h("a", { href: linkTo({ machine: task.id, clip: clip.id }) }, "Show", h("span", { class: "hidden" }, ` ${task.file.name}`)));
  announce(`${task.file.name}: ${stateWord(clip)}.`);
}

function fail(task, error) {
  task.bar.hidden = true;
  const again = () => { task.tries = 0; queue.push(task); work(); };
  put(task.text, h("p", { class: "problem", role: "alert" }, error.message),
    !error.final && h("button", { type: "button", class: "button", onclick: again }, "Try again"));
}
