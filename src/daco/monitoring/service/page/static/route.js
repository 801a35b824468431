// Addresses: #/, #/messages, #/machines/ID, #/machines/ID/clips/NUMBER, each with ?range=.

/** The address bar as `{view, machine, clip, range}`; nulls for what it does not say. */
export function currentRoute() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  const [, place, machine, what, clip] = path.split("/");
  const named = place === "machines" && machine ? decoded(machine) : null;
  return {
    view: named !== null ? "machine" : place === "messages" ? "messages" : "overview",
    machine: named,
    clip: named && what === "clips" && /^\d{1,15}$/.test(clip ?? "") ? Number(clip) : null,
    range: new URLSearchParams(query).get("range"),
  };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function linkTo({ machine = null, clip = null, range = null }) {
  if (machine === null) return "#/";
  const base = `#/machines/${encodeURIComponent(machine)}${clip === null ? "" : `/clips/${clip}`}`;
  return range ? `${base}?range=${encodeURIComponent(range)}` : base;
}

/** Go there; `replace` leaves no step for the back button. */
export function goTo(route, { replace = false } = {}) {
  const link = linkTo(route);
  if (link === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", link);
  dispatchEvent(new Event("hashchange"));
}
