// Which runs are looked at, and the colours that tell them apart.
import { ask } from "./asking.js";
import { go, listed, state } from "./state.js";

const AUTO = 10;
export const look = { colours: ["#0072B2"], dashes: [[]] }; // as the server says
let auto = []; // the newest runs, where none are ticked
export const newest = () => auto;
export const chosen = () => (state.sel ? listed(state.sel) : auto);
export async function choose(fresh) {
  auto = (await fresh(ask("runs", { query: JSON.stringify({ where: state.q, most: AUTO }) }))).rows.map(
    (row) => row.key,
  );
}
export function toggle(key, on) {
  const now = chosen().filter((other) => other !== key);
  go({ sel: (on ? [...now, key] : now).join(",") || "none" }, { quiet: true });
}
export const style = (key) =>
  chosen()
    .filter((one) => one !== "none")
    .indexOf(key); // of a run's curves
export const colour = (place) => look.colours[place % look.colours.length];
