// Curves of the ticked runs.
import { ask, drawing, later, latest, say } from "./asking.js";
import { element } from "./chart.js";
import { choice, field, fill, main, search } from "./parts.js";
import { axesOf, panelsOf } from "./panels.js";
import { choose, chosen, colour, look, none, style } from "./selection.js";
import { go, state } from "./state.js";

const MOST = 200; // runs drawn

const fits = (name) =>
  !state.keys.trim() ||
  state.keys
    .trim()
    .split(/\s+/)
    .some((word) => {
      try {
        return new RegExp(word, "i").test(name);
      } catch {
        return name.toLowerCase().includes(word.toLowerCase());
      }
    });

export function chartsView() {
  const bar = element("div", main, null, "bar");
  const legend = element("div", main, null, "legend");
  const place = element("div", main);
  const hidden = new Set();
  const bands = new Map();
  let runs = [];
  const panels = panelsOf(place, {
    hidden,
    fits,
    legend: (lines) => {
      for (const { label, style } of lines) bands.set(label, style); // some groups lack some metrics
      drawLegend([...bands]);
    },
    empty: () => (runs.length ? "these runs have no metrics yet" : none()),
  });
  const set = (what, wholeAxis = false) => {
    go(wholeAxis ? { ...what, zoom: "" } : what, { quiet: true });
    if (wholeAxis) panels.unzoom();
    panels.redraw();
  };
  search(bar, "metrics: loss acc, or gpu.*util", state.keys, (keys) => {
    go({ keys }, { quiet: true });
    panels.build();
  });
  const axis = choice(bar, "x", axesOf([]), state.axis, (value) => set({ axis: value }, true));
  const weight = field(
    bar,
    "smoothing",
    "range",
    state.smooth,
    later((smooth) => set({ smooth }), 60),
  );
  weight.max = "0.999";
  weight.step = "0.001";
  weight.value = state.smooth;
  const kinds = [
    ["ema", "exponential"],
    ["gaussian", "Gaussian"],
    ["mean", "running mean"],
  ];
  choice(bar, "", kinds, state.kind, (kind) => set({ kind })).setAttribute("aria-label", "kind of smoothing");
  field(bar, "log x", "checkbox", state.logx, (logx) => set({ logx }, true));
  field(bar, "log y", "checkbox", state.logy, (logy) => set({ logy }));
  const band = choice(bar, "mean and spread by", [["", "nothing"]], state.band, (value) => {
    hidden.clear();
    bands.clear();
    set({ band: value });
  });
  const base = choice(bar, "% from", [["", "no baseline"]], state.base, (value) => set({ base: value }));
  base.title = "differences from this run, in percent";
  const size = field(bar, "size", "range", state.psize, (psize) => {
    go({ psize }, { quiet: true });
    resize();
  });
  size.min = "240";
  size.max = "1200";
  size.step = "20";
  size.value = state.psize;
  const resize = () => {
    place.style.setProperty("--panel", `${Number(state.psize) || 400}px`);
    panels.drawAll();
  };
  const whole = element("button", bar, "show all");
  whole.type = "button";
  whole.addEventListener("click", () => panels.zoomed(null));
  function drawLegend(entries) {
    legend.replaceChildren();
    entries.forEach(([label, number, key]) => {
      const button = element("button", legend);
      const sign = element("i", button);
      const kind = Math.floor(number / look.colours.length) % look.dashes.length;
      button.type = "button";
      button.setAttribute("aria-pressed", String(!hidden.has(number)));
      sign.style.borderTop = `3px ${kind === 0 ? "solid" : kind % 2 ? "dashed" : "dotted"} ${colour(number)}`;
      element("span", button, label);
      if (key) button.title = "hide or show; double click: the run's page";
      button.addEventListener("click", () => {
        if (hidden.has(number)) hidden.delete(number);
        else hidden.add(number);
        button.setAttribute("aria-pressed", String(!hidden.has(number)));
        panels.light(null);
      });
      button.addEventListener("pointerenter", () => panels.light(hidden.has(number) ? null : number));
      button.addEventListener("pointerleave", () => panels.light(null));
      if (key) button.addEventListener("dblclick", () => go({ tab: "run", run: key }, { step: true }));
    });
  }
  const refresh = latest(async (fresh) => {
    if (!state.sel) await choose(fresh);
    runs = chosen()
      .filter((key) => key !== "none")
      .slice(0, MOST);
    const given = { runs: runs.join(",") };
    const [names, rows, columns] = await fresh(
      Promise.all([ask("names", given), ask("scatter", { ...given, columns: "name" }), ask("columns")]),
    );
    const table = Object.fromEntries(rows.rows.map(([key, name]) => [key, name]));
    const groupable = columns.columns.filter((one) => !/^(last|tracker|result)\./.test(one));
    fill(axis, axesOf(names.groups), state.axis);
    fill(band, [["", "nothing"], ["seed", "all settings but seeds"], ...groupable], state.band);
    fill(base, [["", "no baseline"], ...runs.map((key) => [key, table[key] || key])], state.base);
    if (!state.band) drawLegend(runs.map((key) => [table[key] || key, style(key), key]));
    bands.clear();
    resize();
    panels.take(runs, names.groups);
    if (names.problems.length) say(new Error(names.problems.join("; ")));
  }, drawing);
  element("div", place, "reading the runs…", "empty");
  return {
    refresh,
    watched: () => runs,
    changed: refresh,
    tableChanged: async () => {
      if (!state.sel) await refresh();
    },
    redraw: refresh,
    end: panels.end,
  };
}
