"use strict";
(() => {
  const points = JSON.parse(document.getElementById("points").textContent);
  const tooltip = document.getElementById("tooltip");

  // Sorting: numbers by value, texts by the reader's alphabet, what is missing always last.
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.querySelectorAll("thead tr:last-child th")];
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const descending = head.getAttribute("aria-sort") === "ascending" ||
          (head.classList.contains("number") && !head.hasAttribute("aria-sort"));
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", descending ? "descending" : "ascending");
        const body = table.tBodies[0];
        const key = (row) => {
          const cell = row.cells[column];
          if (!head.classList.contains("number")) return cell.textContent.trim();
          return cell.dataset.value === "" ? null : Number(cell.dataset.value ?? cell.textContent);
        };
        const rows = [...body.rows].map((row) => [key(row), row]);
        const empty = (value) => value === null || value === "–";
        rows.sort(([a], [b]) => {
          if (empty(a) || empty(b)) return empty(a) - empty(b);
          const order = typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true });
          return descending ? -order : order;
        });
        body.append(...rows.map(([, row]) => row));
      });
    });
  }

  // The transfer picture: pointing at, tapping or focusing a point shows its configuration.
  const text = (value, digits) => value === null ? "–" : value.toFixed(digits).replace("-", "−");
  const fill = (point) => {
    const name = document.createElement("b");
    name.textContent = point.config;
    const kind = document.createElement("span");
    kind.textContent = point.role ? `${point.method} · ${point.role}` : point.method;
    const list = document.createElement("dl");
    for (const [title, value, digits] of [
      ["evaluation score", point.eval_omega, 2], ["dev score", point.dev_omega, 2],
      ["criterion, dev", point.crit_dev, 3], ["criterion, eval", point.crit_eval, 3],
    ]) {
      if (value === null) continue;
      const term = document.createElement("dt");
      const number = document.createElement("dd");
      term.textContent = title;
      number.textContent = text(value, digits);
      list.append(term, number);
    }
    tooltip.replaceChildren(name, kind, list);
  };
  const hide = () => {
    tooltip.hidden = true;
    document.querySelectorAll(".point.on").forEach((each) => each.classList.remove("on"));
    document.querySelectorAll(".picking").forEach((each) => each.classList.remove("picking"));
  };
  const show = (element) => {
    hide();
    const row = element.dataset.row;
    const box = element.closest(".interactive");
    box.classList.add("picking");
    box.querySelectorAll(`.point[data-row="${row}"]`).forEach((each) => each.classList.add("on"));
    fill(points[Number(row)]);
    tooltip.hidden = false;
    const place = element.getBoundingClientRect();
    const size = tooltip.getBoundingClientRect();
    const width = document.documentElement.clientWidth;
    const left = Math.max(8, Math.min(place.left + place.width / 2 - size.width / 2, width - size.width - 8));
    const above = place.top - size.height - 8;
    tooltip.style.left = `${left + window.scrollX}px`;
    tooltip.style.top = `${(above > 0 ? above : place.bottom + 8) + window.scrollY}px`;
  };
  const reach = 22;
  for (const box of document.querySelectorAll(".interactive")) {
    for (const picture of box.querySelectorAll("svg.picture")) {
      const all = [...picture.querySelectorAll(".point")];
      if (!all.length) continue;
      const centre = (element) => {
        const place = element.getBoundingClientRect();
        return [place.left + place.width / 2, place.top + place.height / 2];
      };
      const nearest = (event) => {
        let best = null;
        let least = reach * reach;
        for (const element of all) {
          const [x, y] = centre(element);
          const distance = (x - event.clientX) ** 2 + (y - event.clientY) ** 2;
          if (distance < least) [best, least] = [element, distance];
        }
        return best;
      };
      picture.addEventListener("pointermove", (event) => {
        if (event.pointerType === "touch") return;
        const element = nearest(event);
        element ? show(element) : hide();
      });
      picture.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") hide(); });
      picture.addEventListener("click", (event) => {
        const element = nearest(event);
        if (element) show(element); else hide();
        event.stopPropagation();
      });
      // One stop for Tab, arrows from point to point in the order they lie on the page.
      const inOrder = () => [...all].sort((a, b) => centre(a)[0] - centre(b)[0]);
      all.forEach((element) => element.setAttribute("tabindex", "-1"));
      inOrder()[0].setAttribute("tabindex", "0");
      picture.addEventListener("focusin", (event) => {
        const element = event.target.closest(".point");
        if (element) show(element);
      });
      picture.addEventListener("focusout", hide);
      picture.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (event.key === "Escape") hide();
        if (!step) return;
        event.preventDefault();
        const order = inOrder();
        const at = order.indexOf(event.target.closest(".point"));
        const next = order[(at + step + order.length) % order.length];
        all.forEach((element) => element.setAttribute("tabindex", "-1"));
        next.setAttribute("tabindex", "0");
        next.focus();
      });
    }
  }
  document.addEventListener("click", hide);

  // Paper has no buttons: everything is open while printing.
  let closed = [];
  window.addEventListener("beforeprint", () => {
    hide();
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((each) => { each.open = true; });
  });
  window.addEventListener("afterprint", () => closed.forEach((each) => { each.open = false; }));
})();
