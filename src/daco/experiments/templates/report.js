"use strict";
// A click on a heading sorts its table: numbers by value, what is missing last.
for (const button of document.querySelectorAll("table.sortable th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, table = head.closest("table");
    const isNumber = head.classList.contains("number");
    const order = { ascending: -1, descending: 1 }[head.getAttribute("aria-sort")] ?? (isNumber ? -1 : 1);
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order > 0 ? "ascending" : "descending");
    const key = (row) => row.cells[head.cellIndex].dataset.value ?? row.cells[head.cellIndex].textContent;
    const compare = (a, b) => isNumber ? a - b : a.localeCompare(b, undefined, { numeric: true });
    const sort = (a, b) => a === "" || b === "" ? (a === "") - (b === "") : order * compare(a, b);
    table.tBodies[0].append(...[...table.tBodies[0].rows].sort((a, b) => sort(key(a), key(b))));
  });
}
// Paper has no buttons: everything is open while printing.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
