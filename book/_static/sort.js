/* Tables that a reader sorts by a click on a column's name and filters by a word; without a kernel, and stored as plain
   tables. What was not run, a dash, stays last in either direction. */

(function () {
  "use strict";

  const NAME = ".gkalib-standings";

  /* A cell's number where its text begins with one, its words otherwise; null for a dash. */
  function value(row, column) {
    const text = row.cells[column].textContent.trim();
    if (text === "\u2013") return null;
    const number = parseFloat(text.replace("\u2212", "-").replace(/,/g, ""));
    return Number.isNaN(number) ? text.toLowerCase() : number;
  }

  function compare(a, b) {
    return typeof a === "string" ? a.localeCompare(b) : a - b;
  }

  function build(table) {
    const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];

    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      head.scope = "col";
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const known = rows.filter((row) => value(row, column) !== null);
        known.sort((a, b) => (down ? -1 : 1) * compare(value(a, column), value(b, column)));
        body.append(...known, ...rows.filter((row) => !known.includes(row)));
      });
    });

    const filter = document.createElement("label"), word = document.createElement("input"), said = document.createElement("span");
    filter.className = "gk-filter";
    word.type = "search";
    said.setAttribute("role", "status");
    filter.append("Rows with ", word, " ", said);
    word.addEventListener("input", () => {
      const wanted = word.value.trim().toLowerCase();
      for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
      said.textContent = wanted && `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
    });

    const room = document.createElement("div");
    room.className = "gk-room";
    room.tabIndex = 0;
    room.setAttribute("role", "region");
    room.setAttribute("aria-label", "Table of variants");
    table.replaceWith(filter, room);
    room.append(table);
  }

  window.addEventListener("DOMContentLoaded", () => document.querySelectorAll(`table${NAME}`).forEach(build));
})();
