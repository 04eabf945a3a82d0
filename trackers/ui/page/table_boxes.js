// Logged tables: one with its search and pages, or two with a row for each pair.
import { ask, latest } from "./asking.js";
import { element } from "./chart.js";
import { played, whole } from "./items.js";
import { cell, choice, field, search, text } from "./parts.js";

const ROWS = ["25", "50", "100", "250", "500"];
const SIGNS = { changed: "≠", added: "+", removed: "−", same: "" };
const said = (box, action) =>
  latest(async (fresh) => {
    // why a table can't be shown stands in its place
    try {
      await action(fresh);
    } catch (error) {
      if (!(error instanceof Error) || error instanceof TypeError) throw error; // late, or not connected
      box.replaceChildren(element("p", null, error.message, "problem"));
    }
  });
function cellOf(row, value, address, label) {
  if (!value || typeof value !== "object") return cell(row, value);
  if (value.messages) return conversation(row, value);
  const made = element("td", row, null, "mediacell");
  if (value.shown) played(made, value.media, value.format, address, value.caption, label);
  else if (value.format) {
    const save = element("a", made, `save (${value.media || value.format})`);
    save.href = address;
    save.download = "";
  } else element("span", made, `(${value.media})`, "soft");
  if (value.caption) element("div", made, value.caption, "soft");
  return made;
}
// Each message folded to its first words, but the last one.
function conversation(row, value) {
  const made = element("td", row, null, "talk");
  value.messages.forEach(([role, content, ...more], k) => {
    const box = element("details", made),
      head = element("summary", box);
    box.open = k === value.messages.length - 1;
    element("b", head, role);
    element("span", head, ` ${(content || more[0] || "").slice(0, 80)}`, "soft");
    for (const said of [content, ...more]) if (said) element("div", box, said);
  });
  if (value.more) element("p", made, `${whole(value.more)} more messages`, "soft");
  return made;
}
function heading(head, label, name, query, changed, kind = "") {
  const sign = query.sort === name ? (query.descending ? " ▼" : " ▲") : "",
    made = element("th", head, label + sign, `sort ${kind}`);
  made.title = `${name}: sort`;
  made.tabIndex = 0;
  made.setAttribute("aria-sort", sign ? (query.descending ? "descending" : "ascending") : "none");
  const sort = () => {
    if (query.sort !== name) changed({ sort: name, descending: false, first: 0 });
    else if (!query.descending) changed({ descending: true, first: 0 });
    else changed({ sort: "", descending: false, first: 0 });
  };
  made.addEventListener("click", sort);
  made.addEventListener("keydown", (event) => {
    if (event.key === "Enter") sort();
  });
  return made;
}
const given = (query) => ({
  where: query.where,
  sort: query.sort,
  descending: query.descending ? "1" : "",
  first: query.first,
  most: query.most,
});
function pager(parent, query, changed) {
  const bar = element("span", parent, null, "pager"),
    back = element("button", bar, "‹"),
    where = element("span", bar, "", "soft"),
    next = element("button", bar, "›");
  back.type = next.type = "button";
  back.setAttribute("aria-label", "earlier rows");
  next.setAttribute("aria-label", "later rows");
  let total = 0,
    step = query.most;
  back.addEventListener("click", () => changed({ first: Math.max(0, query.first - step) }));
  next.addEventListener("click", () => changed({ first: query.first + step }));
  choice(bar, "rows", ROWS, String(query.most), (value) => changed({ most: Number(value), first: 0 }));
  return (rows, all, size) => {
    total = all;
    step = rows < query.most && query.first + rows < total ? Math.max(1, rows) : query.most;
    where.textContent = `${rows ? `${whole(query.first + 1)} to ${whole(query.first + rows)} of ` : ""}${whole(total)}${size === undefined || size === total ? "" : ` (of ${whole(size)})`} rows`;
    back.disabled = query.first <= 0;
    next.disabled = query.first + rows >= total;
  };
}
function wraps(bar, box, query, changed) {
  return field(bar, "whole texts", "checkbox", query.wrap, (value) => {
    box.classList.toggle("wrapped", Boolean(value));
    changed({ wrap: value }, false);
  });
}
// A table with its search and pages. which: run, name and place, or null. kept: the search, changed by change(what).
export function tableBox(parent, which, query, change) {
  const bar = element("div", parent, null, "bar"),
    box = element("div", parent, null, "scroll tall logged");
  box.classList.toggle("wrapped", Boolean(query.wrap));
  const changed = (what, again = true) => {
    Object.assign(query, what);
    change(what);
    if (again) draw();
  };
  search(bar, "search: words, loss>0.5, answer:cat, -cat", query.where, (where) => changed({ where, first: 0 }));
  wraps(bar, box, query, changed);
  const save = element("a", bar, "csv"),
    pages = pager(bar, query, changed),
    note = element("p", parent, "", "soft");
  save.download = "";
  save.title = "save all rows that fit";
  const draw = said(box, async (fresh) => {
    const one = which();
    if (!one) {
      box.replaceChildren();
      return;
    }
    const found = await fresh(ask("rows", { ...one, ...given(query) }));
    if (!found.rows.length && query.first) {
      changed({ first: 0 });
      return;
    }
    save.href = `table?${new URLSearchParams({ ...one, ...given(query) })}`;
    const table = element("table"),
      head = element("tr", element("thead", table)),
      body = element("tbody", table);
    element("th", head, "", "rownumber");
    found.columns.forEach((column) =>
      heading(
        head,
        column.name,
        column.name,
        query,
        changed,
        ["number", "integer"].includes(column.kind) ? "number" : "",
      ),
    );
    found.rows.forEach((values, k) => {
      const row = element("tr", body),
        place = found.places[k];
      element("td", row, whole(place), "rownumber soft");
      values.forEach((value, column) =>
        cellOf(
          row,
          value,
          `cell?${new URLSearchParams({ ...one, row: place, column })}`,
          `${found.columns[column].name}, row ${place}`,
        ),
      );
    });
    box.replaceChildren(table);
    pages(found.rows.length, found.total, found.size);
    note.textContent = found.more
      ? `the first ${found.columns.length} columns; ${found.more} more: trackers tables prints them`
      : "";
    if (query.drawn) query.drawn(found);
  });
  return draw;
}
// Two tables, a row for each pair.
export function pairBox(parent, which, query, change, names) {
  const bar = element("div", parent, null, "bar"),
    sums = element("div", parent),
    box = element("div", parent, null, "scroll tall logged");
  box.classList.toggle("wrapped", Boolean(query.wrap));
  const changed = (what, again = true) => {
    Object.assign(query, what);
    change(what);
    if (again) draw();
  };
  search(bar, 'search: words, "loss change">0.5, state:added', query.where, (where) => changed({ where, first: 0 }));
  wraps(bar, box, query, changed);
  const pages = pager(bar, query, changed),
    note = element("p", parent, "", "soft");
  const draw = said(box, async (fresh) => {
    const one = which();
    if (!one) {
      box.replaceChildren();
      sums.replaceChildren();
      return;
    }
    const found = await fresh(ask("differences", { ...one, ...given(query) }));
    if (!found.rows.length && query.first) {
      changed({ first: 0 });
      return;
    }
    summary(sums, found);
    const table = element("table"),
      head = element("thead", table),
      top = element("tr", head),
      below = element("tr", head, null, "second"),
      body = element("tbody", table);
    const state = heading(top, "", found.names[0], query, changed);
    state.rowSpan = 2;
    for (const column of found.columns) {
      if (column.key) {
        heading(top, column.name, found.names[column.cells[0]], query, changed).rowSpan = 2;
        continue;
      }
      if (!column.changed) {
        heading(
          top,
          column.name,
          found.names[column.cells[0]],
          query,
          changed,
          column.cells.length === 3 ? "number begins" : "begins",
        ).rowSpan = 2;
        continue;
      }
      const over = element("th", top, `${column.name}${column.changed ? ` (${whole(column.changed)})` : ""}`, "over");
      over.colSpan = column.cells.length;
      column.cells.forEach((place, k) => {
        const made = heading(
          below,
          k < 2 ? names()[k].name : "change",
          found.names[place],
          query,
          changed,
          column.cells.length === 3 ? "number" : "",
        );
        if (k < 2) made.style.borderBottom = `3px solid ${names()[k].colour}`;
        if (!k) made.classList.add("begins");
      });
    }
    found.rows.forEach((values, k) => {
      const row = element("tr", body, null, values[0]),
        places = found.places[k];
      element("td", row, SIGNS[values[0]], "sign").title = values[0];
      for (const column of found.columns) {
        if (column.key) {
          cell(row, values[column.cells[0]]);
          continue;
        }
        const unlike =
          values[0] === "changed" &&
          JSON.stringify(values[column.cells[0]]) !== JSON.stringify(values[column.cells[1]]);
        const pictures = values[0] === "changed" && values[column.cells[0]] && values[column.cells[0]].media;
        const sides = column.changed ? column.cells : [column.cells[values[0] === "added" ? 1 : 0]]; // what nowhere differs is there once
        sides.forEach((place) => {
          const side = column.cells.indexOf(place);
          const run = side ? one.other : one.run,
            number = side ? one.other_place : one.place;
          const address = `cell?${new URLSearchParams({ run, name: one.name, place: number, row: places[side], column: column.inside[side] })}`;
          const made =
            side < 2
              ? cellOf(row, values[place], address, `${column.name}, row ${places[side]}`)
              : cell(row, values[place]);
          if (place === sides[0]) made.classList.add("begins");
          if (side < 2 && unlike && !pictures) made.classList.add("unlike");
          if (side === 2 && values[place] > 0) made.textContent = `+${made.textContent}`;
        });
      }
    });
    box.replaceChildren(table);
    pages(found.rows.length, found.total);
    note.textContent = [
      found.repeated,
      ...found.only.map((only, k) => (only.length ? `only in ${names()[k].name}: ${only.join(", ")}` : "")),
    ]
      .filter(Boolean)
      .join("; ");
    if (query.drawn) query.drawn(found);
  });
  return draw;
}
function summary(parent, found) {
  parent.replaceChildren();
  const line = element("p", parent, null, "counts");
  for (const [name, count] of Object.entries(found.counts))
    element("span", line, `${SIGNS[name]} ${whole(count)} ${name === "same" ? "the same" : name}`.trim(), name);
  const changed = found.summary.filter((one) => one.changed && one.first !== null && one.second !== null);
  if (changed.length)
    element(
      "span",
      line,
      changed
        .slice(0, 4)
        .map((one) => `mean ${one.name} ${text(one.first)} → ${text(one.second)}`)
        .join(", "),
      "soft",
    );
}
