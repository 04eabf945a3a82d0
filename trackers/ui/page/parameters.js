// Settings against results: which matter, a scatter plot, and parallel coordinates.
import { ask, drawing, later, latest } from "./asking.js";
import { element, shown, ticks, value } from "./chart.js";
import { called, cell, checks, choice, column, counted, fill, main, scrolls, search, text } from "./parts.js";
import { go, state } from "./state.js";

const EDGE = 8; // pixels between a plot's frame and its outermost dots
const SHARED = "-1 to 1; 0 to 1 of words, and of numbers where the result rises and falls again";

export function paramsView() {
  const bar = element("div", main, null, "bar");
  let columns = [];
  const find = search(bar, "which runs: as in Runs", state.q, (q) => {
    go({ q }, { quiet: true });
    refresh();
  });
  const unread = [["", "reading …"]];
  const x = choice(bar, "x", unread, "", (value) => {
    go({ x: value }, { quiet: true });
    refresh();
  });
  const y = choice(bar, "y and colour", unread, "", (value) => {
    go({ y: value }, { quiet: true });
    refresh();
  });
  x.disabled = y.disabled = true; // until it is known what they choose from
  checks(
    bar,
    "axes ▾",
    () => columns,
    () => axes(),
    (value) => {
      go({ axes: value }, { quiet: true });
      refresh();
    },
  );
  const count = element("span", bar, "", "soft"),
    few = element("div", main, "", "empty"),
    grid = element("div", main, null, "wide");
  few.hidden = true;
  const ranked = element("div", main);
  const cloud = plot(grid, "One column against another"),
    points = [],
    lines = plot(grid, "Parallel coordinates");
  function plot(parent, title) {
    const part = element("div", parent);
    element("h2", part, title);
    const box = element("div", part, null, "plot"),
      canvas = element("canvas", box),
      note = element("div", box, null, "note");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", title);
    return { box, canvas, note, head: part.firstChild };
  }
  let grown = { key: "", shares: {} };
  let important = []; // settings that differ, the most important first
  let brushed = false; // the pointer has just kept a part of an axis
  const axes = () =>
    state.axes.length
      ? state.axes
      : [...important.slice(0, 5).map((one) => one.name), state.y || guess()].filter(Boolean);
  const guess = () =>
    columns.find((one) => /^result\..*(loss|acc)/.test(one)) ||
    columns.find((one) => one.startsWith("result.")) ||
    columns.find((one) => /^last\..*loss/.test(one)) ||
    columns.find((one) => one.startsWith("last.")) ||
    "step";
  function start(part) {
    const ratio = window.devicePixelRatio || 1,
      width = part.canvas.clientWidth,
      height = part.canvas.clientHeight;
    part.canvas.width = width * ratio;
    part.canvas.height = height * ratio;
    const c = part.canvas.getContext("2d"),
      style = getComputedStyle(document.body);
    c.scale(ratio, ratio);
    c.font = "11px system-ui, sans-serif";
    light = Number(style.color.match(/\d+/)[0]) > 128 ? 62 : 40;
    return {
      c,
      width,
      height,
      ink: style.color,
      back: style.backgroundColor,
      pale: style.getPropertyValue("--line"),
    };
  }
  function scaleOf(values) {
    const plain = values.map(value).filter((v) => typeof v === "number" && isFinite(v)),
      words = [
        ...new Set(
          values
            .filter((v) => typeof v === "string" && !["NaN", "Infinity", "-Infinity"].includes(v))
            .concat(values.filter((v) => typeof v === "boolean").map(String)),
        ),
      ].sort();
    if (words.length)
      return {
        place: (v) =>
          v === null || v === undefined ? NaN : words.length > 1 ? words.indexOf(String(v)) / (words.length - 1) : 0.5,
        marks: words.slice(0, 20).map((w, k) => [words.length > 1 ? k / (words.length - 1) : 0.5, w]),
      };
    const [low, high] = ends(plain),
      log = low > 0 && high / low > 20;
    const occur = [...new Set(plain)];
    const to = (v) => (log ? Math.log10(v) : v),
      [a, b] = [to(low), to(high)];
    const marks = !plain.length
      ? []
      : a === b
        ? [[0.5, shown(low)]]
        : occur.length <= 8 && high === Math.max(...plain) && low === Math.min(...plain)
          ? occur.map((v) => [(to(v) - a) / (b - a), shown(v)])
          : ticks(a, b, log, 6, null, !log && plain.every(Number.isInteger)).map((t) => [
              (t - a) / (b - a),
              shown(log ? 10 ** t : t),
            ]);
    return {
      place: (v) => {
        const n = v === null || v === undefined || typeof v === "string" ? NaN : to(Number(v));
        return a === b ? (isFinite(n) ? 0.5 : NaN) : Math.min(1, Math.max(0, (n - a) / (b - a)));
      },
      marks,
      back: (share) => (log ? 10 ** (a + share * (b - a)) : a + share * (b - a)),
      span: [low, high],
      beyond: plain.filter((v) => v < low || v > high).length,
    };
  }
  // The ends of an axis: what lies ten times further from most than is usual is drawn at its end.
  function ends(plain) {
    const sorted = [...plain].sort((one, other) => one - other),
      middle = sorted[Math.floor(sorted.length / 2)];
    const far = plain.map((v) => Math.abs(v - middle)).sort((one, other) => one - other);
    const limit = 10 * far[Math.floor(far.length * 0.75)];
    const near = limit > 0 ? sorted.filter((v) => Math.abs(v - middle) <= limit) : sorted;
    return [near[0], near[near.length - 1]];
  }
  let light = 40; // of colours, in percent: more on a dark page
  const shade = (share) =>
    isFinite(share) ? `hsl(${Math.round(250 - 200 * share)} 75% ${Math.round(light + 8 * share)}%)` : "#888";
  function hover(part, near) {
    part.canvas.onpointermove = (event) => {
      const box = part.canvas.getBoundingClientRect(),
        found = near(event.clientX - box.left, event.clientY - box.top);
      part.note.textContent = found ? found.label : "";
      part.note.classList.toggle("left", event.clientX - box.left > box.width / 2);
      part.canvas.style.cursor = found ? "pointer" : "default";
      part.canvas.onclick = found && !brushed ? () => go({ tab: "run", run: found.key }, { step: true }) : null;
    };
    part.canvas.onpointerleave = () => {
      part.note.textContent = "";
    };
  }
  function drawCloud(rows, nameX, nameY) {
    const { c, width, height, ink, pale } = start(cloud),
      left = 70,
      right = width - 40,
      top = 10,
      bottom = height - 40;
    // Dots at the ends stand apart from the axes' labels.
    const across = (share) => left + EDGE + share * (right - left - 2 * EDGE);
    const up = (share) => bottom - EDGE - share * (bottom - top - 2 * EDGE);
    const sx = scaleOf(rows.map((r) => r[2])),
      sy = scaleOf(rows.map((r) => r[3]));
    c.strokeStyle = pale;
    c.fillStyle = ink;
    c.textAlign = "center";
    c.textBaseline = "top";
    for (const [share, label] of sx.marks) {
      const px = across(share);
      c.beginPath();
      c.moveTo(px, top);
      c.lineTo(px, bottom);
      c.stroke();
      c.fillText(label.slice(0, 18), px, bottom + 4);
    }
    c.textAlign = "right";
    c.textBaseline = "middle";
    for (const [share, label] of sy.marks) {
      const py = up(share);
      c.beginPath();
      c.moveTo(left, py);
      c.lineTo(right, py);
      c.stroke();
      c.fillText(label.slice(0, 12), left - 5, py);
    }
    c.textAlign = "center";
    c.textBaseline = "bottom";
    c.fillText(column(nameX), (left + right) / 2, height - 4);
    if (sy.beyond) count.textContent += `, ${sy.beyond} beyond the axis of ${column(nameY)}: drawn at its end`;
    points.length = 0;
    for (const row of rows) {
      const share = sy.place(row[3]),
        [px, py] = [across(sx.place(row[2])), up(share)];
      if (!isFinite(px) || !isFinite(py)) continue;
      c.fillStyle = shade(share);
      c.globalAlpha = rows.length > 500 ? 0.5 : 0.85;
      c.beginPath();
      c.arc(px, py, rows.length > 500 ? 3 : 4.5, 0, 7);
      c.fill();
      points.push([px, py, row]);
    }
    c.globalAlpha = 1;
    hover(cloud, (px, py) => {
      let best = null,
        least = 144;
      for (const [a, b, row] of points) {
        const d = (a - px) ** 2 + (b - py) ** 2;
        if (d < least) [best, least] = [row, d];
      }
      return (
        best && {
          key: best[0],
          label: `${best[1]}: ${column(nameX)} ${text(best[2])}, ${column(nameY)} ${text(best[3])}`,
        }
      );
    });
  }
  function drawLines(rows, names) {
    const { c, width, height, ink, back } = start(lines),
      top = 34,
      bottom = height - 40,
      left = 60,
      right = width - 60;
    if (!names.length) return;
    const scales = names.map((_, k) => scaleOf(rows.map((row) => row[2 + k])));
    const px = (k) => (names.length > 1 ? left + (k / (names.length - 1)) * (right - left) : (left + right) / 2);
    const paths = [];
    for (const row of rows) {
      const at = scales.map((scale, k) => [px(k), bottom - scale.place(row[2 + k]) * (bottom - top)]);
      c.strokeStyle = shade(scales[names.length - 1].place(row[1 + names.length]));
      c.globalAlpha = rows.length > 200 ? 0.25 : 0.7;
      c.lineWidth = 1.3;
      const there = at.filter(([, b]) => isFinite(b)); // a setting that a run lacks is crossed, dashed
      there.slice(1).forEach((end, k) => {
        c.setLineDash(at.indexOf(end) - at.indexOf(there[k]) > 1 ? [4, 4] : []);
        c.beginPath();
        c.moveTo(there[k][0], there[k][1]);
        c.lineTo(end[0], end[1]);
        c.stroke();
      });
      c.setLineDash([]);
      paths.push([there, row]);
    }
    c.globalAlpha = 1;
    c.lineWidth = 1;
    names.forEach((name, k) => {
      c.strokeStyle = ink;
      c.fillStyle = ink;
      c.beginPath();
      c.moveTo(px(k), top);
      c.lineTo(px(k), bottom);
      c.stroke();
      c.textAlign = k === names.length - 1 ? "left" : "right";
      c.textBaseline = "middle";
      c.strokeStyle = back; // around a label that lies on lines
      c.lineWidth = 3;
      for (const [share, label] of scales[k].marks) {
        const at = /** @type {const} */ ([px(k) + (k === names.length - 1 ? 5 : -5), bottom - share * (bottom - top)]);
        c.strokeText(label.slice(0, 12), ...at);
        c.fillText(label.slice(0, 12), ...at);
      }
      c.lineWidth = 1;
      c.textAlign = k === 0 ? "left" : k === names.length - 1 ? "right" : "center";
      c.textBaseline = "bottom";
      c.fillText(
        column(name),
        k === 0 ? 4 : k === names.length - 1 ? width - 4 : px(k),
        k % 2 && names.length > 3 ? 15 : 29,
        ((right - left) / Math.max(1, names.length - 1)) * 1.6,
      );
    });
    bar_of(c, scales[names.length - 1], left, right, height);
    brush(names, scales, px, top, bottom);
    hover(lines, (mx, my) => {
      let best = null,
        least = 8;
      for (const [at, row] of paths)
        for (let k = 1; k < at.length; k++) {
          const [[a, b], [d, e]] = [at[k - 1], at[k]];
          if (mx < a || mx > d) continue;
          const off = Math.abs(b + ((e - b) * (mx - a)) / (d - a) - my);
          if (off < least) [best, least] = [row, off];
        }
      return (
        best && {
          key: best[0],
          label: `${best[1]}: ${names.map((name, k) => `${column(name)} ${text(best[2 + k])}`).join(", ")}`,
        }
      );
    });
  }
  // What the colours mean.
  function bar_of(c, scale, left, right, height) {
    if (!scale.span) return;
    const steps = 60,
      from = (left + right) / 2 - 90;
    for (let k = 0; k < steps; k++) {
      c.fillStyle = shade(k / (steps - 1));
      c.fillRect(from + k * 3, height - 14, 3.5, 8);
    }
    c.fillStyle = getComputedStyle(document.body).color;
    c.textBaseline = "middle";
    c.textAlign = "right";
    c.fillText(shown(scale.span[0]), from - 5, height - 10);
    c.textAlign = "left";
    c.fillText(shown(scale.span[1]), from + 185, height - 10);
  }
  // Dragging along an axis keeps the runs in between, in all views, by the words of the search; a double click on it keeps all.
  function brush(names, scales, px, top, bottom) {
    let from = null;
    const axisAt = (event) => names.findIndex((_, k) => Math.abs(px(k) - event.offsetX) < 12);
    const share = (event) => Math.min(1, Math.max(0, (bottom - event.offsetY) / (bottom - top)));
    const without = (name) => state.q.split(/\s+/).filter((word) => word && !word.startsWith(name));
    const keep = (words) => {
      go({ q: words.join(" "), sel: "" }, { quiet: true });
      find.value = state.q;
      refresh();
    };
    lines.canvas.onpointerdown = (event) => {
      const k = axisAt(event);
      brushed = false;
      from = k >= 0 && scales[k].back ? { k, at: share(event) } : null;
      if (from) lines.canvas.setPointerCapture(event.pointerId);
    };
    lines.canvas.onpointerup = (event) => {
      if (!from || Math.abs(share(event) - from.at) < 0.02) return;
      const { k, at } = from,
        [low, high] = [at, share(event)].sort((one, other) => one - other),
        name = called(names[k]);
      from = null;
      brushed = true;
      lines.canvas.onclick = null;
      const digits = (v) => Number(v.toPrecision(6));
      const ends = [
        low > 0.01 && `${name}>=${digits(scales[k].back(low))}`,
        high < 0.99 && `${name}<=${digits(scales[k].back(high))}`,
      ];
      keep([...without(name), ...ends.filter(Boolean)]);
    };
    lines.canvas.ondblclick = (event) => {
      const k = axisAt(event);
      if (k >= 0) keep(without(called(names[k])));
    };
  }
  function drawRanked(name) {
    ranked.replaceChildren();
    if (!important.length) return;
    element("h2", ranked, `What ${column(name)} goes with`);
    const table = element("table", scrolls(element("div", ranked, null, "scroll"), "settings that differ"));
    const head = element("tr", element("thead", table)),
      body = element("tbody", table);
    const forest = important.some((one) => one.forest !== null);
    for (const title of ["setting", "values", "runs", "rank correlation", ...(forest ? ["random forest's share"] : [])])
      element("th", head, title, title === "setting" ? "" : "number").title =
        title === "rank correlation" ? SHARED : "";
    for (const one of important) {
      const row = element("tr", body);
      const button = element("button", element("td", row), column(one.name), "plain");
      button.type = "button";
      button.title = "draw it along x";
      button.addEventListener("click", () => {
        go({ x: one.name }, { quiet: true });
        refresh();
      });
      cell(row, one.values);
      cell(row, one.runs);
      for (const share of [one.correlation, ...(forest ? [one.forest] : [])]) {
        const made = cell(row, share === null ? null : Number(share.toFixed(2)));
        made.style.background = `linear-gradient(to left, color-mix(in srgb, var(--mark) 22%, transparent) ${Math.abs(share || 0) * 100}%, transparent 0)`;
      }
    }
  }
  const refresh = latest(async (fresh) => {
    columns = (await fresh(ask("columns"))).columns.filter(
      (one) => /^(config|result|last)\./.test(one) || ["step", "created", "group", "status"].includes(one),
    );
    const nameY = state.y || guess();
    fill(y, columns, nameY);
    const about = { where: state.q, project: state.project };
    important = (await fresh(ask("settings", { ...about, column: nameY }))).settings;
    const nameX = state.x || (important[0] || { name: columns[0] }).name;
    fill(x, columns, nameX);
    x.disabled = y.disabled = false;
    const names = axes();
    const values = (wanted) => ask("scatter", { columns: wanted.join("\n"), where: state.q, project: state.project });
    const [two, many] = await fresh(Promise.all([values([nameX, nameY]), values(names)]));
    count.textContent = counted(two.rows.length);
    few.textContent = two.rows.length
      ? "one run: settings are held against results where there are more"
      : state.q || state.project
        ? "no run fits"
        : "no runs yet";
    few.hidden = two.rows.length > 1;
    grid.hidden = ranked.hidden = two.rows.length < 2;
    cloud.head.textContent = `${column(nameY)} against ${column(nameX)}`;
    drawCloud(two.rows, nameX, nameY);
    drawLines(many.rows, names);
    // The forest takes seconds: it grows after all else is drawn, and anew when other runs fit.
    const now = JSON.stringify([about, nameY, two.rows.length]);
    important.forEach((one) => (one.forest = grown.key === now ? (grown.shares[one.name] ?? null) : null));
    drawRanked(nameY);
    main.dataset.drawn = String(important.length);
    if (grown.key === now) return;
    const forest = (await fresh(ask("settings", { ...about, column: nameY, forest: "1" }))).settings;
    grown = { key: now, shares: Object.fromEntries(forest.map((one) => [one.name, one.forest])) };
    important.forEach((one) => (one.forest = grown.shares[one.name] ?? null));
    drawRanked(nameY);
  }, drawing);
  const resized = later(refresh, 150);
  addEventListener("resize", resized);
  return {
    refresh,
    watched: () => [],
    changed: refresh,
    redraw: refresh,
    end: () => removeEventListener("resize", resized),
  };
}
