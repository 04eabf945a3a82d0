// Diagrams on canvases, for the pages of `plot` and `report` and for the live page: hover reads values of all lines, dragging zooms, wheel and two fingers
// too (sideways, or with shift, it pans), double click shows all again. Values come as numbers, null (a gap), "NaN", "Infinity" or "-Infinity".
const FAR = 10; // a line further from most others than this many times their usual distance flattens them
const MANY = 24; // more lines are thin: seen apart, and drawn in a tenth of the time
const NAMED = 12; // lines named beside the pointer
export const value = (v) => (v === null || typeof v === "string" ? NaN : v);
export const shown = (v) => {
  if (typeof v !== "number") return String(v);
  const size = Math.abs(v);
  if (!isFinite(v)) return String(v);
  if (size >= 1e9 || (v && size < 1e-4)) return v.toExponential(3).replace(/\.?0+e/, "e");
  return size >= 1e4 ? Math.round(v).toLocaleString("en-US") : String(+v.toPrecision(5));
};
const two = (n) => String(n).padStart(2, "0");
export const duration = (s) => {
  const size = Math.abs(s),
    sign = s < 0 ? "-" : "";
  if (size < 60) return `${+s.toPrecision(3)} s`;
  if (size < 3600) return `${sign}${Math.floor(size / 60)}:${two(Math.floor(size % 60))} min`;
  if (size < 86400 * 2) return `${sign}${Math.floor(size / 3600)}:${two(Math.floor((size % 3600) / 60))} h`;
  return `${sign}${+(size / 86400).toFixed(2)} d`;
};
export const moment = (s, span) => {
  const d = new Date(s * 1000),
    day = `${two(d.getMonth() + 1)}-${two(d.getDate())}`,
    clock = `${two(d.getHours())}:${two(d.getMinutes())}`;
  if (isNaN(d.getTime())) return String(s);
  if (span < 300) return `${clock}:${two(d.getSeconds())}`;
  if (span < 86400) return clock;
  return span < 86400 * 5 ? `${day} ${clock}` : `${d.getFullYear()}-${day}`;
};
// A moment as everywhere in trackers: 2026-11-28 08:45:22, this machine's time.
export const date = (s) => {
  const d = new Date(s * 1000);
  return `${moment(s, Infinity)} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
};
/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} name
 * @param {Element | null} [parent]
 * @param {any} [text]
 * @param {string} [kind] its class
 * @returns {HTMLElementTagNameMap[K]}
 */
export const element = (name, parent, text, kind) => {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  if (kind) made.className = kind;
  if (parent) parent.append(made);
  return made;
};

// The colours of a page as it is: light or dark.
export const palette = (look) => {
  const theme = document.documentElement.dataset.theme;
  const dark = theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  return (dark && look.dark) || look.colours;
};

const SECONDS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 864000,
];
export function ticks(low, high, log, most, clock, whole) {
  // whole: only whole numbers, if one is in sight
  const found = [];
  if (log) {
    const every = Math.max(1, Math.ceil((high - low) / most));
    for (let power = Math.ceil(low); power <= high; power += every) found.push(power);
    if (found.length > 1) return found;
    for (const kind of [
      [1, 2, 5],
      [1, 2, 3, 4, 5, 6, 7, 8, 9],
    ]) {
      found.length = 0;
      for (let power = Math.floor(low); power <= high && power > low - 2; power++)
        found.push(...kind.map((k) => power + Math.log10(k)).filter((t) => t >= low && t <= high));
      if (found.length > 2) return found;
    }
    found.length = 0;
  }
  const rough = (high - low) / most,
    size = 10 ** Math.floor(Math.log10(rough));
  let step = size * [1, 2, 5, 10].find((k) => k * size >= rough),
    base = 0;
  if ((clock === "time" || clock === "duration") && rough > 0.5) {
    step = SECONDS.find((s) => s >= rough) || step;
    if (clock === "time") base = new Date(low * 1000).getTimezoneOffset() * 60;
  }
  if (whole && Math.ceil(low) <= Math.floor(high)) step = Math.max(step, 1);
  for (let k = Math.ceil((low - base) / step); base + k * step <= high && found.length < 1000; k++)
    found.push(base + k * step);
  return found;
}

export class Chart {
  // look: colours, dashes; hidden: a set of styles; lit: the style that alone is drawn strongly; zoomed(range or null, chart) and
  // hovered(x or null, chart) if somebody else must know.
  constructor(panel, parent, look) {
    this.look = look;
    const figure = (this.figure = element("figure", parent));
    this.caption = element("figcaption", figure);
    this.title = element("span", this.caption, panel.title, "title");
    this.place = element("div", figure, null, "plot");
    this.canvas = element("canvas", this.place);
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", panel.title);
    this.cross = element("div", this.place, null, "cross");
    this.note = element("div", this.place, null, "note");
    this.beyond = element("button", this.place, null, "beyond");
    this.beyond.type = "button";
    this.beyond.hidden = true;
    this.beyond.addEventListener("click", () => {
      this.whole = !this.whole;
      this.draw();
    });
    this.whole = false; // also what flattens all other lines
    this.lit = null;
    this.pointers = new Map();
    this.view = null;
    this.take(panel);
    this.listen();
  }
  take(panel) {
    // other data, in the same view
    this.panel = panel;
    this.title.textContent = panel.title;
    this.lines = panel.lines.map((line) => ({
      ...line,
      x: line.x.map(value),
      y: line.y.map(value),
      smooth_x: line.smooth_x.map(value),
      smooth_y: line.smooth_y.map(value),
      low: line.low.map(value),
      high: line.high.map(value),
    }));
    for (const d of panel.distributions) {
      const x = [],
        y = [];
      d.counts.forEach((count, k) => {
        x.push(d.edges[k], d.edges[k + 1]);
        y.push(count, count);
      });
      this.lines.push({
        ...d,
        x,
        y,
        smooth_x: [],
        smooth_y: [],
        low: [],
        high: [],
        nans: [],
        highs: [],
        lows: [],
        dashed: false,
      });
    }
    this.logX = panel.log_x && panel.lines.length > 0;
    this.logY = panel.log_y && panel.lines.length > 0;
    const whole = (values) => values.every((v) => !isFinite(v) || Number.isInteger(v));
    this.wholeX = this.lines.every((line) => whole(line.x));
    this.wholeY = this.lines.every((line) => whole(line.y));
  }
  toX(v) {
    return this.logX ? Math.log10(v) : v;
  }
  toY(v) {
    return this.logY ? Math.log10(v) : v;
  }
  fromX(v) {
    return this.logX ? 10 ** v : v;
  }
  colour(style) {
    return palette(this.look)[style % this.look.colours.length];
  }
  dash(line, width) {
    const { dashes, colours } = this.look;
    const kind = line.nth || Math.floor(line.style / colours.length); // of a panel with several metrics each has its own
    return (line.dashed ? [4, 2] : dashes[kind % dashes.length]).map((d) => d * width);
  }
  visible() {
    return this.lines.filter((line) => !this.look.hidden.has(line.style));
  }
  // How low and how high the lines go that don't flatten most others; null: all belong in sight.
  middle() {
    const lines = this.visible().filter((line) => !line.low.length);
    const [from, to] = this.view || [-Infinity, Infinity];
    /** @type {[number, number, string][]} */
    const ends = [];
    for (const line of lines) {
      let [low, high] = [Infinity, -Infinity];
      line.y.forEach((y, k) => {
        const x = this.toX(line.x[k]);
        if (isFinite(y) && x >= from && x <= to) [low, high] = [Math.min(low, y), Math.max(high, y)];
      });
      if (high >= low) ends.push([low, high, line.label]);
    }
    if (ends.length < 2 || this.logY) return null;
    const sorted = (values) => values.sort((a, b) => a - b)[Math.floor((values.length - 1) / 2)];
    const centre = sorted(ends.map(([low, high]) => (low + high) / 2));
    /** @param {[number, number, string]} ends */
    const far = ([low, high]) => Math.max(high - centre, centre - low);
    const limit = FAR * sorted(ends.map(far));
    const usual = ends.filter((one) => far(one) <= limit);
    // Values over several powers of ten (learning rates) are none of it: a line is gone that leaps twice their span.
    const power = (y) => (y > 0 ? Math.log10(y) : NaN);
    const leaps = (y, all) => {
      const [low, high] = [Math.min(...all.map(power)), Math.max(...all.map(power))];
      return !(Math.max(power(y) - high, low - power(y)) <= 2 * (high - low)); // without a logarithm it does
    };
    const [lows, highs] = [usual.map((one) => one[0]), usual.map((one) => one[1])];
    /** @param {[number, number, string]} ends */
    const outlying = ([low, high]) =>
      (high - centre > limit && leaps(high, highs)) || (centre - low > limit && leaps(low, lows));
    const near = ends.filter((one) => far(one) <= limit || !outlying(one));
    const gone = ends.filter((one) => !near.includes(one)).map((one) => one[2]);
    if (!gone.length || gone.length > ends.length / 2 || !(limit > 0)) return null;
    return { gone, low: Math.min(...near.map(([low]) => low)), high: Math.max(...near.map(([, high]) => high)) };
  }
  reach() {
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    const [from, to] = this.view || [-Infinity, Infinity];
    const wide = (x) => {
      if (isFinite(x)) {
        x0 = Math.min(x0, x);
        x1 = Math.max(x1, x);
      }
    };
    const high = (y) => {
      if (isFinite(y)) {
        y0 = Math.min(y0, y);
        y1 = Math.max(y1, y);
      }
    };
    const take = (x, y) => {
      wide(x);
      if (x >= from && x <= to) high(y);
    };
    for (const line of this.visible()) {
      // What is drawn strongly decides; beside a smoothed curve a spike of the raw one is cut, unless it is all there is.
      line.x.forEach((x, k) => take(this.toX(x), this.toY(line.y[k])));
      line.low.forEach((y, k) => take(this.toX(line.x[k]), this.toY(y)));
      line.high.forEach((y, k) => take(this.toX(line.x[k]), this.toY(y)));
      for (const kind of ["nans", "highs", "lows"]) line[kind].forEach((x) => wide(this.toX(x)));
    }
    const middle = this.middle();
    this.beyond.hidden = !middle;
    if (middle) {
      const runs = middle.gone.length === 1 ? "1 line goes" : `${middle.gone.length} lines go`;
      this.beyond.title = middle.gone.join("\n");
      this.beyond.textContent = this.whole
        ? "cut what flattens the others"
        : `${runs} beyond (${shown(y0)} to ${shown(y1)}): show`;
      if (!this.whole) [y0, y1] = [middle.low, middle.high];
    }
    if (!(x1 >= x0)) [x0, x1] = [0, 1];
    if (!(y1 >= y0)) [y0, y1] = [0, 1];
    const pad = (low, high) => (high > low ? (high - low) * 0.04 : Math.abs(low) * 0.05 || 1);
    const { floor, ceiling } = this.panel,
      bound = !this.view && !this.logY && !(middle && !this.whole) && this.visible().some((line) => line.x.length);
    const low = bound && floor != null && y0 >= floor;
    if (low) y0 = floor;
    if (bound && ceiling != null) y1 = Math.max(y1, ceiling);
    const [px, py] = [pad(x0, x1), pad(y0, y1)];
    const across = this.view || [x0 - px, x1 + px];
    return [...across, this.panel.distributions.length ? 0 : low ? y0 : y0 - py, y1 + py];
  }
  name(v, span) {
    const kind = this.panel.x_kind;
    return kind === "time" ? moment(v, span) : kind === "duration" ? duration(v) : shown(v);
  }
  tick(v, log, reach, across) {
    const real = log ? 10 ** v : Math.abs(v) < 1e-12 * reach ? 0 : v;
    return across ? this.name(real, reach) : shown(real);
  }
  draw() {
    const ratio = window.devicePixelRatio || 1,
      width = this.canvas.clientWidth,
      height = this.canvas.clientHeight;
    if (!width) return;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const c = (this.context = this.canvas.getContext("2d"));
    c.scale(ratio, ratio);
    const style = getComputedStyle(document.body);
    this.ink = style.color;
    this.pale = style.getPropertyValue("--line");
    c.font = "11px system-ui, sans-serif";
    c.fillStyle = this.ink;
    this.box = null;
    if (this.panel.bars.length) return this.bars(c, width, height);
    if (this.panel.blank) {
      c.textAlign = "center";
      c.fillText(this.panel.empty, width / 2, height / 2);
      return;
    }
    const [x0, x1, y0, y1] = this.reach();
    /** @type {[number, string][]} */
    const rows = ticks(y0, y1, this.logY, Math.max(2, (height - 42) / 40), null, this.wholeY).map((t) => [
      t,
      this.tick(t, this.logY, y1 - y0),
    ]);
    const left = Math.max(52, ...rows.map(([, label]) => c.measureText(label).width + 7));
    const box = (this.box = {
      left,
      right: width - 10,
      top: 8,
      bottom: height - 34,
      x0,
      x1,
      y0,
      y1,
    });
    this.px = (x) => box.left + ((this.toX(x) - x0) / (x1 - x0)) * (box.right - box.left);
    this.py = (y) => box.bottom - ((this.toY(y) - y0) / (y1 - y0)) * (box.bottom - box.top);
    this.axes(c, box, rows, width);
    c.save();
    c.beginPath();
    c.rect(box.left, box.top, box.right - box.left, box.bottom - box.top);
    c.clip();
    for (const line of this.visible()) this.line(c, line, box);
    c.restore();
    if (this.drag) {
      c.fillStyle = "#8884";
      c.fillRect(this.drag.from, box.top, this.drag.to - this.drag.from, box.bottom - box.top);
    }
  }
  axes(c, box, rows, width) {
    c.lineWidth = 1;
    c.strokeStyle = this.pale;
    c.textAlign = "center";
    c.textBaseline = "top";
    for (const t of ticks(
      box.x0,
      box.x1,
      this.logX,
      Math.max(2, (box.right - box.left) / 80),
      this.panel.x_kind,
      this.wholeX,
    )) {
      const x = box.left + ((t - box.x0) / (box.x1 - box.x0)) * (box.right - box.left);
      c.beginPath();
      c.moveTo(x, box.top);
      c.lineTo(x, box.bottom);
      c.stroke();
      const label = this.tick(t, this.logX, box.x1 - box.x0, true);
      c.fillText(label, Math.min(x, width - c.measureText(label).width / 2), box.bottom + 4);
    }
    c.textAlign = "right";
    c.textBaseline = "middle";
    for (const [t, label] of rows) {
      const y = box.bottom - ((t - box.y0) / (box.y1 - box.y0)) * (box.bottom - box.top);
      c.beginPath();
      c.moveTo(box.left, y);
      c.lineTo(box.right, y);
      c.stroke();
      c.fillText(label, box.left - 5, y);
    }
    c.textAlign = "center";
    c.textBaseline = "bottom";
    c.fillText(this.panel.x_label, (box.left + box.right) / 2, this.canvas.clientHeight - 2);
  }
  path(c, xs, ys) {
    const alone = [];
    let on = false;
    c.beginPath();
    for (let k = 0; k < xs.length; k++) {
      const a = this.px(xs[k]),
        b = this.py(ys[k]);
      if (!isFinite(a) || !isFinite(b)) {
        on = false;
        continue;
      }
      if (on) c.lineTo(a, b);
      else if (k + 1 < xs.length && isFinite(ys[k + 1])) c.moveTo(a, b);
      else alone.push([a, b]); // with no neighbour: a dot
      on = true;
    }
    c.stroke();
    for (const [a, b] of alone) {
      c.beginPath();
      c.arc(a, b, 2, 0, 7);
      c.fill();
    }
  }
  line(c, line, box) {
    const lit = this.look.lit ?? this.lit;
    const strong = lit === null || lit === line.style ? 1 : 0.15;
    c.strokeStyle = c.fillStyle = this.colour(line.style);
    if (line.low.length) {
      c.globalAlpha = 0.18 * strong;
      c.beginPath();
      const floor = (y) => (isFinite(this.py(y)) ? this.py(y) : box.bottom);
      line.x.forEach((x, k) => c.lineTo(this.px(x), floor(line.low[k])));
      for (let k = line.x.length - 1; k >= 0; k--) c.lineTo(this.px(line.x[k]), floor(line.high[k]));
      c.fill();
    }
    const thin = this.lines.length > MANY;
    c.lineCap = thin ? "butt" : "round";
    if (line.smooth_x.length) {
      c.globalAlpha = 0.3 * strong;
      c.lineWidth = 0.8;
      c.setLineDash([]);
      this.path(c, line.x, line.y);
    }
    c.globalAlpha = strong;
    c.lineWidth = lit !== null && lit === line.style ? 2.6 : thin ? 1 : 1.6;
    c.setLineDash(this.dash(line, 1.6));
    if (line.smooth_x.length) this.path(c, line.smooth_x, line.smooth_y);
    else this.path(c, line.x, line.y);
    c.setLineDash([]);
    c.textAlign = "center";
    c.textBaseline = "middle";
    for (const [kind, sign, y] of [
      ["nans", "×", box.bottom - 6],
      ["highs", "▲", box.top + 6],
      ["lows", "▼", box.bottom - 6],
    ])
      for (const x of line[kind]) c.fillText(sign, this.px(x), y);
    c.globalAlpha = 1;
  }
  bars(c, width, height) {
    const bars = this.panel.bars.filter((bar) => !this.look.hidden.has(bar.style));
    const most = Math.max(...bars.map((bar) => Math.max(value(bar.value) || 0, bar.high || 0)), 1e-300);
    const row = (height - 10) / Math.max(1, bars.length),
      left = Math.min(140, width * 0.35);
    const texts = bars.map((bar) => `${shown(value(bar.value))} ${bar.note}`.trim());
    const long = width - left - 8 - Math.max(...texts.map((text) => c.measureText(text).width), 0);
    c.textBaseline = "middle";
    bars.forEach((bar, k) => {
      const y = 5 + row * k,
        size = ((value(bar.value) || 0) / most) * long,
        middle = y + row / 2;
      c.fillStyle = this.colour(bar.style);
      c.fillRect(left, y + row * 0.15, size, row * 0.7);
      c.fillStyle = this.ink;
      c.textAlign = "right";
      const label = bar.label.length > 22 ? bar.label.slice(0, 10) + "…" + bar.label.slice(-10) : bar.label;
      c.fillText(label, left - 5, middle, left - 8);
      c.textAlign = "left";
      c.fillText(texts[k], left + Math.max(size, ((bar.high || 0) / most) * long) + 4, middle);
      if (bar.low !== null && bar.high !== null) {
        c.strokeStyle = this.ink;
        c.lineWidth = 1;
        c.beginPath();
        c.moveTo(left + (bar.low / most) * long, middle);
        c.lineTo(left + (bar.high / most) * long, middle);
        c.stroke();
      }
    });
  }
  zoom(x0, x1) {
    // places on the axis: powers of ten where it is logarithmic
    if (!(x1 > x0)) return;
    this.view = [x0, x1];
    this.draw();
    if (this.look.zoomed)
      this.look.zoomed(
        this.view.map((x) => this.fromX(x)),
        this,
      );
  }
  listen() {
    const at = (event) => event.clientX - this.canvas.getBoundingClientRect().left;
    const inverse = (x) =>
      this.box.x0 + ((x - this.box.left) / (this.box.right - this.box.left)) * (this.box.x1 - this.box.x0);
    const canvas = this.canvas;
    canvas.addEventListener("pointerdown", (event) => {
      if (!this.box) return;
      this.pointers.set(event.pointerId, at(event));
      canvas.setPointerCapture(event.pointerId);
      if (this.pointers.size === 1) this.drag = { from: at(event), to: at(event) };
      else {
        this.drag = null;
        this.pinch = { from: [...this.pointers.values()].map(inverse) };
      }
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.box) return;
      if (this.pointers.has(event.pointerId)) this.pointers.set(event.pointerId, at(event));
      if (this.pinch && this.pointers.size === 2) {
        const [a, b] = [...this.pointers.values()],
          [u, v] = this.pinch.from;
        if (Math.abs(a - b) > 5) {
          const each = (v - u) / (b - a),
            x0 = u - (a - this.box.left) * each;
          this.zoom(x0, x0 + (this.box.right - this.box.left) * each);
        }
      } else if (this.drag) {
        this.drag.to = at(event);
        this.draw();
      }
      this.read(at(event), event.clientY - this.canvas.getBoundingClientRect().top);
    });
    const release = (event) => {
      this.pointers.delete(event.pointerId);
      this.pinch = null;
      const drag = this.drag;
      this.drag = null;
      if (!drag) return;
      const [a, b] = [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)];
      if (event.type === "pointerup" && b - a > 8) this.zoom(inverse(a), inverse(b));
      else this.draw();
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointerleave", () => this.leave());
    canvas.addEventListener(
      "wheel",
      (event) => {
        if (!this.box) return;
        event.preventDefault();
        const across = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX;
        if (Math.abs(across) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
          const by = (across / (this.box.right - this.box.left)) * (this.box.x1 - this.box.x0);
          this.zoom(this.box.x0 + by, this.box.x1 + by);
          return;
        }
        const middle = inverse(at(event)),
          factor = event.deltaY > 0 ? 1.25 : 0.8;
        this.zoom(middle - (middle - this.box.x0) * factor, middle + (this.box.x1 - middle) * factor);
      },
      { passive: false },
    );
    canvas.addEventListener("dblclick", () => {
      this.view = null;
      this.draw();
      if (this.look.zoomed) this.look.zoomed(null, this);
    });
  }
  light(style) {
    // of many lines, that at the pointer
    if (this.lit === style) return;
    this.lit = style;
    this.draw();
  }
  leave() {
    this.light(null);
    this.note.replaceChildren();
    this.point(null);
    if (this.look.hovered) this.look.hovered(null, this);
  }
  point(x) {
    // the line that shows where the pointer is, here or on another chart
    const a = x === null || !this.box ? NaN : this.px(x);
    const there = a >= (this.box || {}).left && a <= (this.box || {}).right;
    this.cross.classList.toggle("on", there);
    if (there) this.cross.style.transform = `translateX(${a}px)`;
  }
  read(at, height) {
    const lines = this.visible().filter((line) => line.x.length);
    if (!lines.length || !this.box || at < this.box.left || at > this.box.right) return this.leave();
    const x = this.box.x0 + ((at - this.box.left) / (this.box.right - this.box.left)) * (this.box.x1 - this.box.x0);
    const near = (xs) => {
      let [low, high] = [0, xs.length - 1];
      while (low < high) {
        const k = (low + high) >> 1;
        if (this.toX(xs[k]) < x) low = k + 1;
        else high = k;
      }
      return low && Math.abs(this.toX(xs[low - 1]) - x) < Math.abs(this.toX(xs[low]) - x) ? low - 1 : low;
    };
    const found = lines.map((line) => {
      const k = near(line.x),
        smooth = line.smooth_x.length ? line.smooth_y[near(line.smooth_x)] : NaN;
      return {
        line,
        x: line.x[k],
        raw: line.y[k],
        smooth,
        low: line.low[k],
        high: line.high[k],
        y: isFinite(smooth) ? smooth : line.y[k],
      };
    });
    found.sort((a, b) => Number(isFinite(b.y)) - Number(isFinite(a.y)) || b.y - a.y || 0);
    const distance = (one) => (isFinite(one.y) ? Math.abs(this.py(one.y) - height) : Infinity);
    const nearest = found.reduce((best, one) => (distance(one) < distance(best) ? one : best), found[0]);
    this.light(found.length > NAMED && distance(nearest) < 30 ? nearest.line.style : null);
    const first = Math.max(0, Math.min(found.indexOf(nearest) - NAMED / 2, found.length - NAMED));
    this.note.replaceChildren();
    const span = this.box.x1 - this.box.x0;
    element(
      "div",
      this.note,
      `${this.panel.x_label} ${this.name(nearest.x, this.panel.x_kind === "time" ? Math.min(span, 299) : span)}`,
      "at",
    );
    for (const one of found.slice(first, first + NAMED)) {
      const row = element("div", this.note, null, one === nearest && found.length > 1 ? "near" : "");
      element("i", row).style.background = this.colour(one.line.style);
      const spread = isFinite(one.low) && isFinite(one.high) ? ` (${shown(one.low)} to ${shown(one.high)})` : "";
      const raw = isFinite(one.smooth) ? ` (raw ${shown(one.raw)})` : "";
      element("b", row, one.line.label);
      element("span", row, `: ${shown(one.y)}${raw}${spread}`);
    }
    if (found.length > NAMED) element("div", this.note, `and ${found.length - NAMED} more`);
    this.note.classList.toggle("left", at > (this.box.left + this.box.right) / 2);
    this.point(this.fromX(x));
    if (this.look.hovered) this.look.hovered(this.fromX(x), this);
  }
}
