// One run.
import { ask, drawing, later, latest } from "./asking.js";
import { date, duration, element } from "./chart.js";
import { editor, may, stopper } from "./deeds.js";
import { shownItem } from "./items.js";
import { MACHINE, panelsOf } from "./panels.js";
import { age, facts, link, main, scrolls } from "./parts.js";
import { choose, newest } from "./selection.js";
import { spansOf } from "./spans.js";
import { TICK_MS, go, state } from "./state.js";
import { tableBox } from "./table_boxes.js";

// Lines that tell of a failure: most of what goes to stderr doesn't.
const WRONG =
  /\b([A-Z]\w*(Error|Exception)|Traceback|ERROR|FATAL|CRITICAL|Segmentation fault|panicked)\b|^\s*(fatal|error|Killed)\b|out of memory/;

export function runView() {
  const top = element("div", main),
    early = element("div", main),
    curves = element("div", main),
    first = element("div", main, null, "pair"),
    mediaPlace = element("div", main),
    spansPlace = element("div", main),
    consolePlace = element("div", main),
    rest = element("div", main);
  const panels = panelsOf(curves, { hidden: new Set(), empty: () => "no metrics yet" });
  let mediaShape = "",
    printed = null,
    spans = null;
  const refresh = latest(async (fresh) => {
    if (!state.run) {
      await choose(fresh);
      if (!newest().length) {
        element("div", top, "no runs yet", "empty");
        return;
      }
      go({ run: newest()[0] }, { quiet: true });
    }
    const key = state.run;
    const [found, log, names] = await fresh(
      Promise.all([ask("run", { run: key }), ask("log", { run: key }), ask("names", { runs: key })]),
    );
    const row = found.row;
    document.title = row.name || row.id;
    const open = top.dataset.run === key && top.querySelector(".edit[open]"); // somebody writes
    top.dataset.run = key;
    top.replaceChildren();
    element("h1", top, row.name || row.id);
    const bar = element("div", top, null, "bar");
    element("span", bar, row.status || "status unknown", row.status);
    element("span", bar, `${row.project}/${row.id}`, "soft");
    if (row.created) element("span", bar, `started ${date(row.created)} (${age(row.created)})`, "soft");
    if (row.created && row.time > row.created)
      element("span", bar, `${row.status === "running" ? "for" : "took"} ${duration(row.time - row.created)}`, "soft");
    if (row.step !== null) element("span", bar, `step ${row.step.toLocaleString("en-US")}`, "soft");
    for (const tag of row.tags) element("span", bar, `#${tag}`, "soft");
    link({ tab: "charts", sel: row.key, zoom: "" }, bar, "charts");
    if (names.groups.some((one) => MACHINE.includes(one.title)))
      link(
        { tab: "charts", sel: row.key, zoom: "", axis: "relative", keys: "^system ^gpu ^cpu" },
        bar,
        "system metrics",
      );
    const notes = Object.fromEntries(found.about).notes || "";
    if (open) bar.append(open);
    else {
      editor(bar, "change ▾", () => [key], { ...row, notes }, refresh);
      if (may() && row.status === "running") stopper(bar, key, refresh);
    }
    if (row.note) element("p", top, row.note, "soft");
    if (notes) element("p", top, notes, "notes");
    panels.take([key], names.groups);
    // Who looks at a run that went wrong looks for its last lines.
    if (["failed", "crashed"].includes(row.status)) early.append(consolePlace);
    else spansPlace.after(consolePlace);
    const shapeNow = JSON.stringify([state.run, found.media_problem, found.media.map((one) => [one.name, one.type])]);
    if (shapeNow !== mediaShape) {
      mediaShape = shapeNow;
      mediaPlace.replaceChildren();
      if (found.media.length || found.media_problem) element("h2", mediaPlace, "Media");
      if (found.media_problem) element("p", mediaPlace, found.media_problem, "soft");
      players = found.media.map((one) => player(mediaPlace, one));
    } else players.forEach((play, k) => play(found.media[k]));
    const boxes = () =>
      [...main.querySelectorAll(".facts .scroll, pre")].filter(
        (one) => ![mediaPlace, spansPlace, consolePlace].some((place) => place.contains(one)),
      );
    if (!spans || spans.run !== state.run) {
      spansPlace.replaceChildren();
      spans = { run: state.run, draw: spansOf(spansPlace, state.run) };
    }
    spans.draw();
    if (!printed || printed.run !== state.run) {
      if (printed) printed.end();
      printed = consoleOf(consolePlace, state.run);
    }
    printed.running(row.status === "running");
    const heights = boxes().map((one) => one.scrollTop);
    first.replaceChildren();
    rest.replaceChildren();
    const pair = element("div", rest, null, "pair");
    facts(
      first,
      "Results",
      found.results.map(([name, value]) => [`final/${name}`, value]),
    );
    facts(first, "Last values", Object.entries(row.last));
    facts(first, "Configuration", found.config);
    facts(pair, "About", [...found.about, ...found.environment]);
    if (Object.keys(found.delivery).length) {
      facts(
        pair,
        "Trackers",
        Object.entries(found.delivery).map(([name, one]) => [
          name,
          [
            one.state,
            `${one.delivered.toLocaleString("en-US")} records`,
            one.waiting_bytes ? `${one.waiting_bytes.toLocaleString("en-US")} bytes wait` : "",
            one.rejected ? `${one.rejected} rejected` : "",
            one.error,
            one.url,
          ]
            .filter(Boolean)
            .join(", "),
        ]),
      );
    }
    facts(
      pair,
      "Attempts",
      found.attempts.map(([n, time, host, size, from]) => [
        n ? `attempt ${n}` : "parent's part",
        `${date(time)} on ${host || "?"}, ${size} rank${size === 1 ? "" : "s"}${from === null ? "" : `, from step ${from}`}`,
      ]),
    );
    if (found.artifacts.length) artifacts(pair, found.artifacts);
    if (found.alerts.length)
      facts(
        pair,
        "Alerts",
        found.alerts.map(([time, line]) => [date(time), line]),
      );
    if (log.messages.length)
      facts(
        rest,
        "Messages",
        log.messages
          .slice()
          .reverse()
          .map(([time, , source, said]) => [date(time), source ? `${source}: ${said}` : said]),
      );
    if (log.log) {
      element("h2", rest, "Relay's log");
      scrolls(element("pre", rest, log.log), "Relay's log");
    }
    boxes().forEach((one, k) => {
      one.scrollTop = heights[k] || 0;
    });
    main.dataset.run = row.key;
  }, drawing);
  const bytes = (size) => `${size.toLocaleString("en-US")} bytes`;
  function artifacts(parent, all) {
    const box = facts(
      parent,
      "Artifacts",
      all.map((one) => [one.name, `${one.type}, ${bytes(one.size)}${one.step === null ? "" : `, step ${one.step}`}`]),
    );
    box.querySelectorAll("tr").forEach((row, k) => {
      const { place, files, more } = all[k],
        cell = row.cells[1];
      files.forEach(({ path, size, kept }, item) => {
        const line = element("div", cell);
        if (!kept) {
          element("span", line, `${path} (${bytes(size)}; trackers get has it)`, "soft");
          return;
        }
        const made = element("a", line, path);
        made.href = `artifact?${new URLSearchParams({ run: state.run, place, item })}`;
        made.download = "";
        made.title = `save ${bytes(size)}`;
      });
      if (more > 0) element("div", cell, `and ${more.toLocaleString("en-US")} more`, "soft");
    });
  }
  function consoleOf(parent, run) {
    parent.replaceChildren();
    const head = element("h2", parent, "Console"),
      bar = element("div", parent, null, "bar"),
      out = scrolls(element("pre", parent, null, "console"), "Console");
    const find = element("input", bar),
      stream = element("select", bar),
      label = element("label", bar),
      follow = element("input", label),
      said = element("span", bar, "", "soft");
    find.type = "search";
    find.placeholder = "search";
    find.setAttribute("aria-label", "search the console");
    stream.setAttribute("aria-label", "stream");
    for (const [value, name] of [
      ["", "both streams"],
      ["stdout", "standard output"],
      ["stderr", "standard error"],
    ])
      element("option", stream, name).value = value;
    follow.type = "checkbox";
    follow.checked = true;
    label.append(" follow");
    const turns = { turn: 0 };
    let timer = 0,
      shown = "";
    for (const one of [head, bar, out]) one.hidden = true;
    const draw = latest(async (fresh) => {
      const found = await fresh(ask("console", { run, find: find.value, stream: stream.value }));
      const some = found.lines.length > 0 || find.value || stream.value;
      for (const one of [head, bar, out]) one.hidden = !some;
      const key = JSON.stringify([found.lines.length, found.lines[0], found.lines[found.lines.length - 1]]);
      if (key === shown) return;
      shown = key;
      said.textContent = found.more
        ? `the last ${found.lines.length.toLocaleString("en-US")} lines; trackers logs prints all`
        : found.lines.length
          ? ""
          : "no line has it";
      const at = out.scrollTop;
      out.replaceChildren(
        ...found.lines.map(([time, from, rank, words]) => {
          const line = element(
            "div",
            null,
            found.ranks > 1 ? `[rank ${rank}] ${words}` : words || " ",
            `${from} ${WRONG.test(words) ? "wrong" : ""}`,
          );
          line.title = `${date(time)}, ${from}`;
          return line;
        }),
      );
      out.scrollTop = follow.checked ? out.scrollHeight : at;
    }, turns);
    out.addEventListener("scroll", () => {
      follow.checked = out.scrollTop + out.clientHeight >= out.scrollHeight - 4;
    });
    follow.addEventListener("change", () => {
      if (follow.checked) out.scrollTop = out.scrollHeight;
    });
    find.addEventListener("input", later(draw, 200));
    stream.addEventListener("change", draw);
    draw();
    return {
      run,
      running: (goes) => {
        if (goes && !timer)
          timer = setInterval(() => {
            if (!document.hidden) draw();
          }, TICK_MS * 2);
        if (!goes && timer) {
          clearInterval(timer);
          timer = 0;
          draw();
        }
      },
      end: () => {
        turns.turn += 1;
        clearInterval(timer);
      },
    };
  }
  let players = [];
  function player(parent, one) {
    const box = element("div", parent, null, "player"),
      bar = element("div", box, null, "bar"),
      run = state.run;
    element("strong", bar, one.name);
    element("span", bar, one.type, "soft");
    const slide = element("input", bar),
      where = element("span", bar, "", "soft"),
      out = element("div", box, null, "media");
    slide.type = "range";
    slide.min = "0";
    slide.setAttribute("aria-label", `step of ${one.name}`);
    let steps = [],
      place = -1,
      follow = true;
    const query = { where: "", sort: "", descending: false, first: 0, most: 25 };
    const rows =
      one.type === "table"
        ? tableBox(
            out,
            () => ({ run, name: one.name, place }),
            query,
            () => {},
          )
        : null;
    if (rows) {
      out.className = "";
      query.drawn = (found) => {
        where.textContent =
          found.step === null ? `${place + 1} of ${steps.length}` : `step ${found.step.toLocaleString("en-US")}`;
      };
      link({ tab: "tables", sel: run, table: one.name, ta: run, tb: "", tstep: "" }, bar, "beside another run");
    }
    const draw =
      rows ||
      latest(async (fresh) => {
        const found = await fresh(ask("items", { run, name: one.name, type: one.type, place }));
        where.textContent =
          found.step === null ? `${place + 1} of ${steps.length}` : `step ${found.step.toLocaleString("en-US")}`;
        out.replaceChildren(...found.items.map((item, number) => shownItem(run, one, place, number, item)));
      });
    const update = latest(async (fresh, known) => {
      if (steps.length === known.count) return;
      steps = (await fresh(ask("media", { run, name: one.name, type: one.type }))).steps;
      slide.max = String(steps.length - 1);
      slide.hidden = steps.length < 2;
      if (follow) {
        place = steps.length - 1;
        slide.value = String(place);
        await draw();
      }
    });
    slide.addEventListener("input", () => {
      place = Number(slide.value);
      follow = place === steps.length - 1;
      draw();
    });
    update(one);
    return update;
  }
  return {
    refresh,
    watched: () => (state.run ? [state.run] : []),
    changed: refresh,
    redraw: panels.drawAll,
    end: () => {
      panels.end();
      document.title = "trackers";
      if (printed) printed.end();
    },
  };
}
