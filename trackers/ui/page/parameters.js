// Settings against results: a scatter plot, and parallel coordinates.
import { ask, drawing, later, latest } from "./asking.js";
import { element, shown, ticks, value } from "./chart.js";
import { checks, choice, column, fill, main, search, text } from "./parts.js";
import { go, state } from "./state.js";

export function paramsView() {
  const bar = element("div", main, null, "bar");
  let columns = [];
  search(bar, "which runs: as in Runs", state.q, (q) => {
    go({ q }, { quiet: true });
    refresh();
  });
  const x = choice(bar, "x", [], "", (value) => {
    go({ x: value }, { quiet: true });
    refresh();
  });
  const y = choice(bar, "y and colour", [], "", (value) => {
    go({ y: value }, { quiet: true });
    refresh();
  });
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
    grid = element("div", main, null, "wide");
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
  const axes = () =>
    state.axes.length
      ? state.axes
      : [...columns.filter((one) => one.startsWith("config.") && varies(one)).slice(0, 5), state.y || guess()].filter(
          Boolean,
        );
  const varies = (name) => variety[name] !== false,
    variety = {};
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
    return { c, width, height, ink: style.color, pale: style.getPropertyValue("--line") };
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
    const low = Math.min(...plain),
      high = Math.max(...plain),
      log = low > 0 && high / low > 20;
    const to = (v) => (log ? Math.log10(v) : v),
      [a, b] = [to(low), to(high)];
    const marks = !plain.length
      ? []
      : a === b
        ? [[0.5, shown(low)]]
        : ticks(a, b, log, 6, null, !log && plain.every(Number.isInteger)).map((t) => [
            (t - a) / (b - a),
            shown(log ? 10 ** t : t),
          ]);
    return {
      place: (v) => {
        const n = v === null || v === undefined || typeof v === "string" ? NaN : to(Number(v));
        return a === b ? (isFinite(n) ? 0.5 : NaN) : (n - a) / (b - a);
      },
      marks,
    };
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
      part.canvas.onclick = found ? () => go({ tab: "run", run: found.key }, { step: true }) : null;
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
    const sx = scaleOf(rows.map((r) => r[2])),
      sy = scaleOf(rows.map((r) => r[3]));
    c.strokeStyle = pale;
    c.fillStyle = ink;
    c.textAlign = "center";
    c.textBaseline = "top";
    for (const [share, label] of sx.marks) {
      const px = left + share * (right - left);
      c.beginPath();
      c.moveTo(px, top);
      c.lineTo(px, bottom);
      c.stroke();
      c.fillText(label.slice(0, 18), px, bottom + 4);
    }
    c.textAlign = "right";
    c.textBaseline = "middle";
    for (const [share, label] of sy.marks) {
      const py = bottom - share * (bottom - top);
      c.beginPath();
      c.moveTo(left, py);
      c.lineTo(right, py);
      c.stroke();
      c.fillText(label.slice(0, 12), left - 5, py);
    }
    c.textAlign = "center";
    c.textBaseline = "bottom";
    c.fillText(column(nameX), (left + right) / 2, height - 4);
    points.length = 0;
    for (const row of rows) {
      const px = left + sx.place(row[2]) * (right - left),
        share = sy.place(row[3]),
        py = bottom - share * (bottom - top);
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
    const { c, width, height, ink, pale } = start(lines),
      top = 34,
      bottom = height - 14,
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
      c.beginPath();
      let on = false;
      for (const [a, b] of at) {
        if (!isFinite(b)) {
          on = false;
          continue;
        }
        if (on) c.lineTo(a, b);
        else c.moveTo(a, b);
        on = true;
      }
      c.stroke();
      paths.push([at, row]);
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
      c.textAlign = k === 0 ? "left" : k === names.length - 1 ? "right" : "center";
      c.textBaseline = "bottom";
      c.fillText(
        column(name),
        k === 0 ? 4 : k === names.length - 1 ? width - 4 : px(k),
        k % 2 && names.length > 3 ? 15 : 29,
        ((right - left) / Math.max(1, names.length - 1)) * 1.6,
      );
      c.textAlign = k === names.length - 1 ? "left" : "right";
      c.textBaseline = "middle";
      for (const [share, label] of scales[k].marks)
        c.fillText(label.slice(0, 12), px(k) + (k === names.length - 1 ? 5 : -5), bottom - share * (bottom - top));
    });
    void pale;
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
  const refresh = latest(async (fresh) => {
    columns = (await fresh(ask("columns"))).columns.filter(
      (one) => /^(config|result|last)\./.test(one) || ["step", "created", "group", "status"].includes(one),
    );
    const settings = columns.filter((one) => one.startsWith("config."));
    const sample = await fresh(
      ask("scatter", { columns: settings.slice(0, 12).join("\n"), where: state.q, project: state.project }),
    );
    settings.slice(0, 12).forEach((name, k) => {
      variety[name] = new Set(sample.rows.map((row) => row[2 + k])).size > 1;
    });
    const nameX = state.x || settings.find(varies) || columns[0],
      nameY = state.y || guess();
    fill(x, columns, nameX);
    fill(y, columns, nameY);
    const two = await fresh(
      ask("scatter", { columns: [nameX, nameY].join("\n"), where: state.q, project: state.project }),
    );
    const names = axes(),
      many = await fresh(ask("scatter", { columns: names.join("\n"), where: state.q, project: state.project }));
    count.textContent = `${two.rows.length.toLocaleString("en-US")} runs`;
    cloud.head.textContent = `${column(nameY)} against ${column(nameX)}`;
    drawCloud(two.rows, nameX, nameY);
    drawLines(many.rows, names);
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
