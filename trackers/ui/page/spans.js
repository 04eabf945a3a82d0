// Spans of a run: one trace at a time, each span as long as it took.
import { ask, latest } from "./asking.js";
import { date, element } from "./chart.js";
import { whole } from "./items.js";
import { cell, choice, fill } from "./parts.js";

export function spansOf(parent, run) {
  const head = element("h2", parent, "Spans"),
    bar = element("div", parent, null, "bar"),
    box = element("div", parent, null, "scroll half spans"),
    note = element("p", parent, "", "soft");
  let trace = "",
    shape = "";
  const which = choice(bar, "trace", [], "", (value) => {
      trace = value;
      shape = "";
      draw();
    }),
    sums = element("span", bar, "", "soft");
  const took = (seconds) =>
    seconds >= 1
      ? `${seconds.toPrecision(3)} s`
      : seconds >= 0.001
        ? `${(seconds * 1e3).toPrecision(3)} ms`
        : `${(seconds * 1e6).toPrecision(3)} µs`;
  for (const one of [head, bar, box, note]) one.hidden = true;
  const draw = latest(async (fresh) => {
    const found = await fresh(ask("spans", { run, trace }));
    for (const one of [head, bar, box, note]) one.hidden = !found.total;
    const next = JSON.stringify([found.total, found.trace, found.rows.length]);
    if (!found.total || next === shape) return;
    shape = next;
    fill(
      which,
      [
        ["", "the newest"],
        ...found.traces
          .slice()
          .reverse()
          .map((one) => [one.id, `${one.failed ? "✗ " : ""}${one.name}, ${took(one.seconds)}, ${date(one.time)}`]),
      ],
      trace,
    );
    sums.textContent = `${whole(found.total)} ${found.total === 1 ? "trace" : "traces"}`;
    note.textContent = found.more
      ? `the first ${found.rows.length} spans; ${whole(found.more)} more: trackers spans`
      : "";
    const table = element("table"),
      body = element("tbody", table),
      length = found.trace.seconds || 1;
    for (const [name, depth, kind, began, seconds, status, error, tokens, inputs, outputs] of found.rows) {
      const row = element("tr", body, null, status === "error" ? "wrong" : ""),
        first = element("td", row, name),
        bars = element("td", row, null, "bars");
      first.style.paddingLeft = `${0.6 + depth * 1.1}rem`;
      element("span", first, ` ${kind}`, "soft");
      const line = element("div", bars);
      line.style.marginLeft = `${Math.min(99, (100 * began) / length)}%`;
      line.style.width = `${Math.max(0.4, Math.min(100, (100 * seconds) / length))}%`;
      element("td", row, seconds || status ? took(seconds) : "", "number");
      cell(row, [error, tokens].filter(Boolean).join(" "));
      for (const value of [inputs, outputs]) cell(row, value);
    }
    box.replaceChildren(table);
  });
  return draw;
}
