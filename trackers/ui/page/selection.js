// Which runs are looked at, and the colours that tell them apart.
import { ask } from "./asking.js";
import { palette } from "./chart.js";
import { go, listed, state } from "./state.js";

const AUTO = 10;
export const look = { colours: ["#0072B2"], dark: ["#0072B2"], dashes: [[]] }; // as the server says
let auto = []; // the newest runs, where none are ticked
export const newest = () => auto;
export const chosen = () => (state.sel ? listed(state.sel) : auto);
// Why none is.
export const none = () =>
  state.sel ? "no run is chosen: tick some in Runs" : state.q || state.project ? "no run fits" : "no runs yet";
export async function choose(fresh) {
  const query = { where: state.q, project: state.project, most: AUTO };
  auto = (await fresh(ask("runs", { query: JSON.stringify(query) }))).rows.map((row) => row.key);
}
export function toggle(key, on) {
  const now = chosen().filter((other) => other !== key);
  go({ sel: (on ? [...now, key] : now).join(",") || "none" }, { quiet: true });
}

// The styles of runs that are drawn together, from what their keys end with: as styles_of of trackers/metrics/styles.py.
export function stylesOf(keys) {
  const size = look.colours.length;
  const identities = keys.map((key) => parseInt(key.slice(12, 20), 16) || 0);
  const styles = new Map();
  const free = [];
  const order = keys.map((_, place) => place).sort((a, b) => identities[a] - identities[b] || a - b);
  for (const place of order) {
    let layer = free.findIndex((slots) => slots.length);
    if (layer < 0) layer = free.push([...Array(size).keys()]) - 1;
    const distance = (slot) => (slot - (identities[place] % size) + size) % size;
    const slot = free[layer].reduce((best, other) => (distance(other) < distance(best) ? other : best));
    free[layer].splice(free[layer].indexOf(slot), 1);
    styles.set(keys[place], layer * size + slot);
  }
  return styles;
}
let known = { keys: "", styles: new Map() };
// Of a run's curves; -1: it isn't drawn.
export function style(key) {
  const keys = chosen().filter((one) => one !== "none");
  if (known.keys !== keys.join()) known = { keys: keys.join(), styles: stylesOf(keys) };
  return known.styles.get(key) ?? -1;
}
export const colour = (number) => palette(look)[number % look.colours.length];
