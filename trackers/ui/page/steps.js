// A slider over the steps at which something was logged.
import { element } from "./chart.js";
import { whole } from "./items.js";

export const axisOf = (lists) => {
  // all steps; where some have none, the number of each table
  const every = lists.flat();
  return every.includes(null)
    ? [...Array(Math.max(0, ...lists.map((one) => one.length))).keys()]
    : [...new Set(every)].sort((a, b) => a - b);
};
export const placeAt = (steps, value) => {
  // the last one logged until then
  if (value === undefined) return steps.length - 1;
  if (steps.includes(null)) return Math.min(value, steps.length - 1);
  let found = -1;
  steps.forEach((step, place) => {
    if (step <= value && (found < 0 || steps[found] <= step)) found = place;
  });
  return found;
};
export function stepBar(bar, label, kept, words = "step") {
  // a slider; kept: reads and writes the state's value, "" for the last
  const box = element("label", bar, words),
    slide = element("input", box),
    where = element("span", bar, "", "soft step");
  slide.type = "range";
  slide.min = "0";
  slide.setAttribute("aria-label", label);
  let axis = [];
  const value = () => (kept.get() === "" ? axis[axis.length - 1] : Number(kept.get()));
  const tell = () => {
    where.textContent = axis.length ? `${whole(value())}${kept.get() === "" ? " (last)" : ""}` : "";
  };
  slide.addEventListener("input", () => {
    const place = Number(slide.value);
    kept.set(place === axis.length - 1 ? "" : String(axis[place]));
    tell();
  });
  return {
    value,
    parts: [box, where],
    show: (found) => {
      axis = found;
      slide.max = String(Math.max(0, axis.length - 1));
      slide.disabled = axis.length < 2;
      const place = axis.findLastIndex((step) => step <= value());
      slide.value = String(Math.max(0, place));
      tell();
    },
  };
}
