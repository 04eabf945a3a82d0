"use strict";
// The live page. What a run holds is put into the page as text only. The state is in the address behind #, so that a link shows the same.
(() => {
  const {Chart, element, shown, duration, moment} = charting;
  const main = document.getElementById("main"), TICK_MS = 1000, AUTO = 10;
  const TABS = {runs: "Runs", charts: "Charts", media: "Media", tables: "Tables", compare: "Compare", params: "Parameters", run: "Run"};
  const DEFAULTS = {tab: "runs", q: "", sort: "created", asc: "", by: "", col: [], sel: "", pin: "", keys: "", axis: "step", smooth: "0", logx: "",
    logy: "", band: "", zoom: "", run: "", x: "", y: "", axes: [], theme: "",
    table: "", ta: "", tb: "", tstep: "", ton: [], tall: "", tq: "", tsort: "", tdesc: "", tfirst: "", trows: "", twrap: "", mq: "", mstep: "", msize: ""};
  const state = {};
  let look = {colours: ["#0072B2"], dashes: [[]]}, versions = {table: -1, runs: {}}, view = null, auto = [];

  // ---- state
  function load() {
    const given = new URLSearchParams(location.hash.slice(1));
    for (const [name, plain] of Object.entries(DEFAULTS))
      state[name] = Array.isArray(plain) ? given.getAll(name) : given.get(name) ?? plain;
    if (!(state.tab in TABS)) state.tab = "runs";
    document.documentElement.dataset.theme = state.theme || "auto";
  }
  function hash(change) {
    const now = {...state, ...change}, given = new URLSearchParams();
    for (const [name, plain] of Object.entries(DEFAULTS)) {
      if (Array.isArray(plain)) now[name].forEach(one => given.append(name, one));
      else if (now[name] !== plain) given.set(name, now[name]);
    }
    return `#${given}`;
  }
  function go(change, {step = false, quiet = false} = {}) {
    const address = hash(change);
    Object.assign(state, change);
    if (step) history.pushState(null, "", address); else history.replaceState(null, "", address);
    document.documentElement.dataset.theme = state.theme || "auto";
    if (!quiet) show();
  }
  const listed = text => text ? text.split(",") : [];

  // ---- questions
  const problem = document.getElementById("problem"), live = document.getElementById("live");
  async function ask(question, given = {}) {
    let answer;
    try {
      answer = await fetch(`api/${question}?${new URLSearchParams(given)}`);
    } catch (error) {
      live.className = "off";
      live.textContent = "not connected";
      throw error;
    }
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error);
    return found;
  }
  const say = error => { problem.textContent = error instanceof TypeError ? "" : error.message; };
  const LATE = Symbol("late"), drawing = {turn: 0};
  const guarded = action => async (...given) => {
    try { await action(...given); problem.textContent = ""; } catch (error) { if (error !== LATE) say(error); }
  };
  // What an action asks through fresh counts until it begins anew, or another action with the same turns: then the answer is
  // dropped, an error too. All views have the turns of drawing.
  const latest = (action, turns = {turn: 0}) => guarded(async (...given) => {
    const turn = ++turns.turn;
    const fresh = answer => answer.finally(() => { if (turn !== turns.turn) throw LATE; });
    await action(fresh, ...given);
  });
  function later(action, wait) {
    let timer;
    return (...given) => { clearTimeout(timer); timer = setTimeout(() => action(...given), wait); };
  }

  // ---- parts
  const number = value => value === "NaN" || value === "Infinity" || value === "-Infinity" ? value : shown(value);
  const text = value => value === null || value === undefined ? "" : typeof value === "number" ? number(value) : String(value);
  const age = time => {
    const s = Math.max(0, Date.now() / 1000 - time);
    for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) if (s >= 2 * size) return `${Math.floor(s / size)} ${unit} ago`;
    return time ? `${Math.floor(s)} s ago` : "";
  };
  const link = (change, parent, label) => { const made = element("a", parent, label); made.href = hash(change); return made; };
  function field(parent, label, kind, value, changed) {
    const box = element("label", parent, label), made = element("input", box);
    made.type = kind;
    if (kind === "checkbox") { made.checked = Boolean(value); made.addEventListener("change", () => changed(made.checked ? "1" : "")); }
    else { made.value = value; made.addEventListener("input", () => changed(made.value)); }
    return made;
  }
  function search(parent, hint, value, changed) {
    const made = element("input", parent);
    made.type = "search"; made.value = value; made.placeholder = hint; made.setAttribute("aria-label", hint);
    made.addEventListener("input", later(() => changed(made.value), 150));
    return made;
  }
  function choice(parent, label, options, value, changed) {
    const box = element("label", parent, label), made = element("select", box);
    fill(made, options, value);
    made.addEventListener("change", () => changed(made.value));
    return made;
  }
  function fill(select, options, value) {
    select.replaceChildren();
    for (const one of options) {
      const [id, label] = Array.isArray(one) ? one : [one, called(one)];
      element("option", select, label).value = id;
    }
    select.value = value;
  }
  function checks(parent, label, options, chosen, changed) {
    const box = element("details", parent, null, "pop"), head = element("summary", box, label), inside = element("div", box);
    const list = element("div"), find = search(inside, "find a column", "", draw);
    inside.append(list);
    function draw() {
      list.replaceChildren();
      const word = find.value.toLowerCase(), now = chosen();
      for (const one of options().filter(one => called(one).toLowerCase().includes(word)).slice(0, 300)) {
        const row = element("label", list), tick = element("input", row);
        tick.type = "checkbox"; tick.checked = now.includes(one);
        element("span", row, called(one));
        tick.addEventListener("change", () => changed(tick.checked ? [...chosen(), one] : chosen().filter(other => other !== one)));
      }
    }
    box.addEventListener("toggle", draw);
    document.addEventListener("click", event => { if (!box.contains(event.target)) box.open = false; });
    return head;
  }
  function cell(row, value, kind) {
    const made = element("td", row, text(value), typeof value === "number" || ["NaN", "Infinity", "-Infinity"].includes(value) ? "number" : "");
    if (kind && /^[a-z]+$/.test(kind)) made.classList.add(kind);  // a file may say any words of its status
    if (typeof value === "string" && value.length > 24) made.title = value;
    return made;
  }
  function facts(parent, title, rows) {
    const box = element("div", parent, null, "facts");
    element("h2", box, title);
    if (!rows.length) { element("p", box, "nothing recorded", "soft"); return box; }
    const table = element("tbody", element("table", element("div", box, null, "scroll")));
    for (const [name, value] of rows) { const row = element("tr", table); element("td", row, name); element("td", row, text(value)); }
    return box;
  }
  const called = column => column.replace(/^result\./, "final/");  // as commands call it
  const column = name => called(name).replace(/^(last|config|tracker)\./, "");
  const style = key => chosen().filter(one => one !== "none").indexOf(key);  // of a run's curves
  const colour = place => look.colours[place % look.colours.length];
  function save(address, name) {
    const made = element("a", document.body);
    made.href = address; made.download = name; made.click(); made.remove();
  }
  function at(row, name) {
    const [kind, ...rest] = name.split(".");
    if (rest.length && ["last", "result", "config", "tracker"].includes(kind)) return row[kind][rest.join(".")];
    return Array.isArray(row[name]) ? row[name].join(", ") : row[name];
  }
  const chosen = () => state.sel ? listed(state.sel) : auto;
  async function choose(fresh) {
    auto = (await fresh(ask("runs", {query: JSON.stringify({where: state.q, most: AUTO})}))).rows.map(row => row.key);
  }
  function toggle(key, on) {
    const now = chosen().filter(other => other !== key);
    go({sel: (on ? [...now, key] : now).join(",") || "none"}, {quiet: true});
  }

  // ---- runs
  function runsView() {
    const bar = element("div", main, null, "bar");
    search(bar, "search: words, status:running, lr>0.01, -tag", state.q, q => { go({q}, {quiet: true}); most = 100; refresh(); });
    let known = [], most = 100, total = 0;
    const by = choice(bar, "group by", [["", "nothing"]], state.by, value => { go({by: value}, {quiet: true}); refresh(); });
    checks(bar, "columns ▾", () => known.filter(one => one !== "name"), () => state.col.length ? state.col : usual,
      col => { go({col}, {quiet: true}); refresh(); });
    let keys = [];
    for (const [label, title, sel] of [["tick all", "show the first 100 of these runs in charts", () => keys.slice(0, 100).join(",")],
      ["newest", "show the newest ten that fit in charts, also those that come", () => ""]]) {
      const button = element("button", bar, label);
      button.type = "button"; button.title = title;
      button.addEventListener("click", () => { go({sel: sel()}, {quiet: true}); refresh(); });
    }
    const count = element("span", bar, "", "soft");
    const box = element("div", main, null, "scroll tall"), table = element("table", box), head = element("tr", element("thead", table));
    const body = element("tbody", table), more = element("p", main, "", "soft"), lost = element("p", main, "", "soft"), empty = element("div", main, "", "empty");
    let usual = [];
    box.addEventListener("scroll", () => {
      if (box.scrollTop + box.clientHeight > box.scrollHeight - 400 && most < Math.min(total, 1000)) { most += 200; refresh(); }
    });
    const refresh = latest(async fresh => {
      const query = {where: state.q, sort: state.sort, descending: !state.asc, by: state.by, pins: listed(state.pin), most};
      const found = await fresh(ask("runs", {query: JSON.stringify(query)}));
      versions.table = found.version;
      total = found.total;
      keys = found.rows.map(row => row.key);
      if (!state.sel) await choose(fresh);
      usual = usualColumns(found.rows);
      const columns = state.col.length ? state.col : usual;
      count.textContent = found.total === found.all ? `${found.all.toLocaleString("en-US")} runs` : `${found.total.toLocaleString("en-US")} of ${found.all.toLocaleString("en-US")} runs`;
      more.textContent = found.total > 1000 && most >= 1000 ? "the first 1,000 runs: search, or sort by another column" : "";
      empty.textContent = found.all ? found.total ? "" : "no run fits" : "no runs yet: they appear here as they begin";
      box.hidden = !found.total;
      lost.textContent = found.lost.join("; ");
      heads(columns, found.rows);
      rows(found, columns);
      if (found.version !== knownAt) {
        known = (await fresh(ask("columns"))).columns;
        knownAt = found.version;
        fill(by, [["", "nothing"], ...known.filter(one => !one.startsWith("last."))], state.by);
      }
    }, drawing);
    let knownAt = -1;
    function heads(columns, there) {
      head.replaceChildren();
      for (const name of ["name", ...columns]) {
        const sign = state.sort === name ? state.asc ? " ▲" : " ▼" : "";
        const made = element("th", head, column(name) + sign, name === "name" ? "sort first" : "sort");
        if (!["name", "created", "time"].includes(name) && there.some(row => typeof at(row, name) === "number")) made.classList.add("number");
        made.title = `${name}: sort`;
        made.tabIndex = 0;
        made.setAttribute("aria-sort", sign ? state.asc ? "ascending" : "descending" : "none");
        const sort = () => { go({sort: name, asc: state.sort === name && !state.asc ? "1" : ""}, {quiet: true}); refresh(); };
        made.addEventListener("click", sort);
        made.addEventListener("keydown", event => { if (event.key === "Enter") sort(); });
      }
    }
    function rows(found, columns) {
      const pins = listed(state.pin), now = new Set(chosen());
      body.replaceChildren();
      let group;
      for (const one of found.rows) {
        if (state.by && !pins.includes(one.key) && at(one, state.by) !== group) {
          group = at(one, state.by);
          const size = found.groups.find(([value]) => value === (group ?? null));
          const title = element("td", element("tr", body, null, "group"), `${column(state.by)}: ${text(group) || "–"}${size ? ` (${size[1]})` : ""}`);
          title.colSpan = columns.length + 1;
        }
        const row = element("tr", body), first = element("div", element("td", row, null, "first"), null, "line");
        const tick = element("input", first), star = element("button", first, pins.includes(one.key) ? "★" : "☆", "star");
        tick.type = "checkbox"; tick.checked = now.has(one.key); tick.title = "show in charts"; tick.setAttribute("aria-label", `show ${one.name} in charts`);
        tick.dataset.run = one.key;
        tick.addEventListener("change", () => { toggle(one.key, tick.checked); paint(); });
        star.type = "button"; star.title = "keep at the top"; star.setAttribute("aria-pressed", String(pins.includes(one.key)));
        star.addEventListener("click", () => {
          go({pin: (pins.includes(one.key) ? pins.filter(key => key !== one.key) : [...pins, one.key]).join(",")}, {quiet: true});
          refresh();
        });
        link({tab: "run", run: one.key}, first, one.name || one.id).title = `${one.name} (${one.id})`;
        for (const name of columns) {
          const value = at(one, name);
          if (name === "created" || name === "time") cell(row, age(value)).title = value ? new Date(value * 1000).toLocaleString() : "";
          else if (name === "status") cell(row, value, value);
          else if (name.startsWith("tracker.")) cell(row, value === "delivered" ? "✓" : value, (value || "").split(/[ ,]/)[0] || "soft").title = value || "";
          else cell(row, value);
        }
      }
      paint();
    }
    function paint() {  // a ticked run has the colour of its curves
      for (const tick of body.querySelectorAll("input")) tick.style.accentColor = style(tick.dataset.run) < 0 ? "" : colour(style(tick.dataset.run));
    }
    function usualColumns(rows) {
      const names = kind => [...new Set(rows.slice(0, 30).flatMap(row => Object.keys(row[kind])))];
      const last = names("last").filter(name => !/^(system|gpu)[./]/.test(name));
      last.sort((a, b) => /loss/i.test(b) - /loss/i.test(a));
      const several = new Set(rows.map(row => row.project)).size > 1;
      return ["status", ...several ? ["project"] : [], "step", "created", ...names("result").slice(0, 2).map(n => `result.${n}`),
        ...last.slice(0, 4).map(n => `last.${n}`), ...names("tracker").map(n => `tracker.${n}`)];
    }
    return {refresh, watched: () => [], changed: refresh};
  }

  // ---- charts
  function chartsView() {
    const bar = element("div", main, null, "bar"), legend = element("div", main, null, "legend"), place = element("div", main);
    const redraw = () => { panels.forEach(panel => { panel.stale = true; }); fetchSeen(); };
    search(bar, "metrics: loss acc, or gpu.*util", state.keys, keys => { go({keys}, {quiet: true}); build(); });
    choice(bar, "x", [["step", "step"], ["relative", "time since start"], ["time", "time of day"]], state.axis, axis => {
      go({axis, zoom: ""}, {quiet: true});
      panels.forEach(panel => { if (panel.chart) panel.chart.view = null; });
      redraw();
    });
    const weight = field(bar, "smoothing", "range", state.smooth, later(value => { go({smooth: value}, {quiet: true}); redraw(); }, 60));
    weight.max = 0.999; weight.step = 0.001; weight.value = state.smooth;
    field(bar, "log x", "checkbox", state.logx, logx => { go({logx, zoom: ""}, {quiet: true}); panels.forEach(p => { if (p.chart) p.chart.view = null; }); redraw(); });
    field(bar, "log y", "checkbox", state.logy, logy => { go({logy}, {quiet: true}); redraw(); });
    const band = choice(bar, "mean and spread by", [["", "nothing"]], state.band, value => { go({band: value}, {quiet: true}); hidden.clear(); redraw(); });
    const whole = element("button", bar, "show all");
    whole.type = "button";
    whole.addEventListener("click", () => zoomed(null));
    const hidden = new Set(), panels = new Map();
    let runs = [], groups = [], table = {};
    const chartLook = {...look, hidden, zoomed: (range, chart) => zoomed(range, chart), hovered: (x, chart) => {
      panels.forEach(panel => { if (panel.chart && panel.chart !== chart && panel.seen && axisOf(panel) === axisOf(chart.owner)) panel.chart.point(x); });
    }};
    const axisOf = panel => panel.stepless && state.axis === "step" ? "relative" : state.axis;
    const settle = later(redraw, 120);
    function zoomed(range, chart) {
      const axis = chart ? axisOf(chart.owner) : state.axis;
      const keep = axis === state.axis;
      if (keep) go({zoom: range ? range.join(",") : ""}, {quiet: true});
      panels.forEach(panel => {
        if (!panel.chart || axisOf(panel) !== axis && range) return;
        panel.chart.view = range && range.map(x => panel.chart.toX(x));
        panel.range = range;
        if (panel.chart !== chart && panel.seen) panel.chart.draw();
      });
      settle();
    }
    const seen = new IntersectionObserver(entries => {
      for (const entry of entries) {
        const panel = panels.get(entry.target.dataset.name);
        if (panel) panel.seen = entry.isIntersecting;
      }
      fetchSeen();
    }, {rootMargin: "200px"});
    function drawLegend(entries) {
      legend.replaceChildren();
      entries.forEach(([label, style, key]) => {
        const button = element("button", legend), sign = element("i", button), kind = Math.floor(style / look.colours.length) % look.dashes.length;
        button.type = "button";
        button.setAttribute("aria-pressed", String(!hidden.has(style)));
        sign.style.borderTop = `3px ${kind === 0 ? "solid" : kind % 2 ? "dashed" : "dotted"} ${colour(style)}`;
        element("span", button, label);
        if (key) button.title = "hide or show; double click: the run's page";
        button.addEventListener("click", () => {
          if (hidden.has(style)) hidden.delete(style); else hidden.add(style);
          button.setAttribute("aria-pressed", String(!hidden.has(style)));
          panels.forEach(panel => { if (panel.chart) panel.chart.draw(); });
        });
        if (key) button.addEventListener("dblclick", () => go({tab: "run", run: key}, {step: true}));
      });
    }
    const fits = name => !state.keys.trim() || state.keys.trim().split(/\s+/).some(word => {
      try { return new RegExp(word, "i").test(name); } catch { return name.toLowerCase().includes(word.toLowerCase()); }
    });
    function build() {
      place.replaceChildren();
      seen.disconnect();
      const before = new Map(panels);
      panels.clear();
      let count = 0;
      for (const group of groups) {
        const names = group.names.filter(one => fits(one.name));
        if (!names.length) continue;
        const box = element("details", place);
        element("summary", box, `${group.title} (${names.length})`);
        box.open = group.title !== "System" && group.title !== "GPU" || groups.length === 1 || Boolean(state.keys);
        const grid = element("div", box, null, "grid");
        const MOST = 200;
        if (names.length > MOST) element("p", box, `the first ${MOST} of ${names.length}: search for others`, "soft");
        for (const {name, stepless} of names.slice(0, MOST)) {
          const old = before.get(name), panel = old || {name, stepless, chart: null, stale: true};
          panel.stepless = stepless;
          panel.seen = false;
          if (!panel.chart) {
            panel.chart = new Chart(blank(name), grid, chartLook);
            panel.chart.owner = panel;
            for (const [kind, title, action] of [["csv", "save all values of these runs", saveValues], ["png", "save this picture", savePicture]]) {
              const button = element("button", panel.chart.caption, kind);
              button.type = "button"; button.title = title; button.setAttribute("aria-label", `${name}: ${title} as ${kind}`);
              button.addEventListener("click", () => action(panel));
            }
            const big = element("button", panel.chart.caption, "⤢");
            big.type = "button"; big.title = "large"; big.setAttribute("aria-label", `${name}: large`);
            big.addEventListener("click", () => { panel.chart.figure.classList.toggle("big"); panel.stale = true; fetchSeen(); });
            if (state.zoom && axisOf(panel) === state.axis) { panel.range = state.zoom.split(",").map(Number); panel.chart.logX = Boolean(state.logx); panel.chart.view = panel.range.map(x => panel.chart.toX(x)); }
          } else grid.append(panel.chart.figure);
          panel.chart.figure.dataset.name = name;
          panels.set(name, panel);
          seen.observe(panel.chart.figure);
          count += 1;
        }
      }
      if (!count) element("div", place, runs.length ? groups.length ? "no metric fits" : "these runs have no metrics yet" : "no run is chosen: tick some in Runs", "empty");
    }
    const blank = name => ({title: name, x_label: "", lines: [], bars: [], distributions: [], blank: true, empty: "…"});
    const fileName = panel => panel.name.replace(/[^\w.-]/g, "_");
    function saveValues(panel) { save(`points?${new URLSearchParams({runs: runs.join(","), name: panel.name})}`, `${fileName(panel)}.csv`); }
    function savePicture(panel) {  // with title and legend, in the page's colours
      const {canvas, panel: drawn} = panel.chart, ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, row = 16, lines = panel.chart.visible();
      const made = document.createElement("canvas"), c = made.getContext("2d"), page = getComputedStyle(document.body);
      made.width = canvas.width; made.height = Math.round(canvas.height + (24 + row * lines.length + 6) * ratio);
      c.fillStyle = page.backgroundColor; c.fillRect(0, 0, made.width, made.height);
      c.drawImage(canvas, 0, Math.round(24 * ratio));
      c.scale(ratio, ratio); c.textBaseline = "middle";
      c.fillStyle = page.color; c.font = "600 13px system-ui, sans-serif"; c.fillText(drawn.title, 8, 13, width - 16);
      c.font = "11px system-ui, sans-serif"; c.lineWidth = 2;
      lines.forEach((line, k) => {
        const y = 24 + canvas.clientHeight + row * (k + 0.5);
        c.strokeStyle = panel.chart.colour(line.style); c.setLineDash(panel.chart.dash(line, 2));
        c.beginPath(); c.moveTo(12, y); c.lineTo(36, y); c.stroke(); c.fillText(line.label, 42, y, width - 50);
      });
      made.toBlob(blob => { const address = URL.createObjectURL(blob); save(address, `${fileName(panel)}.png`); setTimeout(() => URL.revokeObjectURL(address), 10000); });
    }
    async function fetchOne(panel) {
      panel.stale = false;
      panel.busy = true;
      const axis = axisOf(panel), given = {runs: runs.join(","), name: panel.name, axis, bins: Math.max(50, Math.min(2000, Math.round(panel.chart.canvas.clientWidth / 2)))};
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
        panel.chart.take({title: panel.name, x_label: {step: "step", time: "time", relative: "time since start"}[axis], x_kind, lines: found.lines, bars: [],
          distributions: [], log_x: Boolean(state.logx), log_y: Boolean(state.logy), floor: found.floor, ceiling: found.ceiling, blank: !found.lines.length, empty: "no values"});
        panel.chart.draw();
        if (state.band) drawLegend(found.lines.map(line => [line.label, line.style]));
        main.dataset.drawn = String(Number(main.dataset.drawn || 0) + 1);
      } finally { panel.busy = false; }
    }
    const fetchSeen = guarded(async () => {
      const waiting = [...panels.values()].filter(panel => panel.seen && panel.stale && !panel.busy);
      await Promise.all(waiting.map(fetchOne));
      if ([...panels.values()].some(panel => panel.seen && panel.stale && !panel.busy)) fetchSeen();
    });
    const refresh = latest(async fresh => {
      if (!state.sel) await choose(fresh);
      runs = chosen().filter(key => key !== "none").slice(0, 100);
      const given = {runs: runs.join(",")};
      const [names, rows, columns] = await fresh(Promise.all([ask("names", given), ask("scatter", {...given, columns: "name"}), ask("columns")]));
      table = Object.fromEntries(rows.rows.map(([key, name]) => [key, name]));
      fill(band, [["", "nothing"], ...columns.columns.filter(one => !/^(last|tracker|result)\./.test(one))], state.band);
      if (!state.band) drawLegend(runs.map((key, style) => [table[key] || key, style, key]));
      const signature = JSON.stringify(names.groups);
      if (signature !== shape) { shape = signature; groups = names.groups; build(); }
      panels.forEach(panel => { panel.stale = true; });
      fetchSeen();
      if (names.problems.length) say(new Error(names.problems.join("; ")));
    }, drawing);
    let shape = "";
    const resized = later(() => panels.forEach(panel => panel.chart && panel.chart.draw()), 100);
    addEventListener("resize", resized);
    window.charts = panels;
    element("div", place, "reading the runs…", "empty");
    return {refresh, watched: () => runs, changed: refresh, tableChanged: async () => { if (!state.sel) await refresh(); }, redraw: resized,
      end: () => { seen.disconnect(); removeEventListener("resize", resized); }};
  }

  // ---- compare
  function compareView() {
    const place = element("div", main);
    let only = "";
    const bar = element("div", place, null, "bar"), out = element("div", place);
    search(bar, "setting or result", "", value => { only = value.toLowerCase(); refresh(); });
    const refresh = latest(async fresh => {
      if (!state.sel) await choose(fresh);
      const found = await fresh(ask("compare", {runs: chosen().join(",")}));
      out.replaceChildren();
      if (!found.runs.length) { element("div", out, "no run is chosen: tick some in Runs", "empty"); return; }
      for (const [title, rows, strong] of [["Settings that differ", found.differ, true], ["Results and last values", found.results], ["Settings that are the same", found.same]]) {
        const there = rows.filter(([name]) => name.toLowerCase().includes(only));
        const box = element("details", out);
        box.open = title !== "Settings that are the same" || !found.differ.length;
        element("summary", box, `${title} (${there.length})`);
        if (!there.length) continue;
        const table = element("table", element("div", box, null, "scroll"), null, "compared"), head = element("tr", element("thead", table)), body = element("tbody", table);
        element("th", head, "", "first");
        found.runs.forEach((run, k) => {
          const made = element("th", head, null, there.some(([, values]) => typeof values[k] === "number") ? "number" : "");
          made.style.borderBottom = `3px solid ${colour(style(run.key))}`;
          link({tab: "run", run: run.key}, made, run.name);
        });
        for (const [name, values] of there) {
          const row = element("tr", body);
          element("td", row, name, "first").title = name;
          values.forEach(value => { const made = cell(row, value); if (strong && JSON.stringify(value) !== JSON.stringify(values[0])) made.classList.add("differs"); });
          for (const k of !strong && found.best[name] || []) { row.cells[k + 1].classList.add("best"); row.cells[k + 1].title = "the best of these runs"; }
        }
      }
    }, drawing);
    return {refresh, watched: () => [], changed: refresh};
  }

  // ---- parameters: a scatter plot, and parallel coordinates
  function paramsView() {
    const bar = element("div", main, null, "bar");
    let columns = [];
    search(bar, "which runs: as in Runs", state.q, q => { go({q}, {quiet: true}); refresh(); });
    const x = choice(bar, "x", [], "", value => { go({x: value}, {quiet: true}); refresh(); });
    const y = choice(bar, "y and colour", [], "", value => { go({y: value}, {quiet: true}); refresh(); });
    checks(bar, "axes ▾", () => columns, () => axes(), value => { go({axes: value}, {quiet: true}); refresh(); });
    const count = element("span", bar, "", "soft"), grid = element("div", main, null, "wide");
    const cloud = plot(grid, "One column against another"), points = [], lines = plot(grid, "Parallel coordinates");
    function plot(parent, title) {
      const part = element("div", parent);
      element("h2", part, title);
      const box = element("div", part, null, "plot"), canvas = element("canvas", box), note = element("div", box, null, "note");
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", title);
      return {box, canvas, note, head: part.firstChild};
    }
    const axes = () => state.axes.length ? state.axes : [...columns.filter(one => one.startsWith("config.") && varies(one)).slice(0, 5), state.y || guess()].filter(Boolean);
    const varies = name => variety[name] !== false, variety = {};
    const guess = () => columns.find(one => /^result\..*(loss|acc)/.test(one)) || columns.find(one => one.startsWith("result.")) ||
      columns.find(one => /^last\..*loss/.test(one)) || columns.find(one => one.startsWith("last.")) || "step";
    function start(part) {
      const ratio = window.devicePixelRatio || 1, width = part.canvas.clientWidth, height = part.canvas.clientHeight;
      part.canvas.width = width * ratio; part.canvas.height = height * ratio;
      const c = part.canvas.getContext("2d"), style = getComputedStyle(document.body);
      c.scale(ratio, ratio);
      c.font = "11px system-ui, sans-serif";
      light = Number(style.color.match(/\d+/)[0]) > 128 ? 62 : 40;
      return {c, width, height, ink: style.color, pale: style.getPropertyValue("--line")};
    }
    function scaleOf(values) {
      const plain = values.map(charting.value).filter(v => typeof v === "number" && isFinite(v)), words = [...new Set(values.filter(v => typeof v === "string" && !["NaN", "Infinity", "-Infinity"].includes(v)).concat(values.filter(v => typeof v === "boolean").map(String)))].sort();
      if (words.length) return {place: v => v === null || v === undefined ? NaN : words.length > 1 ? words.indexOf(String(v)) / (words.length - 1) : 0.5, marks: words.slice(0, 20).map((w, k) => [words.length > 1 ? k / (words.length - 1) : 0.5, w])};
      const low = Math.min(...plain), high = Math.max(...plain), log = low > 0 && high / low > 20;
      const to = v => log ? Math.log10(v) : v, [a, b] = [to(low), to(high)];
      const marks = !plain.length ? [] : a === b ? [[0.5, shown(low)]] : charting.ticks(a, b, log, 6, null, !log && plain.every(Number.isInteger)).map(t => [(t - a) / (b - a), shown(log ? 10 ** t : t)]);
      return {place: v => { const n = v === null || v === undefined || typeof v === "string" ? NaN : to(Number(v)); return a === b ? isFinite(n) ? 0.5 : NaN : (n - a) / (b - a); }, marks};
    }
    let light = 40;  // of colours, in percent: more on a dark page
    const shade = share => isFinite(share) ? `hsl(${Math.round(250 - 200 * share)} 75% ${Math.round(light + 8 * share)}%)` : "#888";
    function hover(part, near) {
      part.canvas.onpointermove = event => {
        const box = part.canvas.getBoundingClientRect(), found = near(event.clientX - box.left, event.clientY - box.top);
        part.note.textContent = found ? found.label : "";
        part.note.classList.toggle("left", event.clientX - box.left > box.width / 2);
        part.canvas.style.cursor = found ? "pointer" : "default";
        part.canvas.onclick = found ? () => go({tab: "run", run: found.key}, {step: true}) : null;
      };
      part.canvas.onpointerleave = () => { part.note.textContent = ""; };
    }
    function drawCloud(rows, nameX, nameY) {
      const {c, width, height, ink, pale} = start(cloud), left = 70, right = width - 40, top = 10, bottom = height - 40;
      const sx = scaleOf(rows.map(r => r[2])), sy = scaleOf(rows.map(r => r[3]));
      c.strokeStyle = pale; c.fillStyle = ink; c.textAlign = "center"; c.textBaseline = "top";
      for (const [share, label] of sx.marks) { const px = left + share * (right - left); c.beginPath(); c.moveTo(px, top); c.lineTo(px, bottom); c.stroke(); c.fillText(label.slice(0, 18), px, bottom + 4); }
      c.textAlign = "right"; c.textBaseline = "middle";
      for (const [share, label] of sy.marks) { const py = bottom - share * (bottom - top); c.beginPath(); c.moveTo(left, py); c.lineTo(right, py); c.stroke(); c.fillText(label.slice(0, 12), left - 5, py); }
      c.textAlign = "center"; c.textBaseline = "bottom"; c.fillText(column(nameX), (left + right) / 2, height - 4);
      points.length = 0;
      for (const row of rows) {
        const px = left + sx.place(row[2]) * (right - left), share = sy.place(row[3]), py = bottom - share * (bottom - top);
        if (!isFinite(px) || !isFinite(py)) continue;
        c.fillStyle = shade(share); c.globalAlpha = rows.length > 500 ? 0.5 : 0.85;
        c.beginPath(); c.arc(px, py, rows.length > 500 ? 3 : 4.5, 0, 7); c.fill();
        points.push([px, py, row]);
      }
      c.globalAlpha = 1;
      hover(cloud, (px, py) => {
        let best = null, least = 144;
        for (const [a, b, row] of points) { const d = (a - px) ** 2 + (b - py) ** 2; if (d < least) [best, least] = [row, d]; }
        return best && {key: best[0], label: `${best[1]}: ${column(nameX)} ${text(best[2])}, ${column(nameY)} ${text(best[3])}`};
      });
    }
    function drawLines(rows, names) {
      const {c, width, height, ink, pale} = start(lines), top = 34, bottom = height - 14, left = 60, right = width - 60;
      if (!names.length) return;
      const scales = names.map((_, k) => scaleOf(rows.map(row => row[2 + k])));
      const px = k => names.length > 1 ? left + k / (names.length - 1) * (right - left) : (left + right) / 2;
      const paths = [];
      for (const row of rows) {
        const at = scales.map((scale, k) => [px(k), bottom - scale.place(row[2 + k]) * (bottom - top)]);
        c.strokeStyle = shade(scales[names.length - 1].place(row[1 + names.length])); c.globalAlpha = rows.length > 200 ? 0.25 : 0.7; c.lineWidth = 1.3;
        c.beginPath();
        let on = false;
        for (const [a, b] of at) { if (!isFinite(b)) { on = false; continue; } if (on) c.lineTo(a, b); else c.moveTo(a, b); on = true; }
        c.stroke();
        paths.push([at, row]);
      }
      c.globalAlpha = 1; c.lineWidth = 1;
      names.forEach((name, k) => {
        c.strokeStyle = ink; c.fillStyle = ink; c.beginPath(); c.moveTo(px(k), top); c.lineTo(px(k), bottom); c.stroke();
        c.textAlign = k === 0 ? "left" : k === names.length - 1 ? "right" : "center"; c.textBaseline = "bottom";
        c.fillText(column(name), k === 0 ? 4 : k === names.length - 1 ? width - 4 : px(k), k % 2 && names.length > 3 ? 15 : 29, (right - left) / Math.max(1, names.length - 1) * 1.6);
        c.textAlign = k === names.length - 1 ? "left" : "right"; c.textBaseline = "middle";
        for (const [share, label] of scales[k].marks) c.fillText(label.slice(0, 12), px(k) + (k === names.length - 1 ? 5 : -5), bottom - share * (bottom - top));
      });
      void pale;
      hover(lines, (mx, my) => {
        let best = null, least = 8;
        for (const [at, row] of paths)
          for (let k = 1; k < at.length; k++) {
            const [[a, b], [d, e]] = [at[k - 1], at[k]];
            if (mx < a || mx > d) continue;
            const off = Math.abs(b + (e - b) * (mx - a) / (d - a) - my);
            if (off < least) [best, least] = [row, off];
          }
        return best && {key: best[0], label: `${best[1]}: ${names.map((name, k) => `${column(name)} ${text(best[2 + k])}`).join(", ")}`};
      });
    }
    const refresh = latest(async fresh => {
      columns = (await fresh(ask("columns"))).columns.filter(one => /^(config|result|last)\./.test(one) || ["step", "created", "group", "status"].includes(one));
      const settings = columns.filter(one => one.startsWith("config."));
      const sample = await fresh(ask("scatter", {columns: settings.slice(0, 12).join("\n"), where: state.q}));
      settings.slice(0, 12).forEach((name, k) => { variety[name] = new Set(sample.rows.map(row => row[2 + k])).size > 1; });
      const nameX = state.x || settings.find(varies) || columns[0], nameY = state.y || guess();
      fill(x, columns, nameX);
      fill(y, columns, nameY);
      const two = await fresh(ask("scatter", {columns: [nameX, nameY].join("\n"), where: state.q}));
      const names = axes(), many = await fresh(ask("scatter", {columns: names.join("\n"), where: state.q}));
      count.textContent = `${two.rows.length.toLocaleString("en-US")} runs`;
      cloud.head.textContent = `${column(nameY)} against ${column(nameX)}`;
      drawCloud(two.rows, nameX, nameY);
      drawLines(many.rows, names);
    }, drawing);
    const resized = later(refresh, 150);
    addEventListener("resize", resized);
    return {refresh, watched: () => [], changed: refresh, redraw: refresh, end: () => removeEventListener("resize", resized)};
  }

  // ---- one run
  function runView() {
    const top = element("div", main), first = element("div", main, null, "pair"), mediaPlace = element("div", main), spansPlace = element("div", main), consolePlace = element("div", main), rest = element("div", main);
    let mediaShape = "", printed = null, spans = null;
    const refresh = latest(async fresh => {
      if (!state.run) {
        await choose(fresh);
        if (!auto.length) { element("div", top, "no runs yet", "empty"); return; }
        go({run: auto[0]}, {quiet: true});
      }
      const [found, log] = await fresh(Promise.all([ask("run", {run: state.run}), ask("log", {run: state.run})]));
      const row = found.row;
      document.title = row.name || row.id;
      top.replaceChildren();
      element("h1", top, row.name || row.id);
      const bar = element("div", top, null, "bar");
      element("span", bar, row.status || "status unknown", row.status);
      element("span", bar, `${row.project}/${row.id}`, "soft");
      if (row.created) element("span", bar, `started ${moment(row.created, 1e9)} ${moment(row.created, 1000)} (${age(row.created)})`, "soft");
      if (row.created && row.time > row.created) element("span", bar, `${row.status === "running" ? "for" : "took"} ${duration(row.time - row.created)}`, "soft");
      if (row.step !== null) element("span", bar, `step ${row.step.toLocaleString("en-US")}`, "soft");
      for (const tag of row.tags) element("span", bar, `#${tag}`, "soft");
      link({tab: "charts", sel: row.key, zoom: ""}, bar, "charts");
      link({tab: "charts", sel: row.key, zoom: "", axis: "relative", keys: "^system ^gpu ^cpu"}, bar, "system metrics");
      if (row.note) element("p", top, row.note, "soft");
      const shapeNow = JSON.stringify([state.run, found.media_problem, found.media.map(one => [one.name, one.type])]);
      if (shapeNow !== mediaShape) { mediaShape = shapeNow; mediaPlace.replaceChildren(); if (found.media.length || found.media_problem) element("h2", mediaPlace, "Media"); if (found.media_problem) element("p", mediaPlace, found.media_problem, "soft"); players = found.media.map(one => player(mediaPlace, one)); }
      else players.forEach((play, k) => play(found.media[k]));
      const boxes = () => [...main.querySelectorAll(".facts .scroll, pre")].filter(one => ![mediaPlace, spansPlace, consolePlace].some(place => place.contains(one)));
      if (!spans || spans.run !== state.run) { spansPlace.replaceChildren(); spans = {run: state.run, draw: spansOf(spansPlace, state.run)}; }
      spans.draw();
      if (!printed || printed.run !== state.run) { if (printed) printed.end(); printed = consoleOf(consolePlace, state.run); }
      printed.running(row.status === "running");
      const scrolls = boxes().map(one => one.scrollTop);
      first.replaceChildren();
      rest.replaceChildren();
      const pair = element("div", rest, null, "pair");
      facts(first, "Results", found.results.map(([name, value]) => [`final/${name}`, value]));
      facts(first, "Last values", Object.entries(row.last));
      facts(first, "Configuration", found.config);
      facts(pair, "About", [...found.about, ...found.environment]);
      if (Object.keys(found.delivery).length) {
        facts(pair, "Trackers", Object.entries(found.delivery).map(([name, one]) => [name, [one.state, `${one.delivered.toLocaleString("en-US")} records`,
          one.waiting_bytes ? `${one.waiting_bytes.toLocaleString("en-US")} bytes wait` : "", one.rejected ? `${one.rejected} rejected` : "", one.error, one.url].filter(Boolean).join(", ")]));
      }
      facts(pair, "Attempts", found.attempts.map(([n, time, host, size, from]) => [`attempt ${n}`, `${new Date(time * 1000).toLocaleString()} on ${host || "?"}, ${size} rank${size === 1 ? "" : "s"}${from === null ? "" : `, from step ${from}`}`]));
      if (found.artifacts.length) artifacts(pair, found.artifacts);
      if (found.alerts.length) facts(pair, "Alerts", found.alerts.map(([time, line]) => [new Date(time * 1000).toLocaleString(), line]));
      if (log.messages.length) facts(rest, "Messages", log.messages.slice().reverse().map(([time, , source, said]) => [new Date(time * 1000).toLocaleString(), source ? `${source}: ${said}` : said]));
      if (log.log) { element("h2", rest, "Relay's log"); element("pre", rest, log.log); }
      boxes().forEach((one, k) => { one.scrollTop = scrolls[k] || 0; });
      main.dataset.run = row.key;
    }, drawing);
    const bytes = size => `${size.toLocaleString("en-US")} bytes`;
    function artifacts(parent, all) {
      const box = facts(parent, "Artifacts", all.map(one => [one.name, `${one.type}, ${bytes(one.size)}${one.step === null ? "" : `, step ${one.step}`}`]));
      box.querySelectorAll("tr").forEach((row, k) => {
        const {place, files, more} = all[k], cell = row.cells[1];
        files.forEach(({path, size, kept}, item) => {
          const line = element("div", cell);
          if (!kept) { element("span", line, `${path} (${bytes(size)}; trackers get has it)`, "soft"); return; }
          const made = element("a", line, path);
          made.href = `artifact?${new URLSearchParams({run: state.run, place, item})}`; made.download = ""; made.title = `save ${bytes(size)}`;
        });
        if (more > 0) element("div", cell, `and ${more.toLocaleString("en-US")} more`, "soft");
      });
    }
    function consoleOf(parent, run) {
      parent.replaceChildren();
      const head = element("h2", parent, "Console"), bar = element("div", parent, null, "bar"), out = element("pre", parent, null, "console");
      const find = element("input", bar), stream = element("select", bar), label = element("label", bar), follow = element("input", label), said = element("span", bar, "", "soft");
      find.type = "search"; find.placeholder = "search"; find.setAttribute("aria-label", "search the console");
      stream.setAttribute("aria-label", "stream");
      for (const [value, name] of [["", "both streams"], ["stdout", "standard output"], ["stderr", "standard error"]]) element("option", stream, name).value = value;
      follow.type = "checkbox"; follow.checked = true; label.append(" follow");
      const turns = {turn: 0};
      let timer = 0, shown = "";
      for (const one of [head, bar, out]) one.hidden = true;
      const draw = latest(async fresh => {
        const found = await fresh(ask("console", {run, find: find.value, stream: stream.value}));
        const some = found.lines.length > 0 || find.value || stream.value;
        for (const one of [head, bar, out]) one.hidden = !some;
        const key = JSON.stringify([found.lines.length, found.lines[0], found.lines[found.lines.length - 1]]);
        if (key === shown) return;
        shown = key;
        said.textContent = found.more ? `the last ${found.lines.length.toLocaleString("en-US")} lines; trackers logs prints all` : found.lines.length ? "" : "no line has it";
        const at = out.scrollTop;
        out.replaceChildren(...found.lines.map(([time, from, rank, words]) => {
          const line = element("div", null, found.ranks > 1 ? `[rank ${rank}] ${words}` : words || " ", from === "stderr" ? "stderr" : "");
          line.title = `${new Date(time * 1000).toLocaleString()}, ${from}`;
          return line;
        }));
        out.scrollTop = follow.checked ? out.scrollHeight : at;
      }, turns);
      out.addEventListener("scroll", () => { follow.checked = out.scrollTop + out.clientHeight >= out.scrollHeight - 4; });
      follow.addEventListener("change", () => { if (follow.checked) out.scrollTop = out.scrollHeight; });
      find.addEventListener("input", later(draw, 200));
      stream.addEventListener("change", draw);
      draw();
      return {
        run,
        running: goes => { if (goes && !timer) timer = setInterval(() => { if (!document.hidden) draw(); }, TICK_MS * 2); if (!goes && timer) { clearInterval(timer); timer = 0; draw(); } },
        end: () => { turns.turn += 1; clearInterval(timer); },
      };
    }
    let players = [];
    function player(parent, one) {
      const box = element("div", parent, null, "player"), bar = element("div", box, null, "bar"), run = state.run;
      element("strong", bar, one.name);
      element("span", bar, one.type, "soft");
      const slide = element("input", bar), where = element("span", bar, "", "soft"), out = element("div", box, null, "media");
      slide.type = "range"; slide.min = 0; slide.setAttribute("aria-label", `step of ${one.name}`);
      let steps = [], place = -1, follow = true;
      const query = {where: "", sort: "", descending: false, first: 0, most: 25};
      const rows = one.type === "table" ? tableBox(out, () => ({run, name: one.name, place}), query, () => {}) : null;
      if (rows) {
        out.className = "";
        query.drawn = found => { where.textContent = found.step === null ? `${place + 1} of ${steps.length}` : `step ${found.step.toLocaleString("en-US")}`; };
        link({tab: "tables", sel: run, table: one.name, ta: run, tb: "", tstep: ""}, bar, "beside another run");
      }
      const draw = rows || latest(async fresh => {
        const found = await fresh(ask("items", {run, name: one.name, type: one.type, place}));
        where.textContent = found.step === null ? `${place + 1} of ${steps.length}` : `step ${found.step.toLocaleString("en-US")}`;
        out.replaceChildren(...found.items.map((item, number) => shownItem(run, one, place, number, item)));
      });
      const update = latest(async (fresh, known) => {
        if (steps.length === known.count) return;
        steps = (await fresh(ask("media", {run, name: one.name, type: one.type}))).steps;
        slide.max = steps.length - 1; slide.hidden = steps.length < 2;
        if (follow) { place = steps.length - 1; slide.value = place; await draw(); }
      });
      slide.addEventListener("input", () => { place = Number(slide.value); follow = place === steps.length - 1; draw(); });
      update(one);
      return update;
    }
    return {refresh, watched: () => state.run ? [state.run] : [], changed: refresh, end: () => { document.title = "trackers"; if (printed) printed.end(); }};
  }

  // ---- the frame
  const {tablesView, mediaView, tableBox, shownItem, spansOf} = logged({main, element, ask, guarded, latest, drawing, later, search, choice, fill, checks, field, cell, text, link, go, state, chosen,
    choose, style, colour, look: () => look});
  const VIEWS = {runs: runsView, charts: chartsView, media: mediaView, tables: tablesView, compare: compareView, params: paramsView, run: runView};
  const tabs = document.getElementById("tabs");
  function show() {
    tabs.replaceChildren();
    for (const [id, label] of Object.entries(TABS)) {
      const button = element("button", tabs, label);
      button.type = "button";
      if (id === state.tab) button.setAttribute("aria-current", "page");
      button.addEventListener("click", () => go({tab: id}, {step: true}));
    }
    if (view && view.end) view.end();
    main.replaceChildren();
    problem.textContent = "";
    delete main.dataset.drawn;
    delete main.dataset.run;
    main.dataset.tab = state.tab;
    view = VIEWS[state.tab]();
    versions = {table: -1, runs: {}};
    view.refresh();
  }
  const THEMES = ["", "dark", "light"];
  document.getElementById("theme").addEventListener("click", () => {
    go({theme: THEMES[(THEMES.indexOf(state.theme) + 1) % 3]}, {quiet: true});
    if (view.redraw) view.redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (view.redraw) view.redraw(); });
  async function tick() {
    if (!document.hidden && view) {
      const now = view, runs = view.watched();
      try {
        const found = await ask("pulse", {runs: runs.join(",")});
        live.className = "";
        live.replaceChildren(element("span", null, "live"));
        if (now === view) {
          const known = versions.runs, first = versions.table < 0;
          const read = Object.entries(found.runs).some(([key, version]) => key in known && known[key] !== version);
          const rows = !first && found.version !== versions.table;
          versions = {table: found.version, runs: found.runs};
          if (read) await view.changed();
          else if (rows) await (view.tableChanged || view.changed)();
        }
      } catch (error) { if (!(error instanceof TypeError)) say(error); }
    }
    setTimeout(tick, TICK_MS);
  }
  addEventListener("popstate", () => { load(); show(); });
  addEventListener("hashchange", () => { load(); show(); });
  (async () => {
    load();
    try { look = await ask("look"); } catch (error) { say(error); }
    show();
    tick();
  })();
})();
