// The page of `plot` and `report`: the panels of #data; the legend hides runs.
import { Chart, element, palette, ticks } from "./chart.js";

const { picture, colours, dark, dashes } = JSON.parse(document.getElementById("data").textContent);
const hidden = new Set(),
  charts = [],
  look = { colours, dark, dashes, hidden };
const legend = document.getElementById("legend"),
  place = document.getElementById("charts");
const signs = [];
const drawAll = () => {
  signs.forEach((paint) => paint());
  charts.forEach((chart) => chart.draw());
};
picture.legend.forEach(([label, style]) => {
  const button = element("button", legend);
  button.type = "button";
  button.setAttribute("aria-pressed", "true");
  const sign = element("i", button);
  const kind = Math.floor(style / colours.length) % dashes.length;
  sign.style.borderTop = `3px ${kind === 0 ? "solid" : kind % 2 ? "dashed" : "dotted"}`;
  signs.push(() => {
    sign.style.borderTopColor = palette(look)[style % colours.length];
  });
  element("span", button, label);
  button.addEventListener("click", () => {
    const on = hidden.has(style);
    if (on) hidden.delete(style);
    else hidden.add(style);
    button.setAttribute("aria-pressed", String(on));
    drawAll();
  });
});
if (picture.dashed) element("span", legend, `dashed: ${picture.dashed}`);
picture.panels.forEach((panel) => charts.push(new Chart(panel, place, look)));
drawAll();
addEventListener("resize", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
document.body.dataset.drawn = String(charts.length);
Object.assign(window, { charts, ticks });
