// What the page shows. It is in the address behind #, so that a link shows the same.

export const TICK_MS = 1000;
export const TABS = {
  runs: "Runs",
  charts: "Charts",
  media: "Media",
  tables: "Tables",
  compare: "Compare",
  params: "Parameters",
  run: "Run",
};
const DEFAULTS = {
  tab: "runs",
  q: "",
  sort: "created",
  asc: "",
  by: "",
  fold: [],
  col: [],
  sel: "",
  pin: "",
  keys: "",
  axis: "",
  smooth: "0",
  logx: "",
  logy: "",
  band: "",
  kind: "ema",
  base: "",
  hide: [],
  first: [],
  mix: [],
  psize: "",
  project: "",
  zoom: "",
  run: "",
  x: "",
  y: "",
  axes: [],
  theme: "",
  table: "",
  ta: "",
  tb: "",
  tstep: "",
  tother: "",
  ton: [],
  tall: "",
  tq: "",
  tsort: "",
  tdesc: "",
  tfirst: "",
  trows: "",
  twrap: "",
  mq: "",
  mstep: "",
  msize: "",
};
/** @type {Record<string, any>} */
export const state = {};
// What of the server's is drawn: of the table, and of each run that is looked at.
/** @type {{table: number, runs: Record<string, number>}} */
export const versions = { table: -1, runs: {} };
// What draws the view that the state names: the frame puts it here.
export const frame = { show() {} };
export function load() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const [name, plain] of Object.entries(DEFAULTS))
    state[name] = Array.isArray(plain) ? given.getAll(name) : (given.get(name) ?? plain);
  if (!(state.tab in TABS)) state.tab = "runs";
  document.documentElement.dataset.theme = state.theme || "auto";
}
export function hash(change) {
  const now = { ...state, ...change },
    given = new URLSearchParams();
  for (const [name, plain] of Object.entries(DEFAULTS)) {
    if (Array.isArray(plain)) now[name].forEach((one) => given.append(name, one));
    else if (now[name] !== plain) given.set(name, now[name]);
  }
  return `#${given}`;
}
export function go(change, { step = false, quiet = false } = {}) {
  const address = hash(change);
  Object.assign(state, change);
  if (step) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  document.documentElement.dataset.theme = state.theme || "auto";
  if (!quiet) frame.show();
}
export const listed = (text) => (text ? text.split(",") : []);
