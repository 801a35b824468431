// Elements, made in one way only: text goes in as text and is never read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element; `on...` are listeners, other properties attributes, null and false are left out. */
export function h(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** An SVG element. */
export function s(tag, props = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

function filled(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...present(children));
  return node;
}

function present(children) {
  return children.flat().filter((child) => child !== null && child !== undefined && child !== false);
}

/** Replace what is in a node. */
export function put(node, ...children) {
  node.replaceChildren(...present(children));
  return node;
}

/** Change a text only when it differs, so that screen readers are not told the same twice. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function icon(name) {
  return s("svg", { class: `icon icon-${name}`, "aria-hidden": "true" },
    s("use", { href: `static/icons.svg#${name}` }));
}

/** Tell screen readers: politely, or at once. */
export function announce(text, { urgent = false } = {}) {
  const region = document.getElementById(urgent ? "urgent" : "polite");
  region.textContent = "";
  requestAnimationFrame(() => { region.textContent = text; });
}

/** Call `work` soon, once for many requests, and at most once in `gap` milliseconds. */
export function coalesced(work, gap) {
  let timer = null;
  let last = -Infinity;
  return () => {
    if (timer !== null) return;
    timer = setTimeout(() => {
      timer = null;
      last = performance.now();
      work();
    }, Math.max(0, last + gap - performance.now()));
  };
}
