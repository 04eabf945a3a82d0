// What the page changes: runs, with an undo, and saved views. Nothing where the server only shows.
import { ask, guarded, problem } from "./asking.js";
import { element } from "./chart.js";
import { counted, fill } from "./parts.js";
import { hash, state } from "./state.js";

const STAR = "starred";
let token = "",
  place = "";
export const may = () => Boolean(token);
export const learn = async () => {
  ({ token, place } = await ask("may"));
};
export const starred = (row) => row.tags.includes(STAR);

/**
 * @param {string} what
 * @param {Record<string, any>} deed
 */
async function act(what, deed) {
  const answer = await fetch(`do/${what}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Trackers-Token": token },
    body: JSON.stringify(deed),
  });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}

// What was done is said for a while, with a button that takes it back where that can be.
function tell(words, back = null, after = null) {
  document.querySelector(".done")?.remove();
  const box = element("div", document.body, null, "done");
  box.setAttribute("role", "status");
  element("span", box, words);
  setTimeout(() => box.remove(), 20_000);
  if (!back) return;
  const button = element("button", box, "undo");
  button.type = "button";
  button.addEventListener(
    "click",
    guarded(async () => {
      box.remove();
      await back();
      after();
    }),
  );
}
async function change(runs, given, after) {
  const found = await act("edit", { runs, ...given });
  const changed = Object.keys(found.done).filter((key) => found.done[key].length);
  if (changed.length) tell(`changed ${counted(changed.length)}`, () => act("undo", { runs: changed }), after);
  after();
  if (found.problems.length) problem.textContent = found.problems.join("; ");
}
async function remove(runs, after) {
  const found = await act("remove", { runs });
  const gone = Object.values(found.done);
  if (gone.length) tell(`deleted ${counted(gone.length)}`, () => act("restore", { runs: gone }), after);
  after();
  if (found.problems.length) problem.textContent = found.problems.join("; ");
}
export const star = (row, after) =>
  guarded(() => change([row.key], starred(row) ? { drop: [STAR] } : { add: [STAR] }, after))();

// A form that asks a run that goes on to stop.
export function stopper(parent, run, after) {
  const box = element("details", parent, null, "pop edit stop");
  element("summary", box, "stop ▾");
  const form = element("form", box);
  const reason = element("input", element("label", form, "why"));
  reason.maxLength = 500;
  const save = element("input", element("label", form, "save a checkpoint before"));
  save.type = "checkbox";
  element("button", element("div", form, null, "bar"), "stop this run", "bad");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    guarded(async () => {
      const found = await act("stop", { runs: [run], reason: reason.value, checkpoint: save.checked });
      box.open = false;
      if (found.done[run]) tell(`asked to stop: ${found.done[run]}`);
      after();
      if (found.problems.length) problem.textContent = found.problems.join("; ");
    })();
  });
  return box;
}

// A form that changes runs: of one run all that can be changed, of several what they have in common.
export function editor(parent, label, runs, one, after) {
  if (!may()) return null;
  const box = element("details", parent, null, "pop edit");
  element("summary", box, label);
  const form = element("form", box);
  /** @type {[string, string, string][]} */
  const fields = one
    ? [
        ["name", "name", one.name],
        ["tags", "tags, with commas between", one.tags.join(", ")],
        ["group", "group", one.group],
        ["notes", "notes", one.notes],
      ]
    : [
        ["add", "add tags, with commas between", ""],
        ["drop", "remove tags", ""],
        ["group", "group", ""],
      ];
  const made = fields.map(([name, title, value]) => {
    const field = element(name === "notes" ? "textarea" : "input", element("label", form, title));
    field.value = value;
    return field;
  });
  const split = (text) =>
    text
      .split(",")
      .map((word) => word.trim())
      .filter(Boolean);
  const bar = element("div", form, null, "bar");
  const save = element("button", bar, "save"),
    gone = element("button", bar, "delete", "bad");
  gone.type = "button";
  gone.title = "to the trash, and from trackers that can bring it back: there is an undo";
  const done = () => {
    box.open = false;
    after();
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const given = {};
    fields.forEach(([name, , value], k) => {
      const now = made[k].value;
      if (now !== value) given[name] = ["tags", "add", "drop"].includes(name) ? split(now) : now;
    });
    guarded(() => change(runs(), given, done))();
  });
  gone.addEventListener(
    "click",
    guarded(async () => {
      if (gone.textContent === "delete") {
        gone.textContent = `delete ${counted(runs().length)}: sure?`;
        save.type = "button";
        return;
      }
      await remove(runs(), done);
    }),
  );
  box.addEventListener("toggle", () => {
    if (box.open) return;
    gone.textContent = "delete";
    save.type = "submit";
  });
  return box;
}

// ---- saved views: what stands behind # in the address, by name
const picker = /** @type {HTMLSelectElement} */ (document.getElementById("views"));
let kept = {};
function offer(views) {
  kept = views;
  const names = Object.keys(kept);
  const keep = may() ? [["+", "keep this view…"]] : [];
  const drop = may() ? names.map((name) => [`-${name}`, `forget ${name}`]) : [];
  fill(picker, [["", "views"], ...names.map((name) => [`=${name}`, name]), ...keep, ...drop], "");
  picker.hidden = !names.length && !may();
}
export const readViews = guarded(async () => offer((await ask("views", { project: state.project })).views));
picker.addEventListener(
  "change",
  guarded(async () => {
    const [kind, name] = [picker.value[0], picker.value.slice(1)];
    picker.value = "";
    if (kind === "=") location.hash = kept[name];
    else if (kind === "-") offer((await act("view", { view: name, project: state.project })).views);
    else if (kind === "+") ask_name();
  }),
);
function ask_name() {
  const box = element("dialog", document.body),
    form = element("form", box);
  const field = element("input", element("label", form, "name of this view"));
  field.required = true;
  field.maxLength = 200;
  element("button", form, "keep");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    guarded(async () => {
      const given = { view: field.value, address: hash({}).slice(1), project: state.project };
      offer((await act("view", given)).views);
      box.close();
    })();
  });
  box.addEventListener("close", () => box.remove());
  box.showModal();
}

// ---- the last view is kept by the browser, and is back where an address says nothing: all but which runs it showed
export function restoreLast() {
  const name = `trackers ${place}`;
  const keep = () =>
    localStorage.setItem(name, hash({ sel: "", run: "", pin: "", zoom: "", base: "", ta: "", tb: "" }));
  addEventListener("pagehide", keep);
  document.addEventListener("visibilitychange", keep);
  const last = localStorage.getItem(name);
  if (!location.hash && last) history.replaceState(null, "", last);
}
