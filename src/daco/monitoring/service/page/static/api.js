// Talking to the service: JSON in and out, and every failure as a sentence.

const TIMEOUT = 20_000;

export class ApiError extends Error {
  constructor(message, { status = 0, retryAfter = null } = {}) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }

  /** The same request may succeed later. */
  get passing() {
    return [0, 429, 502, 503, 504].includes(this.status);
  }

  /** The same file will be refused again. */
  get final() {
    return [400, 413, 415].includes(this.status);
  }
}

let onUnauthorised = () => {};

/** What to do when the service asks for a token. */
export function whenUnauthorised(action) {
  onUnauthorised = action;
}

const machinePath = (id, rest) => `v1/machines/${encodeURIComponent(id)}/${rest}`;

export const paths = {
  session: () => "v1/session",
  machines: () => "v1/machines",
  changes: () => "v1/changes",
  history: (id) => machinePath(id, "history"),
  table: (id) => machinePath(id, "history.csv"),
  trend: (id) => machinePath(id, "trend"),
  notes: (id) => machinePath(id, "notes"),
  clip: (id) => `v1/clips/${id}`,
  clipAudio: (id) => `v1/clips/${id}/audio`,
  clipPicture: (id) => `v1/clips/${id}/picture`,
  clipAnswer: (id) => `v1/clips/${id}/answer`,
  normals: (id) => machinePath(id, "normals"),
  normalAudio: (id, index) => machinePath(id, `normals/${index}/audio`),
  normalPicture: (id, index) => machinePath(id, `normals/${index}/picture`),
  feedback: (id) => machinePath(id, "feedback"),
  healthy: (id) => machinePath(id, "healthy"),
  reset: (id) => machinePath(id, "reset"),
  service: (id) => machinePath(id, "service"),
  model: (id) => machinePath(id, "model"),
  report: () => "v1/report",
  alarms: () => "v1/alarms",
  alarm: (id, action) => `v1/alarms/${id}/${action}`,
  messages: () => "v1/messages",
  message: (id, action) => `v1/messages/${id}/${action}`,
  testMessage: () => "v1/messages/test",
  audit: () => "v1/audit",
};

/** GET as JSON; `query` leaves out what is null. */
export async function get(path, query = {}, { signal } = {}) {
  return (await request(withQuery(path, query), { signal })).json();
}

export async function post(path, body = {}, method = "POST") {
  const response = await request(path, {
    method,
    headers: method === "POST" ? { "Content-Type": "application/json" } : {},
    body: method === "POST" ? JSON.stringify(body) : null,
  });
  return response.status === 204 ? null : response.json();
}

function withQuery(path, query) {
  const known = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  return known.length ? `${path}?${new URLSearchParams(known)}` : path;
}

async function request(path, options) {
  const limit = AbortSignal.timeout(TIMEOUT);
  const signal = options.signal ? AbortSignal.any([options.signal, limit]) : limit;
  let response;
  try {
    response = await fetch(path, { ...options, signal });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError("The service does not answer.");
  }
  if (response.ok) return response;
  const text = await response.text().catch(() => "");
  throw failure(response.status, text, response.headers.get("Retry-After"), path);
}

/** Send a recording; `onProgress` gets the share that is sent. A `key` is stored and counted once. */
export function upload(machine, file, { key, record }, onProgress) {
  return new Promise((resolve, reject) => {
    const call = new XMLHttpRequest();
    const query = new URLSearchParams({ name: file.name.slice(0, 200), record });
    call.open("POST", `${machinePath(machine, "score")}?${query}`);
    call.setRequestHeader("Content-Type", mediaType(file));
    if (record) call.setRequestHeader("Idempotency-Key", key);
    call.upload.onprogress = (event) => onProgress(event.total ? event.loaded / event.total : 0);
    call.onload = () => {
      if (call.status === 200) resolve(JSON.parse(call.responseText).clip);
      else reject(failure(call.status, call.responseText, call.getResponseHeader("Retry-After")));
    };
    call.onerror = () => cutOff().then(reject);
    call.send(file);
  });
}

function mediaType(file) {
  const known = { wav: "audio/wav", flac: "audio/flac" };
  return known[file.name.split(".").pop().toLowerCase()] ?? "application/octet-stream";
}

/** A service that refuses a large body may close the connection before its answer is read. */
async function cutOff() {
  try {
    await get("healthz");
  } catch {
    return new ApiError("The service does not answer.");
  }
  return new ApiError("The service closed the connection: the file may be too big.", { status: 413 });
}

function failure(status, text, retryAfter, path) {
  if (status === 401 && path !== "login") onUnauthorised();
  return new ApiError(sentence(status, detail(text)), {
    status,
    retryAfter: retryAfter === null ? null : Number(retryAfter) || null,
  });
}

function detail(text) {
  try {
    const { detail: words } = JSON.parse(text);
    return typeof words === "string" ? words.charAt(0).toUpperCase() + words.slice(1) : "";
  } catch {
    return "";
  }
}

function sentence(status, words) {
  if (status === 413) return `The file is too big. ${words}`.trim();
  if (status === 415) return `The service cannot read this file as audio. ${words}`.trim();
  if (status === 503) return words.replace(/ Try again.*/, "") || "The service is busy.";
  return words || `The service answered with error ${status}.`;
}
