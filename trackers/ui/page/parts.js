// Parts of the views: fields, cells, links. What a run holds is put into the page as text only.
import { later } from "./asking.js";
import { element, shown } from "./chart.js";
import { hash } from "./state.js";

export const main = document.getElementById("main");
const number = (value) => (value === "NaN" || value === "Infinity" || value === "-Infinity" ? value : shown(value));
export const text = (value) =>
  value === null || value === undefined ? "" : typeof value === "number" ? number(value) : String(value);
export const age = (time) => {
  const s = Math.max(0, Date.now() / 1000 - time);
  for (const [unit, size] of /** @type {[string, number][]} */ ([
    ["d", 86400],
    ["h", 3600],
    ["min", 60],
  ]))
    if (s >= 2 * size) return `${Math.floor(s / size)} ${unit} ago`;
  return time ? `${Math.floor(s)} s ago` : "";
};
export const counted = (number) => `${number.toLocaleString("en-US")} run${number === 1 ? "" : "s"}`;
export const link = (change, parent, label) => {
  const made = element("a", parent, label);
  made.href = hash(change);
  return made;
};
export function field(parent, label, kind, value, changed) {
  const box = element("label", parent, label),
    made = element("input", box);
  made.type = kind;
  if (kind === "checkbox") {
    made.checked = Boolean(value);
    made.addEventListener("change", () => changed(made.checked ? "1" : ""));
  } else {
    made.value = value;
    made.addEventListener("input", () => changed(made.value));
  }
  return made;
}
export function search(parent, hint, value, changed) {
  const made = element("input", parent);
  made.type = "search";
  made.value = value;
  made.placeholder = hint;
  made.setAttribute("aria-label", hint);
  made.addEventListener(
    "input",
    later(() => changed(made.value), 150),
  );
  return made;
}
export function choice(parent, label, options, value, changed) {
  const box = element("label", parent, label),
    made = element("select", box);
  fill(made, options, value);
  made.addEventListener("change", () => changed(made.value));
  return made;
}
export function fill(select, options, value) {
  select.replaceChildren();
  for (const one of options) {
    const [id, label] = Array.isArray(one) ? one : [one, called(one)];
    element("option", select, label).value = id;
  }
  select.value = value;
}
export function checks(parent, label, options, chosen, changed) {
  const box = element("details", parent, null, "pop"),
    head = element("summary", box, label),
    inside = element("div", box);
  const list = element("div"),
    find = search(inside, "find a column", "", draw);
  inside.append(list);
  function draw() {
    list.replaceChildren();
    const word = find.value.toLowerCase(),
      now = chosen();
    for (const one of options()
      .filter((one) => called(one).toLowerCase().includes(word))
      .slice(0, 300)) {
      const row = element("label", list),
        tick = element("input", row);
      tick.type = "checkbox";
      tick.checked = now.includes(one);
      element("span", row, called(one));
      tick.addEventListener("change", () =>
        changed(tick.checked ? [...chosen(), one] : chosen().filter((other) => other !== one)),
      );
    }
  }
  box.addEventListener("toggle", draw);
  document.addEventListener("click", (event) => {
    if (!box.contains(/** @type {Node} */ (event.target))) box.open = false;
  });
  return head;
}
export function cell(row, value, kind) {
  const odd = ["NaN", "Infinity", "-Infinity"].includes(value);
  const made = element("td", row, text(value), odd ? "number bad" : typeof value === "number" ? "number" : "");
  if (kind && /^[a-z]+$/.test(kind)) made.classList.add(kind); // a file may say any words of its status
  if (typeof value === "string" && value.length > 24) made.title = value;
  return made;
}
// A box that scrolls is reached by the keyboard, too.
export function scrolls(box, label) {
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", label);
  return box;
}
export function facts(parent, title, rows) {
  const box = element("div", parent, null, "facts");
  element("h2", box, title);
  if (!rows.length) {
    element("p", box, "nothing recorded", "soft");
    return box;
  }
  const table = element("tbody", element("table", scrolls(element("div", box, null, "scroll"), title)));
  for (const [name, value] of rows) {
    const row = element("tr", table);
    element("td", row, name);
    element("td", row, text(value));
  }
  return box;
}
export const called = (column) => column.replace(/^result\./, "final/"); // as commands call it
export const column = (name) => called(name).replace(/^(last|config|tracker)\./, "");
export function save(address, name) {
  const made = element("a", document.body);
  made.href = address;
  made.download = name;
  made.click();
  made.remove();
}
export function at(row, name) {
  const [kind, ...rest] = name.split(".");
  if (rest.length && ["last", "result", "config", "tracker"].includes(kind)) return row[kind][rest.join(".")];
  return Array.isArray(row[name]) ? row[name].join(", ") : row[name];
}
