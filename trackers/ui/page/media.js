// The view of media.
import { ask, drawing, guarded, later, latest } from "./asking.js";
import { element } from "./chart.js";
import { shownItem, stepText, whole } from "./items.js";
import { field, link, main, search } from "./parts.js";
import { choose, chosen, colour, none, style } from "./selection.js";
import { go, state } from "./state.js";
import { axisOf, placeAt, stepBar } from "./steps.js";

const MEDIA_NAMES = 12;
const MEDIA_RUNS = 8;
const SIZES = { min: 64, max: 768, usual: 160 };
export function mediaView() {
  const bar = element("div", main, null, "bar"),
    out = element("div", main),
    more = element("p", main, "", "soft"),
    lost = element("p", main, "", "soft");
  const sections = new Map();
  let names = [],
    runs = [];
  search(bar, "name", state.mq, (mq) => {
    go({ mq }, { quiet: true });
    sections.clear();
    out.replaceChildren();
    refresh();
  });
  const steps = stepBar(bar, "step of all media", {
    get: () => state.mstep,
    set: (mstep) => {
      go({ mstep }, { quiet: true });
      slid();
    },
  });
  const slid = later(() => guarded(drawAll)(), 60);
  const size = field(bar, "size", "range", "", (msize) => {
    go({ msize: Number(msize) === SIZES.usual ? "" : msize }, { quiet: true });
    scale();
  });
  size.min = String(SIZES.min);
  size.max = String(SIZES.max);
  size.step = "16";
  size.value = state.msize || SIZES.usual;
  size.setAttribute("aria-label", "size of all images");
  const scale = () => out.style.setProperty("--size", `${Number(size.value) || SIZES.usual}px`);
  scale();
  const drawAll = async () => {
    await Promise.all([...sections.values()].map((one) => one()));
    main.dataset.drawn = String(steps.value() ?? "");
  };
  const refresh = latest(async (fresh) => {
    if (!state.sel) await choose(fresh);
    const found = await fresh(ask("gallery", { runs: chosen().join(",") })),
      word = state.mq.toLowerCase();
    runs = found.runs;
    lost.textContent = found.problems.join("; ");
    names = found.media.filter((one) => one.name.toLowerCase().includes(word));
    for (const one of [...steps.parts, size.parentElement]) one.hidden = !found.media.length;
    if (!names.length) {
      sections.clear();
      out.replaceChildren(
        element(
          "div",
          null,
          !runs.length ? none() : found.media.length ? "no name fits" : "the ticked runs have logged no media",
          "empty",
        ),
      );
      main.dataset.drawn = "empty";
      return;
    }
    out.querySelectorAll(".empty").forEach((one) => one.remove());
    const shown = names.slice(0, MEDIA_NAMES);
    more.textContent =
      names.length > MEDIA_NAMES ? `the first ${MEDIA_NAMES} of ${whole(names.length)} names: search` : "";
    steps.show(axisOf(shown.flatMap((one) => Object.values(one.runs))));
    for (const one of shown) {
      const id = JSON.stringify([one.name, one.type, Object.keys(one.runs).slice(0, MEDIA_RUNS)]);
      if (!sections.has(id)) sections.set(id, section(one));
      sections.get(id).take(one);
    }
    await drawAll();
  }, drawing);
  function section(first) {
    const box = element("section", out, null, "gallery"),
      head = element("h2", box, first.name),
      grid = element("div", box, null, "columns");
    element("span", head, ` ${first.type}`, "soft");
    const drawn = {};
    let one = first;
    const having = runs.filter((run) => first.runs[run.key]),
      parts = having.slice(0, MEDIA_RUNS).map((run) => {
        const part = element("div", grid, null, "column"),
          title = element("div", part, null, "title");
        const name = link({ tab: "run", run: run.key }, title, run.name),
          where = element("span", title, "", "soft"),
          items = element("div", part, null, "media");
        title.style.borderBottom = `3px solid ${colour(style(run.key))}`;
        name.title = run.name;
        return { key: run.key, where, items };
      });
    if (having.length > MEDIA_RUNS) element("p", box, `the first ${MEDIA_RUNS} of ${having.length} runs`, "soft");
    const draw = async () => {
      await Promise.all(
        parts.map(async (part) => {
          const list = one.runs[part.key] || [],
            place = placeAt(list, steps.value());
          const mark = `${place} ${list[place]}`;
          if (drawn[part.key] === mark) return;
          drawn[part.key] = mark;
          if (place < 0) {
            part.where.textContent = "not yet";
            part.items.replaceChildren();
            return;
          }
          const found = await ask("items", { run: part.key, name: one.name, type: one.type, place });
          if (drawn[part.key] !== mark) return;
          part.where.textContent = stepText(found.step);
          part.items.replaceChildren(
            ...found.items.map((item, number) => shownItem(part.key, one, place, number, item)),
          );
        }),
      );
    };
    draw.take = (now) => {
      one = now;
    };
    return draw;
  }
  return {
    refresh,
    watched: () =>
      chosen()
        .filter((one) => one !== "none")
        .slice(0, MEDIA_RUNS),
    changed: refresh,
  };
}
