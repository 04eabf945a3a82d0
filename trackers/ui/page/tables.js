// The view of tables.
import { ask, drawing, later, latest } from "./asking.js";
import { element } from "./chart.js";
import { stepText } from "./items.js";
import { checks, choice, field, fill, main } from "./parts.js";
import { choose, chosen, colour, none, style } from "./selection.js";
import { go, state } from "./state.js";
import { axisOf, placeAt, stepBar } from "./steps.js";
import { pairBox, tableBox } from "./table_boxes.js";

const KEY = /^(id|idx|index|key|uid|uuid|(example|sample|question|prompt)[ _]?id)$/i;
export function tablesView() {
  const bar = element("div", main, null, "bar"),
    out = element("div", main),
    lost = element("p", main, "", "soft");
  let names = [],
    runs = [],
    columns = [],
    draw = null,
    shape = "";
  const query = {
    where: state.tq,
    sort: state.tsort,
    descending: Boolean(state.tdesc),
    first: Number(state.tfirst) || 0,
    most: Number(state.trows) || 50,
    wrap: state.twrap,
  };
  const keep = () =>
    go(
      {
        tq: query.where,
        tsort: query.sort,
        tdesc: query.descending ? "1" : "",
        tfirst: query.first ? String(query.first) : "",
        trows: query.most === 50 ? "" : String(query.most),
        twrap: query.wrap || "",
      },
      { quiet: true },
    );
  const reset = () => {
    Object.assign(query, { sort: "", descending: false, first: 0, where: "" });
    keep();
    shape = "";
  };
  const which = choice(bar, "table", [], "", (table) => {
    reset();
    go({ table, tstep: "", ton: [] }, { quiet: true });
    refresh();
  });
  const steps = stepBar(bar, "step of the table", {
    get: () => state.tstep,
    set: (tstep) => {
      go({ tstep }, { quiet: true });
      slid();
    },
  });
  const slid = later(() => {
    query.first = 0;
    keep();
    if (draw) draw();
  }, 60);
  const otherSteps = stepBar(
    bar,
    "step beside it",
    {
      get: () => state.tother,
      set: (tother) => {
        go({ tother }, { quiet: true });
        slid();
      },
    },
    "other step",
  );
  const first = choice(bar, "run", [], "", (ta) => {
    go({ ta, tb: state.tb === ta ? "" : state.tb }, { quiet: true });
    shape = "";
    refresh();
  });
  const second = choice(bar, "beside", [], "", (tb) => {
    reset();
    const own = stepsOf(state.ta);
    go({ tb, tother: tb === state.ta ? String(own[own.length - 2]) : "" }, { quiet: true });
    refresh();
  });
  const keys = checks(
      bar,
      "rows by ▾",
      () => columns,
      () => on(),
      (ton) => {
        go({ ton }, { quiet: true });
        query.first = 0;
        keep();
        if (draw) draw();
      },
    ),
    keysBox = keys.parentElement;
  const differing = field(bar, "also rows that are the same", "checkbox", state.tall, (tall) => {
    go({ tall }, { quiet: true });
    query.first = 0;
    keep();
    if (draw) draw();
  });
  const on = () => (state.ton.length ? state.ton : columns.filter((name) => KEY.test(name)).slice(0, 1));
  const placeOf = (key, at) => placeAt(names.find((one) => one.name === state.table).runs[key] || [], at);
  const place = (key) => placeOf(key, steps.value());
  const otherPlace = () => placeOf(state.tb, (state.ta === state.tb ? otherSteps : steps).value());
  const stepsOf = (key) => axisOf([names.find((one) => one.name === state.table).runs[key]]);
  const label = (key) => (runs.find((one) => one.key === key) || { name: "" }).name;
  const stepNote = element("span", bar, "", "soft");
  const refresh = latest(async (fresh) => {
    if (!state.sel) await choose(fresh);
    const found = await fresh(ask("tables", { runs: chosen().join(",") }));
    names = found.tables;
    runs = found.runs;
    lost.textContent = found.problems.join("; ");
    const there = names.find((one) => one.name === state.table) || names[0];
    for (const one of bar.children) /** @type {HTMLElement} */ (one).hidden = !there;
    if (!there) {
      shape = "";
      draw = null;
      out.replaceChildren(
        element("div", null, runs.length ? "the ticked runs have logged no tables" : none(), "empty"),
      );
      main.dataset.drawn = "empty";
      return;
    }
    const having = runs.filter((one) => there.runs[one.key]);
    const ta = there.runs[state.ta] ? state.ta : having[0].key,
      tb = there.runs[state.tb] && (state.tb !== ta || there.runs[ta].length > 1) ? state.tb : "",
      itself = tb === ta;
    Object.assign(state, { table: there.name, ta, tb });
    fill(
      which,
      names.map((one) => [one.name, one.name]),
      there.name,
    );
    fill(
      first,
      having.map((one) => [one.key, one.name]),
      ta,
    );
    const beside = having.filter((one) => one.key !== ta).map((one) => [one.key, one.name]);
    if (there.runs[ta].length > 1) beside.unshift([ta, "itself at another step"]);
    fill(second, [["", "–"], ...beside], tb);
    second.parentElement.hidden = !beside.length;
    keysBox.hidden = differing.parentElement.hidden = !tb;
    steps.show(axisOf([there.runs[ta], ...(tb ? [there.runs[tb]] : [])]));
    otherSteps.show(itself ? axisOf([there.runs[ta]]) : []);
    for (const part of otherSteps.parts) part.hidden = !itself;
    const now = JSON.stringify([there.name, ta, tb]);
    if (now !== shape) {
      columns = tb
        ? (await fresh(ask("rows", { run: ta, name: there.name, place: -1, most: 1 }))).columns.map((one) => one.name)
        : [];
      shape = now;
      out.replaceChildren();
      if (tb) keys.textContent = "rows by ▾";
      query.drawn = (answer) => {
        stepNote.textContent = (answer.steps || [answer.step])
          .map((step, k) =>
            step === null || (step === steps.value() && !itself) ? "" : `${label(k ? tb : ta)}: ${stepText(step)}`,
          )
          .filter(Boolean)
          .join(", ");
        if (tb) keys.textContent = `rows by ${on().join(", ") || "their number"} ▾`;
        main.dataset.drawn = `${answer.total}`;
      };
      const one = () => ({ run: ta, name: state.table, place: place(ta) });
      const both = () => ({ ...one(), other: tb, other_place: otherPlace(), on: on().join("\n"), all: state.tall });
      const missing = () => (place(ta) < 0 ? ta : tb && otherPlace() < 0 ? tb : "");
      const made = (pick, box) => {
        const gap = element("p", out, "", "soft"),
          work = box(() => (missing() ? null : pick()));
        return () => {
          const key = missing();
          gap.textContent = key ? `${label(key)} has logged none until then` : "";
          return work();
        };
      };
      draw = tb
        ? made(both, (which_) =>
            pairBox(out, which_, query, keep, () =>
              [ta, tb].map((key, k) => ({
                name: itself ? `step ${(k ? otherSteps : steps).value()}` : label(key),
                colour: colour(style(key)),
              })),
            ),
          )
        : made(one, (which_) => tableBox(out, which_, query, keep));
    }
    await draw();
  }, drawing);
  return { refresh, watched: () => [...new Set([state.ta, state.tb].filter(Boolean))], changed: refresh };
}
