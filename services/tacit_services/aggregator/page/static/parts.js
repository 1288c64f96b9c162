// Small helpers. Everything that came over the network goes in as text, never as markup.

export const at = (id) => document.getElementById(id);

// A text with "?" for each character that is not seen, or turns text around. Names come from others.
const HIDDEN = /(?!\n)[\p{C}\p{Zl}\p{Zp}]/gu;
const PLAIN = /^[ -~]*$/;  // most texts, told at once
const seen = (text) => (PLAIN.test(text) ? text : String(text).replace(HIDDEN, "?"));

// Set an element's text, only if it is another.
export function say(element, text) {
  if (element.textContent === text) return;
  const shown = seen(text);
  if (element.textContent !== shown) element.textContent = shown;
}

export function made(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = seen(text);
  if (className) element.className = className;
  return element;
}

// Give an element these children. Those that are alike stay as they are, so who reads or acts by the keyboard keeps their place.
export function refill(parent, children) {
  const active = document.activeElement;
  const place = parent.contains(active) ? labelOf(active) : null;
  children.forEach((next, number) => {
    const before = parent.children[number];
    if (!before) parent.append(next);
    else if (before.isEqualNode(next)) return;
    else if (before.tagName === "TR" && before.childElementCount === next.childElementCount) refill(before, [...next.children]);
    else before.replaceWith(next);
  });
  while (parent.childElementCount > children.length) parent.lastElementChild.remove();
  if (place && !parent.contains(document.activeElement)) {
    [...parent.querySelectorAll("a, button")].find((each) => labelOf(each) === place)?.focus({ preventScroll: true });
  }
}

const labelOf = (element) => element.getAttribute("aria-label") ?? element.textContent;

// A button of a table's row. act: what it does; label: what it says to who does not see the row; of: what it is about.
export function button(text, act, label, of) {
  const element = made("button", text);
  element.type = "button";
  element.setAttribute("aria-label", seen(label));
  element.dataset.of = of;
  element.addEventListener("click", act);
  return element;
}

// A row of a table, whose first cell is its heading. Cells are texts, or what stands in them.
export function row([heading, ...cells]) {
  const line = made("tr");
  const first = made("th");
  first.scope = "row";
  first.append(heading instanceof Node ? heading : seen(heading));
  line.append(first, ...cells.map((each) => {
    const cell = made("td");
    cell.append(...[each].flat().map((part) => (part instanceof Node ? part : seen(part))));
    return cell;
  }));
  return line;
}

// A list of what happened, each with its time.
export function happened(list, events) {
  refill(list, events.map(([time, text]) => {
    const line = made("li");
    line.append(made("time", time), made("span", text));
    return line;
  }));
}

// A list of terms and what they are.
export function terms(list, pairs) {
  refill(list, pairs.flatMap(([term, text]) => [made("dt", term), made("dd", text)]));
  return list;
}

// Words that may be a class name of ours; anything else is none.
const STATES = ["online", "refusing", "quarantined", "retired", "left", "offline", "unknown",
  "waiting", "training", "finished", "halted", "offered", "ended", "stopped", "failed"];
export const stateClass = (state) => (STATES.includes(state) ? state : "unknown");

let token = ""; // for reading, where the aggregator wants one; nowhere but here

// At a federation's host this page is one run's, /runs/RUN/, and so is all that it asks for.
const [, ofRun] = location.pathname.match(/^\/(runs\/[^/]+)\/$/) ?? [];
const placed = (path) => (ofRun ? path.replace("/v1/", `/v1/${ofRun}/`) : path);

// fetch, with the token, and never from a cache.
export function get(path, { headers, ...more } = {}) {
  const shown = token ? { Authorization: `Bearer ${token}` } : {};
  return fetch(placed(path), { cache: "no-store", ...more, headers: { ...shown, ...headers } });
}

// An answer that says no. faults: all that is wrong, where the answer has it.
export class Refused extends Error {
  constructor(status, text, faults = []) { super(text); this.status = status; this.faults = faults; }
}

export async function ask(path, options) {
  const answer = await get(path, options);
  const content = answer.status === 204 ? null : await answer.json();
  if (!answer.ok) throw new Refused(answer.status, content.detail || answer.statusText, content.faults);
  return content;
}

export const post = (path, body) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

const SILENT = 45000; // milliseconds; a living stream has a comment every 15 s

// The events of a stream, until it ends or breaks. (EventSource shows no token.)
export async function* events(path) {
  const end = new AbortController();
  const answer = await get(path, { signal: end.signal });
  if (!answer.ok) throw new Refused(answer.status, answer.statusText);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ;) {
    const silent = setTimeout(() => end.abort(), SILENT);
    const { value, done } = await reader.read().finally(() => clearTimeout(silent));
    if (done) return;
    const whole = (text + value).split(/\r?\n\r?\n/);
    text = whole.pop();
    for (const event of whole) {
      const data = event.split(/\r?\n/).filter((line) => line.startsWith("data:"));
      if (data.length) yield JSON.parse(data.map((line) => line.slice(5)).join("\n"));
    }
  }
}

// What is said where nobody answers; "": all is well.
export function lost(text) {
  at("lost").hidden = text === "";
  say(at("lost"), text);
}

let tried = false; // whether a token was typed

// Show the page: the one that is asked has answered.
export function opened() {
  lost("");
  at("locked").hidden = true;
}

// Ask for a token. wrong: what is said of one that was tried.
export function locked(wrong) {
  lost("");
  at("locked").hidden = false;
  say(at("locked-said"), tried ? wrong : "");
  at("read-token").focus();
}

// Try each token that is typed, by the next look.
export function whenUnlocked(look) {
  at("locked").addEventListener("submit", (event) => {
    event.preventDefault();
    tried = true;
    token = at("read-token").value.trim();
    look();
  });
}
