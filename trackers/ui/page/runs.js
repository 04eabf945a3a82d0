// The table of runs.
import { ask, drawing, latest } from "./asking.js";
import { date, element } from "./chart.js";
import { editor, may, star as toggleStar, starred } from "./deeds.js";
import { age, at, cell, checks, choice, column, counted, fill, link, main, search, text } from "./parts.js";
import { choose, chosen, colour, style, toggle } from "./selection.js";
import { go, listed, state, versions } from "./state.js";

const TICKED = 100; // runs that one click ticks
export function runsView() {
  const bar = element("div", main, null, "bar");
  search(bar, "search: words, status:running, lr>0.01, -tag", state.q, (q) => {
    go({ q }, { quiet: true });
    most = 100;
    refresh();
  });
  let known = [],
    most = 100,
    total = 0;
  const by = choice(bar, "group by", [["", "nothing"]], state.by, (value) => {
    go({ by: value, fold: [] }, { quiet: true });
    refresh();
  });
  checks(
    bar,
    "columns ▾",
    () => known.filter((one) => one !== "name"),
    () => (state.col.length ? state.col : usual),
    (col) => {
      go({ col }, { quiet: true });
      refresh();
    },
  );
  let keys = [];
  for (const [label, title, sel] of /** @type {[string, string, () => string][]} */ ([
    ["tick all", `show these runs, at most ${TICKED}, in charts`, () => keys.slice(0, TICKED).join(",")],
    ["newest", "show the newest ten that fit in charts, also those that come", () => ""],
  ])) {
    const button = element("button", bar, label, label === "tick all" ? "all" : "");
    button.type = "button";
    button.title = title;
    button.addEventListener("click", () => {
      go({ sel: sel() }, { quiet: true });
      refresh();
    });
  }
  editor(
    bar,
    "change ticked ▾",
    () => chosen().filter((key) => key !== "none"),
    null,
    () => refresh(),
  );
  const count = element("span", bar, "", "soft");
  const box = element("div", main, null, "scroll tall"),
    table = element("table", box),
    head = element("tr", element("thead", table));
  const body = element("tbody", table),
    more = element("p", main, "", "soft"),
    lost = element("p", main, "", "soft"),
    empty = element("div", main, "", "empty");
  let usual = [];
  box.addEventListener("scroll", () => {
    if (box.scrollTop + box.clientHeight > box.scrollHeight - 400 && most < Math.min(total, 1000)) {
      most += 200;
      refresh();
    }
  });
  const refresh = latest(async (fresh) => {
    const query = {
      where: state.q,
      sort: state.sort,
      descending: !state.asc,
      by: state.by,
      project: state.project,
      pins: listed(state.pin),
      most,
      folded: state.fold,
      columns: state.col.length ? state.col : usual,
    };
    const found = await fresh(ask("runs", { query: JSON.stringify(query) }));
    versions.table = found.version;
    total = found.total;
    keys = found.rows.map((row) => row.key);
    bar.querySelector("button.all").textContent = found.total > TICKED ? `tick first ${TICKED}` : "tick all";
    if (!state.sel) await choose(fresh);
    usual = found.usual;
    const columns = state.col.length ? state.col : usual;
    count.textContent =
      found.total === found.all
        ? counted(found.all)
        : `${found.total.toLocaleString("en-US")} of ${counted(found.all)}`;
    more.textContent =
      found.total > 1000 && most >= 1000 ? "the first 1,000 runs: search, or sort by another column" : "";
    empty.textContent = found.all ? (found.total ? "" : "no run fits") : "no runs yet: they appear here as they begin";
    box.hidden = !found.total;
    lost.textContent = found.lost.join("; ");
    heads(columns, found.rows, found.goals);
    rows(found, columns);
    if (found.version !== knownAt) {
      known = (await fresh(ask("columns"))).columns;
      knownAt = found.version;
      fill(by, [["", "nothing"], ...known.filter((one) => !one.startsWith("last."))], state.by);
    }
  }, drawing);
  let knownAt = -1;
  function heads(columns, there, goals) {
    head.replaceChildren();
    for (const name of ["name", ...columns]) {
      const sign = state.sort === name ? (state.asc ? " ▲" : " ▼") : "";
      const made = element("th", head, column(name) + sign, name === "name" ? "sort first" : "sort");
      if (!["name", "created", "time"].includes(name) && there.some((row) => typeof at(row, name) === "number"))
        made.classList.add("number");
      made.title = `${name}: sort`;
      made.tabIndex = 0;
      made.setAttribute("aria-sort", sign ? (state.asc ? "ascending" : "descending") : "none");
      const sort = () => {
        // the best first
        const asc = state.sort === name ? !state.asc : goals[name] === "min";
        go({ sort: name, asc: asc ? "1" : "" }, { quiet: true });
        refresh();
      };
      made.addEventListener("click", sort);
      made.addEventListener("keydown", (event) => {
        if (event.key === "Enter") sort();
      });
    }
  }
  function rows(found, columns) {
    const pins = [...listed(state.pin), ...found.rows.filter(starred).map((row) => row.key)],
      now = new Set(chosen());
    body.replaceChildren();
    const left = state.by ? found.groups.map(([value], k) => [value, k]) : [];
    // A group's own row: how many runs it has, and of what is a number the mean and the spread; a click folds it.
    const titles = (until) => {
      while (left.length) {
        const [value, k] = left.shift(),
          name = String(value ?? "–"),
          shut = state.fold.includes(String(value));
        const row = element("tr", body, null, "group"),
          fold = element(
            "button",
            element("td", row, null, "first"),
            `${shut ? "▸" : "▾"} ${column(state.by)}: ${text(value) || name} (${found.groups[k][1]})`,
            "plain",
          );
        fold.type = "button";
        fold.setAttribute("aria-expanded", String(!shut));
        fold.addEventListener("click", () => {
          go(
            { fold: shut ? state.fold.filter((one) => one !== String(value)) : [...state.fold, String(value)] },
            { quiet: true },
          );
          refresh();
        });
        for (const one of columns) {
          const [mean, deviation, count] = found.spreads[k][one] || [];
          const part = count < found.groups[k][1] ? ` (${count} of ${found.groups[k][1]})` : ""; // others have none, or NaN
          const made = element(
            "td",
            row,
            mean === undefined
              ? ""
              : `${text(mean)}${deviation === null ? "" : ` ± ${text(Number(deviation.toPrecision(2)))}`}${part}`,
            "number",
          );
          if (count) made.title = `mean and standard deviation of ${counted(count)}`;
        }
        if (value === until) return;
      }
    };
    for (const one of found.rows) {
      const value = at(one, state.by) ?? null;
      if (state.by && !pins.includes(one.key) && left.some(([other]) => other === value)) titles(value);
      const row = element("tr", body),
        first = element("div", element("td", row, null, "first"), null, "line");
      const tick = element("input", first),
        star = element("button", first, pins.includes(one.key) ? "★" : "☆", "star");
      tick.type = "checkbox";
      tick.checked = now.has(one.key);
      tick.title = "show in charts";
      tick.setAttribute("aria-label", `show ${one.name} in charts`);
      tick.dataset.run = one.key;
      tick.addEventListener("change", () => {
        toggle(one.key, tick.checked);
        paint();
      });
      star.type = "button";
      star.title = "keep at the top";
      star.setAttribute("aria-pressed", String(pins.includes(one.key)));
      star.addEventListener("click", () => {
        if (may()) {
          toggleStar(one, refresh);
          return;
        }
        go(
          { pin: (pins.includes(one.key) ? pins.filter((key) => key !== one.key) : [...pins, one.key]).join(",") },
          { quiet: true },
        );
        refresh();
      });
      link({ tab: "run", run: one.key }, first, one.name || one.id).title = `${one.name} (${one.id})`;
      for (const name of columns) {
        const value = at(one, name);
        if (name === "created" || name === "time") cell(row, age(value)).title = value ? date(value) : "";
        else if (name === "status") cell(row, value, value);
        else if (name.startsWith("tracker."))
          cell(row, value === "delivered" ? "✓" : value, (value || "").split(/[ ,]/)[0] || "soft").title = value || "";
        else cell(row, value);
      }
    }
    if (found.rows.length < most) titles();
    paint();
  }
  function paint() {
    // a ticked run has the colour of its curves
    for (const tick of body.querySelectorAll("input"))
      tick.style.accentColor = style(tick.dataset.run) < 0 ? "" : colour(style(tick.dataset.run));
  }
  return { refresh, watched: () => [], changed: refresh, redraw: refresh };
}
