// Small helpers. Everything that came over the network goes in as text, never as markup.

export const at = (id) => document.getElementById(id);

// Set an element's text, only if it is another.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function made(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

// A list of terms and what they are.
export function terms(list, pairs) {
  list.replaceChildren(...pairs.flatMap(([term, text]) => [made("dt", term), made("dd", text)]));
  return list;
}

// Words that may be a class name of ours; anything else is none.
const STATES = ["online", "refusing", "quarantined", "retired", "left", "offline", "unknown",
  "waiting", "training", "finished", "halted"];
export const stateClass = (state) => (STATES.includes(state) ? state : "unknown");

export async function ask(path, options) {
  const answer = await fetch(path, { cache: "no-store", ...options });
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.detail || answer.statusText);
  return content;
}
