// Settings and results side by side.
import { ask, drawing, latest } from "./asking.js";
import { element } from "./chart.js";
import { cell, link, main, search, scrolls } from "./parts.js";
import { choose, chosen, colour, style } from "./selection.js";
import { state } from "./state.js";

export function compareView() {
  const place = element("div", main);
  let only = "";
  const bar = element("div", place, null, "bar"),
    out = element("div", place);
  search(bar, "setting or result", "", (value) => {
    only = value.toLowerCase();
    refresh();
  });
  const refresh = latest(async (fresh) => {
    if (!state.sel) await choose(fresh);
    const found = await fresh(ask("compare", { runs: chosen().join(",") }));
    out.replaceChildren();
    if (!found.runs.length) {
      element("div", out, "no run is chosen: tick some in Runs", "empty");
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
      const table = element("table", scrolls(element("div", box, null, "scroll"), title), null, "compared"),
        head = element("tr", element("thead", table)),
        body = element("tbody", table);
      element("th", head, "name", "first");
      found.runs.forEach((run, k) => {
        const made = element(
          "th",
          head,
          null,
          there.some(([, values]) => typeof values[k] === "number") ? "number" : "",
        );
        made.style.borderBottom = `3px solid ${colour(style(run.key))}`;
        link({ tab: "run", run: run.key }, made, run.name);
      });
      for (const [name, values] of there) {
        const row = element("tr", body);
        element("td", row, name, "first").title = name;
        values.forEach((value) => {
          const made = cell(row, value);
          if (strong && JSON.stringify(value) !== JSON.stringify(values[0])) made.classList.add("differs");
        });
        for (const k of (!strong && found.best[name]) || []) {
          row.cells[k + 1].classList.add("best");
          row.cells[k + 1].title = "the best of these runs";
        }
      }
    }
  }, drawing);
  return { refresh, watched: () => [], changed: refresh };
}
