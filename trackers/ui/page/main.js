// The frame: views, theme, and what is new.
import { ask, live, problem, say } from "./asking.js";
import { element } from "./chart.js";
import { chartsView } from "./charts.js";
import { compareView } from "./compare.js";
import { learn, readViews, restoreLast } from "./deeds.js";
import { mediaView } from "./media.js";
import { paramsView } from "./parameters.js";
import { fill, main } from "./parts.js";
import { runView } from "./run.js";
import { runsView } from "./runs.js";
import { look } from "./selection.js";
import { TABS, TICK_MS, frame, go, load, state, versions } from "./state.js";
import { tablesView } from "./tables.js";

const VIEWS = {
  runs: runsView,
  charts: chartsView,
  media: mediaView,
  tables: tablesView,
  compare: compareView,
  params: paramsView,
  run: runView,
};
const tabs = document.getElementById("tabs");
let view = null;
frame.show = show;
function show() {
  tabs.replaceChildren();
  for (const [id, label] of Object.entries(TABS)) {
    const button = element("button", tabs, label);
    button.type = "button";
    if (id === state.tab) button.setAttribute("aria-current", "page");
    button.addEventListener("click", () => go({ tab: id }, { step: true }));
  }
  if (view && view.end) view.end();
  main.replaceChildren();
  problem.textContent = "";
  delete main.dataset.drawn;
  delete main.dataset.run;
  main.dataset.tab = state.tab;
  view = VIEWS[state.tab]();
  Object.assign(versions, { table: -1, runs: {} });
  view.refresh();
}
// ---- the project
const project = /** @type {HTMLSelectElement} */ (document.getElementById("project"));
project.addEventListener("change", () => {
  go({ project: project.value, sel: "", run: "" }, { step: true });
  readViews();
});
let offered = "";
function offer(projects) {
  const now = JSON.stringify([projects, state.project]);
  if (now === offered) return;
  offered = now;
  const names = state.project && !projects.includes(state.project) ? [state.project, ...projects] : projects;
  fill(project, [["", "all projects"], ...names.map((name) => [name, name])], state.project);
  project.hidden = names.length < 2 && !state.project;
}
const THEMES = ["", "dark", "light"];
document.getElementById("theme").addEventListener("click", () => {
  go({ theme: THEMES[(THEMES.indexOf(state.theme) + 1) % 3] }, { quiet: true });
  if (view.redraw) view.redraw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  if (view.redraw) view.redraw();
});
async function tick() {
  if (!document.hidden && view) {
    const now = view,
      runs = view.watched();
    try {
      const found = await ask("pulse", { runs: runs.join(",") });
      live.className = "";
      live.replaceChildren(element("span", null, "live"));
      offer(found.projects);
      if (now === view) {
        const known = versions.runs,
          first = versions.table < 0;
        const read = Object.entries(found.runs).some(([key, version]) => key in known && known[key] !== version);
        const rows = !first && found.version !== versions.table;
        Object.assign(versions, { table: found.version, runs: found.runs });
        if (read) await view.changed();
        else if (rows) await (view.tableChanged || view.changed)();
      }
    } catch (error) {
      if (!(error instanceof TypeError)) say(error);
    }
  }
  setTimeout(tick, TICK_MS);
}
addEventListener("popstate", () => {
  load();
  show();
});
addEventListener("hashchange", () => {
  load();
  show();
});
(async () => {
  load();
  try {
    Object.assign(look, await ask("look"));
    await learn();
    restoreLast();
    load();
    await readViews();
  } catch (error) {
    say(error);
  }
  show();
  tick();
})();

// What opens beside the right edge opens to the left of it.
document.addEventListener(
  "toggle",
  (event) => {
    const box = /** @type {HTMLDetailsElement} */ (event.target);
    const inner = /** @type {HTMLElement} */ (box.lastElementChild);
    if (!box.open || !box.classList.contains("pop")) return;
    inner.style.left = "";
    const over = inner.getBoundingClientRect().right - document.documentElement.clientWidth + 8;
    if (over > 0) inner.style.left = `${inner.offsetLeft - over}px`;
  },
  true,
);
