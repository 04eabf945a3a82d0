// Panels of curves: one for each metric, in groups, each drawn when it comes into sight.
import { ask, guarded, later } from "./asking.js";
import { Chart, element } from "./chart.js";
import { called, choice, fill, main, save } from "./parts.js";
import { look } from "./selection.js";
import { go, state } from "./state.js";

const MOST = 200; // panels of a group, or of a part of it
const FOLD = 4; // names that begin alike, from which on they are a part of their own
const FEW = 12; // a group of so few names has no parts
const MANY = 40; // a group of more names has its parts closed at first
export const MACHINE = ["System", "GPU"];
export const METRIC = "metric:";
const JOIN = "\n"; // of the names of a panel with several metrics

const axisName = (axis) =>
  axis.startsWith(METRIC)
    ? axis.slice(METRIC.length)
    : { step: "step", time: "time", relative: "time since start" }[axis];

// Names of one level: those that stay, and those of more than a few that begin alike.
function parted(names, depth) {
  const parts = new Map();
  const headOf = (one) => {
    const words = one.name.split("/");
    return words.length > depth + 1 ? words[depth] : "";
  };
  for (const one of names) parts.set(headOf(one), [...(parts.get(headOf(one)) || []), one]);
  for (const [head, members] of parts) if (!head || members.length < FOLD) parts.delete(head);
  return { alone: names.filter((one) => !parts.has(headOf(one))), parts };
}

/**
 * @param {HTMLElement} place
 * @param {{hidden: Set<number>, fits?: (name: string) => boolean, legend?: (lines: any[]) => void, empty?: () => string}} given
 */
