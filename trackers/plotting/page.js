"use strict";
// Draws the panels of #data on canvases: hover reads values, dragging zooms, wheel and two fingers too (sideways, or with shift, it pans), double click
// shows all again; the legend hides runs. Values come as numbers, null (a gap), "NaN", "Infinity" or "-Infinity".
(() => {
  const {picture, colours, dashes} = JSON.parse(document.getElementById("data").textContent);
  const hidden = new Set(), charts = [];
  const value = v => v === null || typeof v === "string" ? NaN : v;
  const shown = v => {
    const size = Math.abs(v);
    if (!isFinite(v)) return String(v);
    if (size >= 1e9 || (v && size < 1e-4)) return v.toExponential(3);
    return size >= 1e4 ? Math.round(v).toLocaleString("en-US") : String(+v.toPrecision(5));
  };
  const named = (v, log, reach) => shown(log ? 10 ** v : Math.abs(v) < 1e-12 * reach ? 0 : v);
  const colour = style => colours[style % colours.length];
  const dash = (line, width) => (line.dashed ? [4, 2] : dashes[Math.floor(line.style / colours.length) % dashes.length]).map(d => d * width);
  const element = (name, parent, text) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  };

  function ticks(low, high, log, most) {
    const found = [];
    if (log) {
      const every = Math.max(1, Math.ceil((high - low) / most));
      for (let power = Math.ceil(low); power <= high; power += every) found.push(power);
      if (found.length > 1) return found;
      found.length = 0;
    }
    const rough = (high - low) / most, size = 10 ** Math.floor(Math.log10(rough));
    const step = size * [1, 2, 5, 10].find(k => k * size >= rough);
    for (let k = Math.ceil(low / step); k * step <= high; k++) found.push(k * step);
    return found;
  }

  class Chart {
    constructor(panel, parent) {
      this.panel = panel;
      const figure = element("figure", parent);
      element("figcaption", figure, panel.title);
      this.canvas = element("canvas", figure);
      this.canvas.setAttribute("role", "img");
      this.canvas.setAttribute("aria-label", panel.title);
      this.note = element("div", figure);
      this.note.className = "note";
      this.lines = panel.lines.map(line => ({...line, x: line.x.map(value), y: line.y.map(value),
        smooth_x: line.smooth_x.map(value), smooth_y: line.smooth_y.map(value), low: line.low.map(value), high: line.high.map(value)}));
      for (const d of panel.distributions) {
        const x = [], y = [];
        d.counts.forEach((count, k) => { x.push(d.edges[k], d.edges[k + 1]); y.push(count, count); });
        this.lines.push({...d, x, y, smooth_x: [], smooth_y: [], low: [], high: [], nans: [], highs: [], lows: [], dashed: false});
      }
      this.logX = panel.log_x && panel.lines.length > 0;
      this.logY = panel.log_y && panel.lines.length > 0;
      this.pointers = new Map();
      this.listen();
      charts.push(this);
    }
    toX(v) { return this.logX ? Math.log10(v) : v; }
    toY(v) { return this.logY ? Math.log10(v) : v; }
    visible() { return this.lines.filter(line => !hidden.has(line.style)); }
    reach() {
      let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
      const take = (x, y) => { if (isFinite(x)) { x0 = Math.min(x0, x); x1 = Math.max(x1, x); } if (isFinite(y)) { y0 = Math.min(y0, y); y1 = Math.max(y1, y); } };
      for (const line of this.visible()) {
        line.x.forEach((x, k) => take(this.toX(x), this.toY(line.y[k])));
        line.low.forEach(y => take(NaN, this.toY(y)));
        line.high.forEach(y => take(NaN, this.toY(y)));
        for (const kind of ["nans", "highs", "lows"]) line[kind].forEach(x => take(this.toX(x), NaN));
      }
      if (!(x1 >= x0)) [x0, x1] = [0, 1];
      if (!(y1 >= y0)) [y0, y1] = [0, 1];
      const pad = (low, high) => high > low ? (high - low) * 0.04 : Math.abs(low) * 0.05 || 1;
      const [px, py] = [pad(x0, x1), pad(y0, y1)];
      return [x0 - px, x1 + px, this.panel.distributions.length ? 0 : y0 - py, y1 + py];
    }
    draw() {
      const ratio = window.devicePixelRatio || 1, width = this.canvas.clientWidth, height = this.canvas.clientHeight;
      if (!width) return;
      this.canvas.width = Math.round(width * ratio); this.canvas.height = Math.round(height * ratio);
      const c = this.context = this.canvas.getContext("2d");
      c.scale(ratio, ratio);
      const style = getComputedStyle(document.body);
      this.ink = style.color; this.pale = style.getPropertyValue("--line");
      c.font = "11px system-ui, sans-serif"; c.fillStyle = this.ink;
      if (this.panel.bars.length) return this.bars(c, width, height);
      if (this.panel.blank) { c.textAlign = "center"; c.fillText(this.panel.empty, width / 2, height / 2); return; }
      const [x0, x1, y0, y1] = this.view || this.reach();
      const rows = ticks(y0, y1, this.logY, Math.max(2, (height - 42) / 40)).map(t => [t, named(t, this.logY, y1 - y0)]);
      const left = Math.max(52, ...rows.map(([, label]) => c.measureText(label).width + 7));
      const box = this.box = {left, right: width - 10, top: 8, bottom: height - 34, x0, x1, y0, y1};
      this.px = x => box.left + (this.toX(x) - x0) / (x1 - x0) * (box.right - box.left);
      this.py = y => box.bottom - (this.toY(y) - y0) / (y1 - y0) * (box.bottom - box.top);
      this.axes(c, box, rows, width);
      c.save();
      c.beginPath(); c.rect(box.left, box.top, box.right - box.left, box.bottom - box.top); c.clip();
      for (const line of this.visible()) this.line(c, line, box);
      c.restore();
      if (this.drag) { c.fillStyle = "#8884"; c.fillRect(this.drag.from, box.top, this.drag.to - this.drag.from, box.bottom - box.top); }
    }
    axes(c, box, rows, width) {
      c.lineWidth = 1; c.strokeStyle = this.pale;
      c.textAlign = "center"; c.textBaseline = "top";
      for (const t of ticks(box.x0, box.x1, this.logX, Math.max(2, (box.right - box.left) / 80))) {
        const x = box.left + (t - box.x0) / (box.x1 - box.x0) * (box.right - box.left);
        c.beginPath(); c.moveTo(x, box.top); c.lineTo(x, box.bottom); c.stroke();
        const label = named(t, this.logX, box.x1 - box.x0);
        c.fillText(label, Math.min(x, width - c.measureText(label).width / 2), box.bottom + 4);
      }
      c.textAlign = "right"; c.textBaseline = "middle";
      for (const [t, label] of rows) {
        const y = box.bottom - (t - box.y0) / (box.y1 - box.y0) * (box.bottom - box.top);
        c.beginPath(); c.moveTo(box.left, y); c.lineTo(box.right, y); c.stroke();
        c.fillText(label, box.left - 5, y);
      }
      c.textAlign = "center"; c.textBaseline = "bottom";
      c.fillText(this.panel.x_label, (box.left + box.right) / 2, this.canvas.clientHeight - 2);
    }
    path(c, xs, ys) {
      let on = false;
      c.beginPath();
      xs.forEach((x, k) => {
        const [a, b] = [this.px(x), this.py(ys[k])];
        if (!isFinite(a) || !isFinite(b)) { on = false; return; }
        if (on) c.lineTo(a, b); else { c.moveTo(a, b); c.lineTo(a + 0.01, b); }
        on = true;
      });
      c.stroke();
    }
    line(c, line, box) {
      c.strokeStyle = c.fillStyle = colour(line.style);
      if (line.low.length) {
        c.globalAlpha = 0.18; c.beginPath();
        const floor = y => isFinite(this.py(y)) ? this.py(y) : box.bottom;
        line.x.forEach((x, k) => c.lineTo(this.px(x), floor(line.low[k])));
        for (let k = line.x.length - 1; k >= 0; k--) c.lineTo(this.px(line.x[k]), floor(line.high[k]));
        c.fill(); c.globalAlpha = 1;
      }
      c.lineCap = "round";
      if (line.smooth_x.length) { c.globalAlpha = 0.3; c.lineWidth = 0.8; c.setLineDash([]); this.path(c, line.x, line.y); c.globalAlpha = 1; }
      c.lineWidth = 1.6; c.setLineDash(dash(line, 1.6));
      if (line.smooth_x.length) this.path(c, line.smooth_x, line.smooth_y); else this.path(c, line.x, line.y);
      c.setLineDash([]); c.textAlign = "center"; c.textBaseline = "middle";
      for (const [kind, sign, y] of [["nans", "×", box.bottom - 6], ["highs", "▲", box.top + 6], ["lows", "▼", box.bottom - 6]])
        for (const x of line[kind]) c.fillText(sign, this.px(x), y);
    }
    bars(c, width, height) {
      const bars = this.panel.bars.filter(bar => !hidden.has(bar.style));
      const most = Math.max(...bars.map(bar => Math.max(value(bar.value) || 0, bar.high || 0)), 1e-300);
      const row = (height - 10) / Math.max(1, bars.length), left = Math.min(140, width * 0.35);
      const texts = bars.map(bar => `${shown(value(bar.value))} ${bar.note}`.trim());
      const long = width - left - 8 - Math.max(...texts.map(text => c.measureText(text).width), 0);
      c.textBaseline = "middle";
      bars.forEach((bar, k) => {
        const y = 5 + row * k, size = (value(bar.value) || 0) / most * long, middle = y + row / 2;
        c.fillStyle = colour(bar.style); c.fillRect(left, y + row * 0.15, size, row * 0.7);
        c.fillStyle = this.ink; c.textAlign = "right";
        const label = bar.label.length > 22 ? bar.label.slice(0, 10) + "…" + bar.label.slice(-10) : bar.label;
        c.fillText(label, left - 5, middle, left - 8);
        c.textAlign = "left"; c.fillText(texts[k], left + Math.max(size, (bar.high || 0) / most * long) + 4, middle);
        if (bar.low !== null && bar.high !== null) {
          c.strokeStyle = this.ink; c.lineWidth = 1; c.beginPath();
          c.moveTo(left + bar.low / most * long, middle); c.lineTo(left + bar.high / most * long, middle); c.stroke();
        }
      });
    }
    listen() {
      const at = event => event.clientX - this.canvas.getBoundingClientRect().left;
      const inverse = x => this.box.x0 + (x - this.box.left) / (this.box.right - this.box.left) * (this.box.x1 - this.box.x0);
      const zoom = (x0, x1) => { if (x1 > x0) { this.view = [x0, x1, this.box.y0, this.box.y1]; this.draw(); } };
      const canvas = this.canvas;
      canvas.addEventListener("pointerdown", event => {
        if (!this.box) return;
        this.pointers.set(event.pointerId, at(event));
        canvas.setPointerCapture(event.pointerId);
        if (this.pointers.size === 1) this.drag = {from: at(event), to: at(event)};
        else { this.drag = null; this.pinch = {from: [...this.pointers.values()].map(inverse)}; }
      });
      canvas.addEventListener("pointermove", event => {
        if (!this.box) return;
        if (this.pointers.has(event.pointerId)) this.pointers.set(event.pointerId, at(event));
        if (this.pinch && this.pointers.size === 2) {
          const [a, b] = [...this.pointers.values()], [u, v] = this.pinch.from;
          if (Math.abs(a - b) > 5) {
            const each = (v - u) / (b - a), x0 = u - (a - this.box.left) * each;
            zoom(x0, x0 + (this.box.right - this.box.left) * each);
          }
        } else if (this.drag) { this.drag.to = at(event); this.draw(); }
        this.read(at(event));
      });
      const release = event => {
        this.pointers.delete(event.pointerId); this.pinch = null;
        const drag = this.drag; this.drag = null;
        if (!drag) return;
        const [a, b] = [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)];
        if (event.type === "pointerup" && b - a > 8) zoom(inverse(a), inverse(b)); else this.draw();
      };
      canvas.addEventListener("pointerup", release);
      canvas.addEventListener("pointercancel", release);
      canvas.addEventListener("pointerleave", () => { this.note.textContent = ""; });
      canvas.addEventListener("wheel", event => {
        if (!this.box) return;
        event.preventDefault();
        const across = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX;
        if (Math.abs(across) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
          const by = across / (this.box.right - this.box.left) * (this.box.x1 - this.box.x0);
          zoom(this.box.x0 + by, this.box.x1 + by);
          return;
        }
        const middle = inverse(at(event)), factor = event.deltaY > 0 ? 1.25 : 0.8;
        zoom(middle - (middle - this.box.x0) * factor, middle + (this.box.x1 - middle) * factor);
      }, {passive: false});
      canvas.addEventListener("dblclick", () => { this.view = null; this.draw(); });
    }
    read(at) {
      const lines = this.visible().filter(line => line.x.length);
      if (!lines.length || !this.box || at < this.box.left) { this.note.textContent = ""; return; }
      const x = this.box.x0 + (at - this.box.left) / (this.box.right - this.box.left) * (this.box.x1 - this.box.x0);
      const near = line => {
        let [low, high] = [0, line.x.length - 1];
        while (low < high) { const k = (low + high) >> 1; if (this.toX(line.x[k]) < x) low = k + 1; else high = k; }
        return low && Math.abs(this.toX(line.x[low - 1]) - x) < Math.abs(this.toX(line.x[low]) - x) ? low - 1 : low;
      };
      this.note.textContent = lines.slice(0, 6).map(line => { const k = near(line); return `${line.label}: ${shown(line.y[k])} at ${shown(line.x[k])}`; }).join("   ");
    }
  }

  const legend = document.getElementById("legend"), place = document.getElementById("charts");
  const drawAll = () => charts.forEach(chart => chart.draw());
  picture.legend.forEach(([label, style]) => {
    const button = element("button", legend);
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    const sign = element("i", button);
    const kind = Math.floor(style / colours.length) % dashes.length;
    sign.style.borderTop = `3px ${kind === 0 ? "solid" : kind % 2 ? "dashed" : "dotted"} ${colour(style)}`;
    element("span", button, label);
    button.addEventListener("click", () => {
      const on = hidden.has(style);
      if (on) hidden.delete(style); else hidden.add(style);
      button.setAttribute("aria-pressed", String(on));
      drawAll();
    });
  });
  if (picture.dashed) element("span", legend, `dashed: ${picture.dashed}`);
  picture.panels.forEach(panel => new Chart(panel, place));
  drawAll();
  addEventListener("resize", drawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  document.body.dataset.drawn = String(charts.length);
  window.charts = charts;
})();
