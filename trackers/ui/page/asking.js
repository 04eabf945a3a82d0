// Questions to the server, and which of their answers count.

export const live = document.getElementById("live");
export const problem = document.getElementById("problem");
export async function ask(question, given = {}) {
  let answer;
  try {
    answer = await fetch(`api/${question}?${new URLSearchParams(given)}`);
  } catch (error) {
    live.className = "off";
    live.textContent = "not connected";
    throw error;
  }
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}
export const say = (error) => {
  problem.textContent = error instanceof TypeError ? "" : error.message;
};
const LATE = Symbol("late");
export const drawing = { turn: 0 };
export const guarded =
  (action) =>
  async (...given) => {
    try {
      await action(...given);
      problem.textContent = "";
    } catch (error) {
      if (error !== LATE) say(error);
    }
  };
// What an action asks through fresh counts until it begins anew, or another action with the same turns: then the answer is
// dropped, an error too. All views have the turns of drawing.
export const latest = (action, turns = { turn: 0 }) =>
  guarded(async (...given) => {
    const turn = ++turns.turn;
    const fresh = (answer) =>
      answer.finally(() => {
        if (turn !== turns.turn) throw LATE;
      });
    await action(fresh, ...given);
  });
export function later(action, wait) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...given), wait);
  };
}