export function panelsOf(place, { hidden, fits = () => true, legend = () => {}, empty = () => "" }) {
  const panels = new Map();
  let runs = [];
  let groups = [];
  let shape = "";
  const axisOf = (panel) => {
    const axis = state.axis || panel.axis;
    return axis === "step" && panel.axis === "relative" ? "relative" : axis;
  };
  const shown = () => [...panels.values()].filter((panel) => panel.chart);
  const drawAll = () => shown().forEach((panel) => panel.seen && panel.chart.draw());
  const chartLook = {
    ...look,
    hidden,
    lit: null,
    zoomed: (range, chart) => zoomed(range, chart),
    hovered: (x, chart) =>
      shown().forEach((panel) => {
        if (panel.chart !== chart && panel.seen && axisOf(panel) === axisOf(chart.owner)) panel.chart.point(x);
      }),
  };
  const redraw = () => {
    panels.forEach((panel) => {
      panel.stale = true;
    });
    fetchSeen();
  };
  const settle = later(redraw, 120);
  function zoomed(range, chart) {
    const axis = chart && axisOf(chart.owner);
    if (!chart || !state.axis || axis === state.axis) go({ zoom: range ? range.join(",") : "" }, { quiet: true });
    for (const panel of shown()) {
      if (chart && axisOf(panel) !== axis && range) continue;
      panel.chart.view = range && range.map((x) => panel.chart.toX(x));
      panel.range = range;
      if (panel.chart !== chart && panel.seen) panel.chart.draw();
    }
    settle();
  }
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        const panel = panels.get(/** @type {HTMLElement} */ (entry.target).dataset.name);
        if (panel) panel.seen = entry.isIntersecting;
      }
      fetchSeen();
    },
    { rootMargin: "200px" },
  );

  // ---- the panels
  function build() {
    const before = new Map(panels);
    /** @type {NodeListOf<HTMLDetailsElement>} */
    const parts = place.querySelectorAll("details[data-part]");
    const open = new Map([...parts].map((box) => [box.dataset.part, box.open]));
    place.replaceChildren();
    seen.disconnect();
    panels.clear();
    const known = new Map(groups.flatMap((group) => group.names.map((one) => [one.name, one])));
    const away = new Set(state.hide);
    const several = state.mix
      .map((names) => ({ name: names, names: names.split(JOIN).filter((name) => known.has(name)) }))
      .filter((one) => one.names.length > 1)
      .map((one) => ({ ...one, axis: known.get(one.names[0]).axis }));
    const first = state.first.map((name) => known.get(name)).filter((one) => one && !away.has(one.name));
    const chosen = [...several, ...first].filter((one) => fits(one.name));
    if (chosen.length) section(place, "Chosen", chosen, true, 0);
    let count = chosen.length;
    let gone = 0;
    for (const group of groups) {
      const fitting = group.names.filter((one) => fits(one.name));
      const names = fitting.filter((one) => !away.has(one.name) && !state.first.includes(one.name));
      gone += fitting.filter((one) => away.has(one.name)).length;
      count += names.length;
      const machine = MACHINE.includes(group.title) && groups.length > 1 && !state.keys;
      if (names.length) section(place, group.title, names, !machine, names.length > FEW ? 1 : 0);
    }
    if (gone) {
      const line = element("p", place, `${gone} hidden `, "soft");
      const back = element("button", line, "show them");
      back.type = "button";
      back.addEventListener("click", () => {
        go({ hide: [] }, { quiet: true });
        build();
      });
    }
    if (!count && !gone) element("div", place, groups.length ? "no metric fits" : empty(), "empty");

    // A part of the page that opens and closes; its panels are made when it is opened. level: 0: it has no parts.
    function section(parent, title, names, opened, level, path = title) {
      const box = element("details", parent);
      box.dataset.part = path;
      element("summary", box, `${title} (${names.length})`);
      let made = false;
      const make = () => {
        if (made || !box.open) return;
        made = true;
        const { alone, parts } = level ? parted(names, level - 1) : { alone: names, parts: new Map() };
        const grid = element("div", box, null, "grid");
        if (alone.length > MOST) element("p", box, `the first ${MOST} of ${alone.length}: search for others`, "soft");
        for (const one of alone.slice(0, MOST)) grid.append(panelOf(one, before.get(one.name)).chart.figure);
        for (const [head, members] of parts)
          section(box, head, members, names.length <= MANY, level + 1, `${path}/${head}`).classList.add("part");
        fetchSeen();
      };
      box.addEventListener("toggle", make);
      box.open = open.get(path) ?? opened;
      make();
      return box;
    }
  }
  function panelOf(one, old) {
    const panel = old || { name: one.name, names: one.names || [one.name], chart: null, stale: true };
    panel.axis = one.axis;
    panel.seen = false;
    if (!panel.chart) make(panel);
    panel.chart.figure.dataset.name = one.name;
    panels.set(one.name, panel);
    seen.observe(panel.chart.figure);
    return panel;
  }
  function make(panel) {
    const title = panel.names.join(", ");
    const blank = { lines: [], bars: [], distributions: [], blank: true, empty: "…" };
    panel.chart = new Chart({ title, x_label: "", ...blank }, null, chartLook);
    panel.chart.owner = panel;
    const { caption, figure } = panel.chart;
    const tools = element("span", caption, null, "tools");
    const button = (sign, label, action, parent = tools) => {
      const made = element("button", parent, sign);
      made.type = "button";
      made.title = label;
      made.setAttribute("aria-label", `${title}: ${parent === tools ? "" : `${sign}, `}${label}`);
      made.addEventListener("click", action);
      return made;
    };
    button("csv", "save all values of these runs as csv", () => saveValues(panel));
    button("png", "save this picture as png", () => savePicture(panel));
    button("⤢", "large", () => {
      figure.classList.toggle("big");
      panel.stale = true;
      fetchSeen();
    });
    const menu = element("details", tools, null, "pop");
    const sign = element("summary", menu, "⋯");
    sign.setAttribute("aria-label", `${title}: more`);
    const list = element("div", menu);
    document.addEventListener("click", (event) => {
      if (!menu.contains(/** @type {Node} */ (event.target))) menu.open = false;
    });
    const change = (what) => {
      go(what, { quiet: true });
      build();
    };
    if (panel.names.length > 1)
      button("take apart", "a panel for each metric", () => change({ mix: without(state.mix, panel.name) }), list);
    else {
      const at = state.first.includes(panel.name);
      const first = at ? without(state.first, panel.name) : [...state.first, panel.name];
      button(at ? "not at the top" : "at the top", "where this panel is", () => change({ first }), list);
      button("hide", "this panel", () => change({ hide: [...state.hide, panel.name] }), list);
    }
    const more = choice(list, "with", [["", "another metric…"]], "", (other) =>
      change({ mix: [...without(state.mix, panel.name), [...panel.names, other].join(JOIN)] }),
    );
    menu.addEventListener("toggle", () => {
      const others = groups.flatMap((group) => group.names.map((one) => one.name));
      fill(more, [["", "another metric…"], ...others.filter((name) => !panel.names.includes(name))], "");
    });
    if (state.zoom && (!state.axis || axisOf(panel) === state.axis)) {
      panel.range = state.zoom.split(",").map(Number);
      panel.chart.logX = Boolean(state.logx);
      panel.chart.view = panel.range.map((x) => panel.chart.toX(x));
    }
  }
  const without = (list, one) => list.filter((other) => other !== one);

  // ---- what is saved
  const fileName = (panel) => panel.names.join("_").replace(/[^\w.-]/g, "_");
  function saveValues(panel) {
    const which = panel.names.length > 1 ? { names: panel.names.join(JOIN) } : { name: panel.name };
    save(`points?${new URLSearchParams({ runs: runs.join(","), ...which })}`, `${fileName(panel)}.csv`);
  }
  function savePicture(panel) {
    // with title and legend, in the page's colours
    const { canvas, panel: drawn } = panel.chart;
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const row = 16;
    const lines = panel.chart.visible();
    const made = document.createElement("canvas");
    const c = made.getContext("2d");
    const page = getComputedStyle(document.body);
    made.width = canvas.width;
    made.height = Math.round(canvas.height + (24 + row * lines.length + 6) * ratio);
    c.fillStyle = page.backgroundColor;
    c.fillRect(0, 0, made.width, made.height);
    c.drawImage(canvas, 0, Math.round(24 * ratio));
    c.scale(ratio, ratio);
    c.textBaseline = "middle";
    c.fillStyle = page.color;
    c.font = "600 13px system-ui, sans-serif";
    c.fillText(drawn.title, 8, 13, width - 16);
    c.font = "11px system-ui, sans-serif";
    c.lineWidth = 2;
    lines.forEach((line, k) => {
      const y = 24 + canvas.clientHeight + row * (k + 0.5);
      c.strokeStyle = panel.chart.colour(line.style);
      c.setLineDash(panel.chart.dash(line, 2));
      c.beginPath();
      c.moveTo(12, y);
      c.lineTo(36, y);
      c.stroke();
      c.fillText(line.label, 42, y, width - 50);
    });
    made.toBlob((blob) => {
      const address = URL.createObjectURL(blob);
      save(address, `${fileName(panel)}.png`);
      setTimeout(() => URL.revokeObjectURL(address), 10000);
    });
  }

  // ---- their values
  async function fetchOne(panel) {
    panel.stale = false;
    panel.busy = true;
    const axis = axisOf(panel);
    const width = panel.chart.canvas.clientWidth;
    /** @type {Record<string, any>} */
    const given = { runs: runs.join(","), axis, bins: Math.max(50, Math.min(2000, Math.round(width / 2))) };
    const weight = Number(state.smooth);
    if (weight > 0) Object.assign(given, { weight: Math.min(weight, 0.999), kind: state.kind });
    if (state.logx) given.log_x = "1";
    if (state.logy) given.log_y = "1";
    if (state.band) given.by = state.band;
    if (state.base && runs.includes(state.base)) given.base = state.base;
    if (panel.range) [given.low, given.high] = panel.range;
    try {
      const found = await Promise.all(panel.names.map((name) => ask("curves", { ...given, name })));
      const several = found.length > 1;
      const lines = found.flatMap((one, nth) =>
        one.lines.map((line) => ({ ...line, nth, label: several ? `${line.label} · ${one.name}` : line.label })),
      );
      const logY = Boolean(state.logy) && !given.base;
      panel.chart.take({
        title: panel.names.join(", ") + (given.base ? ", % from the baseline" : ""),
        x_label: axisName(axis),
        x_kind: axis === "time" ? "time" : axis === "relative" ? "duration" : "number",
        lines,
        bars: [],
        distributions: [],
        log_x: Boolean(state.logx),
        log_y: logY,
        floor: several ? null : found[0].floor,
        ceiling: several ? null : found[0].ceiling,
        blank: !lines.length,
        empty: "no values",
      });
      panel.chart.draw();
      if (state.band && !several) legend(lines);
      main.dataset.drawn = String(Number(main.dataset.drawn || 0) + 1);
    } finally {
      panel.busy = false;
    }
  }
  const waiting = () => [...panels.values()].filter((panel) => panel.seen && panel.stale && !panel.busy);
  const fetchSeen = guarded(async () => {
    await Promise.all(waiting().map(fetchOne));
    if (waiting().length) fetchSeen();
  });
  const resized = later(drawAll, 100);
  addEventListener("resize", resized);
  Object.assign(window, { charts: panels });
  return {
    redraw,
    build,
    drawAll: resized,
    zoomed,
    unzoom: () =>
      shown().forEach((panel) => Object.assign(panel.chart, { view: null }) && Object.assign(panel, { range: null })),
    // Draw only these lines strongly; null: all.
    light: (style) => {
      chartLook.lit = style;
      drawAll();
    },
    take: (now, found) => {
      runs = now;
      const next = JSON.stringify(found);
      if (next !== shape) {
        shape = next;
        groups = found;
        build();
      }
      redraw();
    },
    end: () => {
      seen.disconnect();
      removeEventListener("resize", resized);
    },
  };
}

// Axes to choose from: each metric's own, those of all, and all metrics but the machine's.
export const axesOf = (groups) => [
  ["", "as logged"],
  ["step", "step"],
  ["relative", "time since start"],
  ["time", "time of day"],
  ...groups
    .filter((group) => !MACHINE.includes(group.title))
    .flatMap((group) => group.names.map((one) => [METRIC + one.name, called(one.name)])),
];
