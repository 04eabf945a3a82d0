// Curves of the ticked runs.
import { ask, drawing, guarded, later, latest, say } from "./asking.js";
import { Chart, element } from "./chart.js";
import { choice, field, fill, main, save, search } from "./parts.js";
import { choose, chosen, colour, look } from "./selection.js";
import { go, state } from "./state.js";

export function chartsView() {
  const bar = element("div", main, null, "bar"),
    legend = element("div", main, null, "legend"),
    place = element("div", main);
  const redraw = () => {
    panels.forEach((panel) => {
      panel.stale = true;
    });
    fetchSeen();
  };
  search(bar, "metrics: loss acc, or gpu.*util", state.keys, (keys) => {
    go({ keys }, { quiet: true });
    build();
  });
  choice(
    bar,
    "x",
    [
      ["step", "step"],
      ["relative", "time since start"],
      ["time", "time of day"],
    ],
    state.axis,
    (axis) => {
      go({ axis, zoom: "" }, { quiet: true });
      panels.forEach((panel) => {
        if (panel.chart) panel.chart.view = null;
      });
      redraw();
    },
  );
  const weight = field(
    bar,
    "smoothing",
    "range",
    state.smooth,
    later((value) => {
      go({ smooth: value }, { quiet: true });
      redraw();
    }, 60),
  );
  weight.max = "0.999";
  weight.step = "0.001";
  weight.value = state.smooth;
  field(bar, "log x", "checkbox", state.logx, (logx) => {
    go({ logx, zoom: "" }, { quiet: true });
    panels.forEach((p) => {
      if (p.chart) p.chart.view = null;
    });
    redraw();
  });
  field(bar, "log y", "checkbox", state.logy, (logy) => {
    go({ logy }, { quiet: true });
    redraw();
  });
  const band = choice(bar, "mean and spread by", [["", "nothing"]], state.band, (value) => {
    go({ band: value }, { quiet: true });
    hidden.clear();
    redraw();
  });
  const whole = element("button", bar, "show all");
  whole.type = "button";
  whole.addEventListener("click", () => zoomed(null));
  const hidden = new Set(),
    panels = new Map();
  let runs = [],
    groups = [],
    table = {};
  const chartLook = {
    ...look,
    hidden,
    zoomed: (range, chart) => zoomed(range, chart),
    hovered: (x, chart) => {
      panels.forEach((panel) => {
        if (panel.chart && panel.chart !== chart && panel.seen && axisOf(panel) === axisOf(chart.owner))
          panel.chart.point(x);
      });
    },
  };
  const axisOf = (panel) => (panel.stepless && state.axis === "step" ? "relative" : state.axis);
  const settle = later(redraw, 120);
  function zoomed(range, chart) {
    const axis = chart ? axisOf(chart.owner) : state.axis;
    const keep = axis === state.axis;
    if (keep) go({ zoom: range ? range.join(",") : "" }, { quiet: true });
    panels.forEach((panel) => {
      if (!panel.chart || (axisOf(panel) !== axis && range)) return;
      panel.chart.view = range && range.map((x) => panel.chart.toX(x));
      panel.range = range;
      if (panel.chart !== chart && panel.seen) panel.chart.draw();
    });
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
  function drawLegend(entries) {
    legend.replaceChildren();
    entries.forEach(([label, style, key]) => {
      const button = element("button", legend),
        sign = element("i", button),
        kind = Math.floor(style / look.colours.length) % look.dashes.length;
      button.type = "button";
      button.setAttribute("aria-pressed", String(!hidden.has(style)));
      sign.style.borderTop = `3px ${kind === 0 ? "solid" : kind % 2 ? "dashed" : "dotted"} ${colour(style)}`;
      element("span", button, label);
      if (key) button.title = "hide or show; double click: the run's page";
      button.addEventListener("click", () => {
        if (hidden.has(style)) hidden.delete(style);
        else hidden.add(style);
        button.setAttribute("aria-pressed", String(!hidden.has(style)));
        panels.forEach((panel) => {
          if (panel.chart) panel.chart.draw();
        });
      });
      if (key) button.addEventListener("dblclick", () => go({ tab: "run", run: key }, { step: true }));
    });
  }
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
  function build() {
    place.replaceChildren();
    seen.disconnect();
    const before = new Map(panels);
    panels.clear();
    let count = 0;
    for (const group of groups) {
      const names = group.names.filter((one) => fits(one.name));
      if (!names.length) continue;
      const box = element("details", place);
      element("summary", box, `${group.title} (${names.length})`);
      box.open = (group.title !== "System" && group.title !== "GPU") || groups.length === 1 || Boolean(state.keys);
      const grid = element("div", box, null, "grid");
      const MOST = 200;
      if (names.length > MOST) element("p", box, `the first ${MOST} of ${names.length}: search for others`, "soft");
      for (const { name, stepless } of names.slice(0, MOST)) {
        const old = before.get(name),
          panel = old || { name, stepless, chart: null, stale: true };
        panel.stepless = stepless;
        panel.seen = false;
        if (!panel.chart) {
          panel.chart = new Chart(blank(name), grid, chartLook);
          panel.chart.owner = panel;
          for (const [kind, title, action] of /** @type {[string, string, (panel: any) => void][]} */ ([
            ["csv", "save all values of these runs", saveValues],
            ["png", "save this picture", savePicture],
          ])) {
            const button = element("button", panel.chart.caption, kind);
            button.type = "button";
            button.title = title;
            button.setAttribute("aria-label", `${name}: ${title} as ${kind}`);
            button.addEventListener("click", () => action(panel));
          }
          const big = element("button", panel.chart.caption, "⤢");
          big.type = "button";
          big.title = "large";
          big.setAttribute("aria-label", `${name}: large`);
          big.addEventListener("click", () => {
            panel.chart.figure.classList.toggle("big");
            panel.stale = true;
            fetchSeen();
          });
          if (state.zoom && axisOf(panel) === state.axis) {
            panel.range = state.zoom.split(",").map(Number);
            panel.chart.logX = Boolean(state.logx);
            panel.chart.view = panel.range.map((x) => panel.chart.toX(x));
          }
        } else grid.append(panel.chart.figure);
        panel.chart.figure.dataset.name = name;
        panels.set(name, panel);
        seen.observe(panel.chart.figure);
        count += 1;
      }
    }
    if (!count)
      element(
        "div",
        place,
        runs.length
          ? groups.length
            ? "no metric fits"
            : "these runs have no metrics yet"
          : "no run is chosen: tick some in Runs",
        "empty",
      );
  }
  const blank = (name) => ({
    title: name,
    x_label: "",
    lines: [],
    bars: [],
    distributions: [],
    blank: true,
    empty: "…",
  });
  const fileName = (panel) => panel.name.replace(/[^\w.-]/g, "_");
  function saveValues(panel) {
    save(`points?${new URLSearchParams({ runs: runs.join(","), name: panel.name })}`, `${fileName(panel)}.csv`);
  }
  function savePicture(panel) {
    // with title and legend, in the page's colours
    const { canvas, panel: drawn } = panel.chart,
      ratio = window.devicePixelRatio || 1,
      width = canvas.clientWidth,
      row = 16,
      lines = panel.chart.visible();
    const made = document.createElement("canvas"),
      c = made.getContext("2d"),
      page = getComputedStyle(document.body);
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
  async function fetchOne(panel) {
    panel.stale = false;
    panel.busy = true;
    const axis = axisOf(panel),
      given = {
        runs: runs.join(","),
        name: panel.name,
        axis,
        bins: Math.max(50, Math.min(2000, Math.round(panel.chart.canvas.clientWidth / 2))),
      };
    const weight = Number(state.smooth);
    if (weight > 0) given.weight = Math.min(weight, 0.999);
    if (state.logx) given.log_x = "1";
    if (state.logy) given.log_y = "1";
    if (state.band) given.by = state.band;
    if (panel.range) [given.low, given.high] = panel.range;
    try {
      const found = await ask("curves", given);
      panel.versions = found.runs;
      const x_kind = axis === "time" ? "time" : axis === "relative" ? "duration" : "number";
      panel.chart.take({
        title: panel.name,
        x_label: { step: "step", time: "time", relative: "time since start" }[axis],
        x_kind,
        lines: found.lines,
        bars: [],
        distributions: [],
        log_x: Boolean(state.logx),
        log_y: Boolean(state.logy),
        floor: found.floor,
        ceiling: found.ceiling,
        blank: !found.lines.length,
        empty: "no values",
      });
      panel.chart.draw();
      if (state.band) drawLegend(found.lines.map((line) => [line.label, line.style]));
      main.dataset.drawn = String(Number(main.dataset.drawn || 0) + 1);
    } finally {
      panel.busy = false;
    }
  }
  const fetchSeen = guarded(async () => {
    const waiting = [...panels.values()].filter((panel) => panel.seen && panel.stale && !panel.busy);
    await Promise.all(waiting.map(fetchOne));
    if ([...panels.values()].some((panel) => panel.seen && panel.stale && !panel.busy)) fetchSeen();
  });
  const refresh = latest(async (fresh) => {
    if (!state.sel) await choose(fresh);
    runs = chosen()
      .filter((key) => key !== "none")
      .slice(0, 100);
    const given = { runs: runs.join(",") };
    const [names, rows, columns] = await fresh(
      Promise.all([ask("names", given), ask("scatter", { ...given, columns: "name" }), ask("columns")]),
    );
    table = Object.fromEntries(rows.rows.map(([key, name]) => [key, name]));
    fill(
      band,
      [["", "nothing"], ...columns.columns.filter((one) => !/^(last|tracker|result)\./.test(one))],
      state.band,
    );
    if (!state.band) drawLegend(runs.map((key, style) => [table[key] || key, style, key]));
    const signature = JSON.stringify(names.groups);
    if (signature !== shape) {
      shape = signature;
      groups = names.groups;
      build();
    }
    panels.forEach((panel) => {
      panel.stale = true;
    });
    fetchSeen();
    if (names.problems.length) say(new Error(names.problems.join("; ")));
  }, drawing);
  let shape = "";
  const resized = later(() => panels.forEach((panel) => panel.chart && panel.chart.draw()), 100);
  addEventListener("resize", resized);
  Object.assign(window, { charts: panels });
  element("div", place, "reading the runs…", "empty");
  return {
    refresh,
    watched: () => runs,
    changed: refresh,
    tableChanged: async () => {
      if (!state.sel) await refresh();
    },
    redraw: resized,
    end: () => {
      seen.disconnect();
      removeEventListener("resize", resized);
    },
  };
}
