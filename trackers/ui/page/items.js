// What was logged beside numbers: pictures, sounds, videos, texts, histograms.
import { Chart, element, value } from "./chart.js";
import { look, style, stylesOf } from "./selection.js";

export const whole = (value) => value.toLocaleString("en-US");
export const stepText = (step) => (step === null ? "" : `step ${whole(step)}`);
function enlarge(address, caption, save) {
  const box = element("dialog", document.body, null, "large"),
    close = element("button", box, "close"),
    shown = element("img", box);
  shown.src = address;
  shown.alt = caption || "";
  shown.addEventListener("load", () => {
    const fits = Math.min((innerWidth * 0.9) / shown.naturalWidth, (innerHeight * 0.75) / shown.naturalHeight);
    if (fits > 1) shown.classList.add("pixels");
    shown.style.width = `${Math.max(1, shown.naturalWidth * Math.min(fits, 16))}px`;
  });
  const line = element("div", box, null, "bar");
  element("span", line, [caption, save].filter(Boolean).join(" · "), "soft");
  close.type = "button";
  close.addEventListener("click", () => box.close());
  box.addEventListener("click", (event) => {
    if (event.target === box) box.close();
  });
  box.addEventListener("close", () => box.remove());
  box.showModal();
}
export function played(parent, kind, format, address, caption, label) {
  // an image, a sound or a video
  const made = element(
    kind === "audio" ? "audio" : kind === "video" && !["gif", "npy"].includes(format) ? "video" : "img",
    parent,
  );
  if (made instanceof HTMLMediaElement) {
    made.controls = true;
    made.preload = "metadata";
    made.setAttribute("aria-label", caption || label);
  } else {
    made.alt = caption || label;
    made.loading = "lazy";
    made.addEventListener("load", () => made.classList.toggle("large", made.naturalWidth > 400));
    made.tabIndex = 0;
    made.title = "enlarge";
    const large = () => enlarge(address, caption, label);
    made.addEventListener("click", large);
    made.addEventListener("keydown", (event) => {
      if (event.key === "Enter") large();
    });
  }
  made.addEventListener("error", async () => {
    const answer = await fetch(address).catch(() => null),
      why = answer && !answer.ok && (await answer.json().catch(() => null));
    made.replaceWith(element("p", null, why ? why.error : "it can't be shown", "soft"));
  });
  made.src = address;
  return made;
}
export function shownItem(run, one, place, number, item) {
  const box = element("div"),
    address = `media?${new URLSearchParams({ run, name: one.name, type: one.type, place, item: number })}`;
  if (item.text !== undefined) element("pre", box, item.text);
  else if (item.problem) element("p", box, item.problem, "soft");
  else if (item.counts) {
    const counts = item.counts.map(value),
      edges = item.edges.map(value);
    box.className = "distribution";
    const chart = new Chart(
      {
        title: "",
        x_label: "",
        lines: [],
        bars: [],
        distributions: [
          { label: one.name, style: style(run) < 0 ? stylesOf([run]).get(run) : style(run), counts, edges },
        ],
        blank: false,
        empty: "",
      },
      box,
      { ...look, hidden: new Set() },
    );
    chart.canvas.setAttribute("aria-label", `${one.name}, item ${number + 1}`);
    requestAnimationFrame(() => chart.draw());
  } else if (item.shown) played(box, one.type, item.format, address, item.caption, `${one.name}, item ${number + 1}`);
  else if (item.file) {
    const save = element("a", box, `save the file (${item.format})`);
    save.href = address;
    save.download = "";
  } else element("p", box, "it isn't on this disk", "soft");
  if (item.caption) element("div", box, item.caption, "soft");
  return box;
}
