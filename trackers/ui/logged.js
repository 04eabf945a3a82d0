"use strict";
// Views of what runs log beside numbers: tables with a search, two side by side; images, sounds and videos by step.
const logged = ({main, element, ask, guarded, latest, drawing, later, search, choice, fill, checks, field, cell, text, link, go, state, chosen, choose, style, colour, look}) => {
  const MEDIA_NAMES = 12, MEDIA_RUNS = 8, SIZES = {min: 64, max: 768, usual: 160}, ROWS = ["25", "50", "100", "250", "500"];
  const KEY = /^(id|idx|index|key|uid|uuid|(example|sample|question|prompt)[ _]?id)$/i;
  const SIGNS = {changed: "≠", added: "+", removed: "−", same: ""};
  const whole = value => value.toLocaleString("en-US");
  const at = step => step === null ? "" : `step ${whole(step)}`;

  // ---- one picture, large
  function enlarge(address, caption, save) {
    const box = element("dialog", document.body, null, "large"), close = element("button", box, "close"), shown = element("img", box);
    shown.src = address; shown.alt = caption || "";
    shown.addEventListener("load", () => {
      const fits = Math.min(innerWidth * .9 / shown.naturalWidth, innerHeight * .75 / shown.naturalHeight);
      if (fits > 1) shown.classList.add("pixels");
      shown.style.width = `${Math.max(1, shown.naturalWidth * Math.min(fits, 16))}px`;
    });
    const line = element("div", box, null, "bar");
    element("span", line, [caption, save].filter(Boolean).join(" · "), "soft");
    close.type = "button";
    close.addEventListener("click", () => box.close());
    box.addEventListener("click", event => { if (event.target === box) box.close(); });
    box.addEventListener("close", () => box.remove());
    box.showModal();
  }
  function played(parent, kind, format, address, caption, label) {  // an image, a sound or a video
    const made = element(kind === "audio" ? "audio" : kind === "video" && !["gif", "npy"].includes(format) ? "video" : "img", parent);
    if (made instanceof HTMLMediaElement) { made.controls = true; made.preload = "metadata"; made.setAttribute("aria-label", caption || label); }
    else {
      made.alt = caption || label;
      made.loading = "lazy";
      made.addEventListener("load", () => made.classList.toggle("large", made.naturalWidth > 400));
      made.tabIndex = 0;
      made.title = "enlarge";
      const large = () => enlarge(address, caption, label);
      made.addEventListener("click", large);
      made.addEventListener("keydown", event => { if (event.key === "Enter") large(); });
    }
    made.addEventListener("error", async () => {
      const answer = await fetch(address).catch(() => null), why = answer && !answer.ok && await answer.json().catch(() => null);
      made.replaceWith(element("p", null, why ? why.error : "it can't be shown", "soft"));
    });
    made.src = address;
    return made;
  }
  function shownItem(run, one, place, number, item) {
    const box = element("div"), address = `media?${new URLSearchParams({run, name: one.name, type: one.type, place, item: number})}`;
    if (item.text !== undefined) element("pre", box, item.text);
    else if (item.problem) element("p", box, item.problem, "soft");
    else if (item.counts) {
      const counts = item.counts.map(charting.value), edges = item.edges.map(charting.value);
      box.className = "distribution";
      const chart = new charting.Chart({title: "", x_label: "", lines: [], bars: [], distributions: [{label: one.name, style: 0, counts, edges}], blank: false, empty: ""}, box, {...look(), hidden: new Set()});
      requestAnimationFrame(() => chart.draw());
    } else if (item.shown) played(box, one.type, item.format, address, item.caption, `${one.name}, item ${number + 1}`);
    else if (item.file) { const save = element("a", box, `save the file (${item.format})`); save.href = address; save.download = ""; }
    else element("p", box, "it isn't on this disk", "soft");
    if (item.caption) element("div", box, item.caption, "soft");
    return box;
  }

  // ---- a table
  const said = (box, action) => latest(async fresh => {  // why a table can't be shown stands in its place
    try { await action(fresh); } catch (error) {
      if (!(error instanceof Error) || error instanceof TypeError) throw error;  // late, or not connected
      box.replaceChildren(element("p", null, error.message, "problem"));
    }
  });
  function cellOf(row, value, address, label) {
    if (!value || typeof value !== "object") return cell(row, value);
    const made = element("td", row, null, "mediacell");
    if (value.shown) played(made, value.media, value.format, address, value.caption, label);
    else if (value.format) { const save = element("a", made, `save (${value.media || value.format})`); save.href = address; save.download = ""; }
    else element("span", made, `(${value.media})`, "soft");
    if (value.caption) element("div", made, value.caption, "soft");
    return made;
  }
  function heading(head, label, name, query, changed, kind = "") {
    const sign = query.sort === name ? query.descending ? " ▼" : " ▲" : "", made = element("th", head, label + sign, `sort ${kind}`);
    made.title = `${name}: sort`;
    made.tabIndex = 0;
    made.setAttribute("aria-sort", sign ? query.descending ? "descending" : "ascending" : "none");
    const sort = () => {
      if (query.sort !== name) changed({sort: name, descending: false, first: 0});
      else if (!query.descending) changed({descending: true, first: 0});
      else changed({sort: "", descending: false, first: 0});
    };
    made.addEventListener("click", sort);
    made.addEventListener("keydown", event => { if (event.key === "Enter") sort(); });
    return made;
  }
  const given = query => ({where: query.where, sort: query.sort, descending: query.descending ? "1" : "", first: query.first, most: query.most});
  function pager(parent, query, changed) {
    const bar = element("span", parent, null, "pager"), back = element("button", bar, "‹"), where = element("span", bar, "", "soft"), next = element("button", bar, "›");
    back.type = next.type = "button";
    back.setAttribute("aria-label", "earlier rows"); next.setAttribute("aria-label", "later rows");
    let total = 0, step = query.most;
    back.addEventListener("click", () => changed({first: Math.max(0, query.first - step)}));
    next.addEventListener("click", () => changed({first: query.first + step}));
    choice(bar, "rows", ROWS, String(query.most), value => changed({most: Number(value), first: 0}));
    return (rows, all, size) => {
      total = all;
      step = rows < query.most && query.first + rows < total ? Math.max(1, rows) : query.most;
      where.textContent = `${rows ? `${whole(query.first + 1)} to ${whole(query.first + rows)} of ` : ""}${whole(total)}${size === undefined || size === total ? "" : ` (of ${whole(size)})`} rows`;
      back.disabled = query.first <= 0;
      next.disabled = query.first + rows >= total;
    };
  }
  function wraps(bar, box, query, changed) {
    return field(bar, "whole texts", "checkbox", query.wrap, value => { box.classList.toggle("wrapped", Boolean(value)); changed({wrap: value}, false); });
  }
  // A table with its search and pages. which: run, name and place, or null. kept: the search, changed by change(what).
  function tableBox(parent, which, query, change) {
    const bar = element("div", parent, null, "bar"), box = element("div", parent, null, "scroll tall logged");
    box.classList.toggle("wrapped", Boolean(query.wrap));
    const changed = (what, again = true) => { Object.assign(query, what); change(what); if (again) draw(); };
    search(bar, "search: words, loss>0.5, answer:cat, -cat", query.where, where => changed({where, first: 0}));
    wraps(bar, box, query, changed);
    const save = element("a", bar, "csv"), pages = pager(bar, query, changed), note = element("p", parent, "", "soft");
    save.download = ""; save.title = "save all rows that fit";
    const draw = said(box, async fresh => {
      const one = which();
      if (!one) { box.replaceChildren(); return; }
      const found = await fresh(ask("rows", {...one, ...given(query)}));
      if (!found.rows.length && query.first) { changed({first: 0}); return; }
      save.href = `table?${new URLSearchParams({...one, ...given(query)})}`;
      const table = element("table"), head = element("tr", element("thead", table)), body = element("tbody", table);
      element("th", head, "", "rownumber");
      found.columns.forEach(column => heading(head, column.name, column.name, query, changed, ["number", "integer"].includes(column.kind) ? "number" : ""));
      found.rows.forEach((values, k) => {
        const row = element("tr", body), place = found.places[k];
        element("td", row, whole(place), "rownumber soft");
        values.forEach((value, column) => cellOf(row, value, `cell?${new URLSearchParams({...one, row: place, column})}`, `${found.columns[column].name}, row ${place}`));
      });
      box.replaceChildren(table);
      pages(found.rows.length, found.total, found.size);
      note.textContent = found.more ? `the first ${found.columns.length} columns; ${found.more} more: trackers tables prints them` : "";
      if (query.drawn) query.drawn(found);
    });
    return draw;
  }
  // Two tables, a row for each pair.
  function pairBox(parent, which, query, change, names) {
    const bar = element("div", parent, null, "bar"), sums = element("div", parent), box = element("div", parent, null, "scroll tall logged");
    box.classList.toggle("wrapped", Boolean(query.wrap));
    const changed = (what, again = true) => { Object.assign(query, what); change(what); if (again) draw(); };
    search(bar, 'search: words, "loss change">0.5, state:added', query.where, where => changed({where, first: 0}));
    wraps(bar, box, query, changed);
    const pages = pager(bar, query, changed), note = element("p", parent, "", "soft");
    const draw = said(box, async fresh => {
      const one = which();
      if (!one) { box.replaceChildren(); sums.replaceChildren(); return; }
      const found = await fresh(ask("differences", {...one, ...given(query)}));
      if (!found.rows.length && query.first) { changed({first: 0}); return; }
      summary(sums, found);
      const table = element("table"), head = element("thead", table), top = element("tr", head), below = element("tr", head, null, "second"), body = element("tbody", table);
      const state = heading(top, "", found.names[0], query, changed);
      state.rowSpan = 2;
      for (const column of found.columns) {
        if (column.key) { heading(top, column.name, found.names[column.cells[0]], query, changed).rowSpan = 2; continue; }
        if (!column.changed) { heading(top, column.name, found.names[column.cells[0]], query, changed, column.cells.length === 3 ? "number begins" : "begins").rowSpan = 2; continue; }
        const over = element("th", top, `${column.name}${column.changed ? ` (${whole(column.changed)})` : ""}`, "over");
        over.colSpan = column.cells.length;
        column.cells.forEach((place, k) => {
          const made = heading(below, k < 2 ? names()[k].name : "change", found.names[place], query, changed, column.cells.length === 3 ? "number" : "");
          if (k < 2) made.style.borderBottom = `3px solid ${names()[k].colour}`;
          if (!k) made.classList.add("begins");
        });
      }
      found.rows.forEach((values, k) => {
        const row = element("tr", body, null, values[0]), places = found.places[k];
        element("td", row, SIGNS[values[0]], "sign").title = values[0];
        for (const column of found.columns) {
          if (column.key) { cell(row, values[column.cells[0]]); continue; }
          const unlike = values[0] === "changed" && JSON.stringify(values[column.cells[0]]) !== JSON.stringify(values[column.cells[1]]);
          const pictures = values[0] === "changed" && values[column.cells[0]] && values[column.cells[0]].media;
          const sides = column.changed ? column.cells : [column.cells[values[0] === "added" ? 1 : 0]];  // what nowhere differs is there once
          sides.forEach(place => {
            const side = column.cells.indexOf(place);
            const run = side ? one.other : one.run, number = side ? one.other_place : one.place;
            const address = `cell?${new URLSearchParams({run, name: one.name, place: number, row: places[side], column: column.inside[side]})}`;
            const made = side < 2 ? cellOf(row, values[place], address, `${column.name}, row ${places[side]}`) : cell(row, values[place]);
            if (place === sides[0]) made.classList.add("begins");
            if (side < 2 && unlike && !pictures) made.classList.add("unlike");
            if (side === 2 && values[place] > 0) made.textContent = `+${made.textContent}`;
          });
        }
      });
      box.replaceChildren(table);
      pages(found.rows.length, found.total);
      note.textContent = [found.repeated, ...found.only.map((only, k) => only.length ? `only in ${names()[k].name}: ${only.join(", ")}` : "")].filter(Boolean).join("; ");
      if (query.drawn) query.drawn(found);
    });
    return draw;
  }
  function summary(parent, found) {
    parent.replaceChildren();
    const line = element("p", parent, null, "counts");
    for (const [name, count] of Object.entries(found.counts)) element("span", line, `${SIGNS[name]} ${whole(count)} ${name === "same" ? "the same" : name}`.trim(), name);
    const changed = found.summary.filter(one => one.changed && one.first !== null && one.second !== null);
    if (changed.length) element("span", line, changed.slice(0, 4).map(one => `mean ${one.name} ${text(one.first)} → ${text(one.second)}`).join(", "), "soft");
  }

  // ---- steps
  const axisOf = lists => {  // all steps; where some have none, the number of each table
    const every = lists.flat();
    return every.includes(null) ? [...Array(Math.max(0, ...lists.map(one => one.length))).keys()] : [...new Set(every)].sort((a, b) => a - b);
  };
  const placeAt = (steps, value) => {  // the last one logged until then
    if (value === undefined) return steps.length - 1;
    if (steps.includes(null)) return Math.min(value, steps.length - 1);
    let found = -1;
    steps.forEach((step, place) => { if (step <= value && (found < 0 || steps[found] <= step)) found = place; });
    return found;
  };
  function stepBar(bar, label, kept) {  // a slider; kept: reads and writes the state's value, "" for the last
    const box = element("label", bar, "step"), slide = element("input", box), where = element("span", bar, "", "soft step");
    slide.type = "range"; slide.min = 0; slide.setAttribute("aria-label", label);
    let axis = [];
    const value = () => kept.get() === "" ? axis[axis.length - 1] : Number(kept.get());
    const tell = () => { where.textContent = axis.length ? `${whole(value())}${kept.get() === "" ? " (last)" : ""}` : ""; };
    slide.addEventListener("input", () => {
      const place = Number(slide.value);
      kept.set(place === axis.length - 1 ? "" : String(axis[place]));
      tell();
    });
    return {
      value,
      show: found => {
        axis = found;
        slide.max = Math.max(0, axis.length - 1);
        slide.disabled = axis.length < 2;
        const place = axis.findLastIndex(step => step <= value());
        slide.value = place < 0 ? 0 : place;
        tell();
      },
    };
  }

  // ---- the view of tables
  function tablesView() {
    const bar = element("div", main, null, "bar"), out = element("div", main), lost = element("p", main, "", "soft");
    let names = [], runs = [], columns = [], draw = null, shape = "";
    const query = {where: state.tq, sort: state.tsort, descending: Boolean(state.tdesc), first: Number(state.tfirst) || 0, most: Number(state.trows) || 50, wrap: state.twrap};
    const keep = () => go({tq: query.where, tsort: query.sort, tdesc: query.descending ? "1" : "", tfirst: query.first ? String(query.first) : "", trows: query.most === 50 ? "" : String(query.most), twrap: query.wrap || ""}, {quiet: true});
    const reset = () => { Object.assign(query, {sort: "", descending: false, first: 0, where: ""}); keep(); shape = ""; };
    const which = choice(bar, "table", [], "", table => { reset(); go({table, tstep: "", ton: []}, {quiet: true}); refresh(); });
    const steps = stepBar(bar, "step of the table", {get: () => state.tstep, set: tstep => { go({tstep}, {quiet: true}); slid(); }});
    const slid = later(() => { query.first = 0; keep(); if (draw) draw(); }, 60);
    const first = choice(bar, "run", [], "", ta => { go({ta, tb: state.tb === ta ? "" : state.tb}, {quiet: true}); shape = ""; refresh(); });
    const second = choice(bar, "beside", [], "", tb => { reset(); go({tb}, {quiet: true}); refresh(); });
    const keys = checks(bar, "rows by ▾", () => columns, () => on(), ton => { go({ton}, {quiet: true}); query.first = 0; keep(); if (draw) draw(); }), keysBox = keys.parentNode;
    const differing = field(bar, "also rows that are the same", "checkbox", state.tall, tall => { go({tall}, {quiet: true}); query.first = 0; keep(); if (draw) draw(); });
    const on = () => state.ton.length ? state.ton : columns.filter(name => KEY.test(name)).slice(0, 1);
    const place = key => placeAt(names.find(one => one.name === state.table).runs[key] || [], steps.value());
    const label = key => (runs.find(one => one.key === key) || {name: ""}).name;
    const stepNote = element("span", bar, "", "soft");
    const refresh = latest(async fresh => {
      if (!state.sel) await choose(fresh);
      const found = await fresh(ask("tables", {runs: chosen().join(",")}));
      names = found.tables; runs = found.runs;
      lost.textContent = found.problems.join("; ");
      const there = names.find(one => one.name === state.table) || names[0];
      for (const one of bar.children) one.hidden = !there;
      if (!there) {
        shape = ""; draw = null;
        out.replaceChildren(element("div", null, runs.length ? "the ticked runs have logged no tables" : "no run is chosen: tick some in Runs", "empty"));
        main.dataset.drawn = "empty";
        return;
      }
      const having = runs.filter(one => there.runs[one.key]);
      const ta = there.runs[state.ta] ? state.ta : having[0].key, tb = there.runs[state.tb] && state.tb !== ta ? state.tb : "";
      Object.assign(state, {table: there.name, ta, tb});
      fill(which, names.map(one => [one.name, one.name]), there.name);
      fill(first, having.map(one => [one.key, one.name]), ta);
      fill(second, [["", "–"], ...having.filter(one => one.key !== ta).map(one => [one.key, one.name])], tb);
      second.parentNode.hidden = having.length < 2;
      keysBox.hidden = differing.parentNode.hidden = !tb;
      steps.show(axisOf([there.runs[ta], ...tb ? [there.runs[tb]] : []]));
      const now = JSON.stringify([there.name, ta, tb]);
      if (now !== shape) {
        columns = tb ? (await fresh(ask("rows", {run: ta, name: there.name, place: -1, most: 1}))).columns.map(one => one.name) : [];
        shape = now;
        out.replaceChildren();
        if (tb) keys.textContent = "rows by ▾";
        query.drawn = answer => {
          stepNote.textContent = (answer.steps || [answer.step]).map((step, k) => step === null || step === steps.value() ? "" : `${label(k ? tb : ta)}: ${at(step)}`).filter(Boolean).join(", ");
          if (tb) keys.textContent = `rows by ${on().join(", ") || "their number"} ▾`;
          main.dataset.drawn = `${answer.total}`;
        };
        const one = () => ({run: ta, name: state.table, place: place(ta)});
        const both = () => ({...one(), other: tb, other_place: place(tb), on: on().join("\n"), all: state.tall});
        const missing = () => [ta, tb].filter(Boolean).find(key => place(key) < 0);
        const made = (pick, box) => {
          const gap = element("p", out, "", "soft"), work = box(() => missing() ? null : pick());
          return () => { const key = missing(); gap.textContent = key ? `${label(key)} has logged none until then` : ""; return work(); };
        };
        draw = tb ? made(both, which_ => pairBox(out, which_, query, keep, () => [ta, tb].map(key => ({name: label(key), colour: colour(style(key))}))))
          : made(one, which_ => tableBox(out, which_, query, keep));
      }
      await draw();
    }, drawing);
    return {refresh, watched: () => [...new Set([state.ta, state.tb].filter(Boolean))], changed: refresh};
  }

  // ---- the view of media
  function mediaView() {
    const bar = element("div", main, null, "bar"), out = element("div", main), more = element("p", main, "", "soft"), lost = element("p", main, "", "soft");
    let names = [], runs = [], sections = new Map();
    search(bar, "name", state.mq, mq => { go({mq}, {quiet: true}); sections.clear(); out.replaceChildren(); refresh(); });
    const steps = stepBar(bar, "step of all media", {get: () => state.mstep, set: mstep => { go({mstep}, {quiet: true}); slid(); }});
    const slid = later(() => guarded(drawAll)(), 60);
    const size = field(bar, "size", "range", "", msize => { go({msize: Number(msize) === SIZES.usual ? "" : msize}, {quiet: true}); scale(); });
    size.min = SIZES.min; size.max = SIZES.max; size.step = 16;
    size.value = state.msize || SIZES.usual;
    size.setAttribute("aria-label", "size of all images");
    const scale = () => out.style.setProperty("--size", `${Number(size.value) || SIZES.usual}px`);
    scale();
    const drawAll = async () => { await Promise.all([...sections.values()].map(one => one())); main.dataset.drawn = String(steps.value() ?? ""); };
    const refresh = latest(async fresh => {
      if (!state.sel) await choose(fresh);
      const found = await fresh(ask("gallery", {runs: chosen().join(",")})), word = state.mq.toLowerCase();
      runs = found.runs;
      lost.textContent = found.problems.join("; ");
      names = found.media.filter(one => one.name.toLowerCase().includes(word));
      if (!names.length) {
        sections.clear();
        out.replaceChildren(element("div", null, !runs.length ? "no run is chosen: tick some in Runs" : found.media.length ? "no name fits" : "the ticked runs have logged no media", "empty"));
        main.dataset.drawn = "empty";
        return;
      }
      out.querySelectorAll(".empty").forEach(one => one.remove());
      const shown = names.slice(0, MEDIA_NAMES);
      more.textContent = names.length > MEDIA_NAMES ? `the first ${MEDIA_NAMES} of ${whole(names.length)} names: search` : "";
      steps.show(axisOf(shown.flatMap(one => Object.values(one.runs))));
      for (const one of shown) {
        const id = JSON.stringify([one.name, one.type, Object.keys(one.runs).slice(0, MEDIA_RUNS)]);
        if (!sections.has(id)) sections.set(id, section(one));
        sections.get(id).take(one);
      }
      await drawAll();
    }, drawing);
    function section(first) {
      const box = element("section", out, null, "gallery"), head = element("h2", box, first.name), grid = element("div", box, null, "columns");
      element("span", head, ` ${first.type}`, "soft");
      let one = first, drawn = {};
      const having = runs.filter(run => first.runs[run.key]), parts = having.slice(0, MEDIA_RUNS).map(run => {
        const part = element("div", grid, null, "column"), title = element("div", part, null, "title");
        const name = link({tab: "run", run: run.key}, title, run.name), where = element("span", title, "", "soft"), items = element("div", part, null, "media");
        title.style.borderBottom = `3px solid ${colour(style(run.key))}`;
        name.title = run.name;
        return {key: run.key, where, items};
      });
      if (having.length > MEDIA_RUNS) element("p", box, `the first ${MEDIA_RUNS} of ${having.length} runs`, "soft");
      const draw = async () => {
        await Promise.all(parts.map(async part => {
          const list = one.runs[part.key] || [], place = placeAt(list, steps.value());
          const mark = `${place} ${list[place]}`;
          if (drawn[part.key] === mark) return;
          drawn[part.key] = mark;
          if (place < 0) { part.where.textContent = "not yet"; part.items.replaceChildren(); return; }
          const found = await ask("items", {run: part.key, name: one.name, type: one.type, place});
          if (drawn[part.key] !== mark) return;
          part.where.textContent = at(found.step);
          part.items.replaceChildren(...found.items.map((item, number) => shownItem(part.key, one, place, number, item)));
        }));
      };
      draw.take = now => { one = now; };
      return draw;
    }
    return {refresh, watched: () => chosen().filter(one => one !== "none").slice(0, MEDIA_RUNS), changed: refresh};
  }
  // ---- spans of a run: one trace at a time, each span as long as it took
  function spansOf(parent, run) {
    const head = element("h2", parent, "Spans"), bar = element("div", parent, null, "bar"), box = element("div", parent, null, "scroll half spans"), note = element("p", parent, "", "soft");
    let trace = "", shape = "";
    const which = choice(bar, "trace", [], "", value => { trace = value; shape = ""; draw(); }), sums = element("span", bar, "", "soft");
    const took = seconds => seconds >= 1 ? `${seconds.toPrecision(3)} s` : seconds >= .001 ? `${(seconds * 1e3).toPrecision(3)} ms` : `${(seconds * 1e6).toPrecision(3)} µs`;
    for (const one of [head, bar, box, note]) one.hidden = true;
    const draw = latest(async fresh => {
      const found = await fresh(ask("spans", {run, trace}));
      for (const one of [head, bar, box, note]) one.hidden = !found.total;
      const next = JSON.stringify([found.total, found.trace, found.rows.length]);
      if (!found.total || next === shape) return;
      shape = next;
      fill(which, [["", "the newest"], ...found.traces.slice().reverse().map(one => [one.id, `${one.failed ? "✗ " : ""}${one.name}, ${took(one.seconds)}, ${new Date(one.time * 1000).toLocaleTimeString()}`])], trace);
      sums.textContent = `${whole(found.total)} ${found.total === 1 ? "trace" : "traces"}`;
      note.textContent = found.more ? `the first ${found.rows.length} spans; ${whole(found.more)} more: trackers spans` : "";
      const table = element("table"), body = element("tbody", table), length = found.trace.seconds || 1;
      for (const [name, depth, kind, began, seconds, status, error, tokens, inputs, outputs] of found.rows) {
        const row = element("tr", body, null, status === "error" ? "wrong" : ""), first = element("td", row, name), bars = element("td", row, null, "bars");
        first.style.paddingLeft = `${.6 + depth * 1.1}rem`;
        element("span", first, ` ${kind}`, "soft");
        const line = element("div", bars);
        line.style.marginLeft = `${Math.min(99, 100 * began / length)}%`;
        line.style.width = `${Math.max(.4, Math.min(100, 100 * seconds / length))}%`;
        element("td", row, seconds || status ? took(seconds) : "", "number");
        cell(row, [error, tokens].filter(Boolean).join(" "));
        for (const value of [inputs, outputs]) cell(row, value);
      }
      box.replaceChildren(table);
    });
    return draw;
  }
  return {tablesView, mediaView, tableBox, shownItem, spansOf};
};
