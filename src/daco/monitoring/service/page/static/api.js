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

export const paths = {
  machines: () => "v1/machines",
  history: (id) => `v1/machines/${encodeURIComponent(id)}/history`,
  score: (id, name) => `v1/machines/${encodeURIComponent(id)}/score?name=${encodeURIComponent(name)}`,
  clip: (id) => `v1/clips/${id}`,
  clipAudio: (id) => `v1/clips/${id}/audio`,
  clipPicture: (id) => `v1/clips/${id}/spectrogram.png`,
  normalAudio: (id, index) => `v1/machines/${encodeURIComponent(id)}/normals/${index}/audio`,
  normalPicture: (id, index) => `v1/machines/${encodeURIComponent(id)}/normals/${index}/spectrogram.png`,
  normals: (id) => `v1/machines/${encodeURIComponent(id)}/normals`,
  alarms: () => "v1/alarms",
  acknowledge: (id) => `v1/alarms/${id}/acknowledge`,
  alarmAnswer: (id) => `v1/alarms/${id}/answer`,
  clipAnswer: (id) => `v1/clips/${id}/answer`,
  feedback: (id) => `v1/machines/${encodeURIComponent(id)}/feedback`,
  healthy: (id) => `v1/machines/${encodeURIComponent(id)}/healthy`,
  reset: (id) => `v1/machines/${encodeURIComponent(id)}/reset`,
  events: () => "v1/events",
};

/** GET as JSON; `query` leaves out what is null. */
export async function get(path, query = {}, { signal } = {}) {
  return (await request(withQuery(path, query), { signal })).json();
}

export async function getBlob(path, query = {}, { signal } = {}) {
  return (await request(withQuery(path, query), { signal })).blob();
}

export async function post(path, body) {
  const response = await request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
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
export function upload(machine, file, key, onProgress) {
  return new Promise((resolve, reject) => {
    const call = new XMLHttpRequest();
    call.open("POST", paths.score(machine, file.name.slice(0, 200)));
    call.setRequestHeader("Content-Type", mediaType(file));
    call.setRequestHeader("Idempotency-Key", key);
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
  switch (status) {
    case 401: return words || "The token is missing or wrong.";
    case 404: return words || "The service did not find it.";
    case 413: return `The file is too big. ${words}`.trim();
    case 415: return `The service cannot read this file as audio. ${words}`.trim();
    case 429:
    case 503: return words.replace(/ Try again.*/, "") || "The service is busy.";
    default: return words || `The service answered with error ${status}.`;
  }
}
