// Settings and results side by side.
import { ask, drawing, latest } from "./asking.js";
import { element, value } from "./chart.js";
import { cell, link, main, search, scrolls } from "./parts.js";
import { choose, chosen, colour, none, style } from "./selection.js";
import { state } from "./state.js";

const FEW = 12; // runs that are columns

export function compareView() {
  const place = element("div", main);
  let only = "";
  const bar = element("div", place, null, "bar"),
    out = element("div", place);
  search(bar, "setting or result", "", (words) => {
    only = words.toLowerCase();
    refresh();
  });
  let by = "",
    down = false;
  // The runs in the order of the setting or result that was clicked; without a value last.
  function ordered(found) {
    const places = found.runs.map((_, k) => k),
      values = ([...found.differ, ...found.results, ...found.same].find(([name]) => name === by) || [])[1];
    if (!values) return places;
    const key = (k) => (typeof values[k] === "string" ? value(values[k]) : values[k]);
    return places.sort((a, b) => {
      const [one, other] = [key(a), key(b)];
      if (typeof one !== "number" || typeof other !== "number" || isNaN(one) || isNaN(other))
        return (
          Number(values[a] === null) - Number(values[b] === null) || String(values[a]).localeCompare(String(values[b]))
        );
      return down ? other - one : one - other;
    });
  }
  function sorts(parent, [name], numeric) {
    const button = element("button", parent, name === by ? `${name} ${down ? "▼" : "▲"}` : name, "plain");
    button.type = "button";
    button.title = `${name}: sort the runs`;
    parent.classList.toggle("number", numeric);
    button.addEventListener("click", () => {
      down = name === by && !down;
      by = name;
      refresh();
    });
  }
  const refresh = latest(async (fresh) => {
    if (!state.sel) await choose(fresh);
    const found = await fresh(ask("compare", { runs: chosen().join(",") }));
    out.replaceChildren();
    if (!found.runs.length) {
      element("div", out, none(), "empty");
      return;
    }
    for (const [title, rows, strong] of [
      ["Settings that differ", found.differ, true],
      ["Results and last values", found.results],
      ["Settings that are the same", found.same],
    ]) {
      const there = rows.filter(([name]) => name.toLowerCase().includes(only));
      const box = element("details", out);
      box.open = title !== "Settings that are the same" || !found.differ.length;
      element("summary", box, `${title} (${there.length})`);
      if (!there.length) continue;
      element(
        "p",
        box,
        strong ? "bold: not as in the first run" : found.best[there[0][0]] ? "green: the best of these runs" : "",
        "soft",
      );
      const table = element("table", scrolls(element("div", box, null, "scroll half"), title), null, "compared"),
        head = element("tr", element("thead", table)),
        body = element("tbody", table);
      const order = ordered(found);
      const place = (row, [name, values], k) => {
        const made = cell(row, values[k]);
        if (strong && JSON.stringify(values[k]) !== JSON.stringify(values[order[0]])) made.classList.add("differs");
        if (!strong && (found.best[name] || []).includes(k)) {
          made.classList.add("best");
          made.title = "the best of these runs";
        }
        return made;
      };
      const run = (parent, k, kind) => {
        const made = element(kind, parent, null, kind === "td" ? "first" : "");
        made.style[kind === "td" ? "borderLeft" : "borderBottom"] = `3px solid ${colour(style(found.runs[k].key))}`;
        link({ tab: "run", run: found.runs[k].key }, made, found.runs[k].name);
        return made;
      };
      // Few runs are columns; of many each is a row.
      if (found.runs.length > FEW) {
        element("th", head, "run", "first");
        for (const one of there) sorts(element("th", head), one, typeof one[1].find((v) => v !== null) === "number");
        for (const k of order) {
          const row = element("tr", body);
          run(row, k, "td");
          for (const one of there) place(row, one, k);
        }
        continue;
      }
      element("th", head, "name", "first");
      // A run's texts stand below its name, as its numbers do.
      const numeric = (k) => there.some(([, values]) => typeof values[k] === "number");
      for (const k of order) run(head, k, "th").classList.toggle("number", numeric(k));
      for (const one of there) {
        const row = element("tr", body);
        sorts(element("td", row, null, "first"), one, false);
        for (const k of order)
          if (numeric(k)) place(row, one, k).classList.add("number");
          else place(row, one, k);
      }
    }
    main.dataset.drawn = String(found.runs.length);
  }, drawing);
  return { refresh, watched: () => [], changed: refresh };
}
