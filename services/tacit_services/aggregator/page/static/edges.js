// The table of edges. A row is written anew only where something in it has changed.

import { at, get, made, say, stateClass } from "./parts.js";
import { count, epsilon, short } from "./words.js";

const PAGE = 500;
const NATURAL = new Intl.Collator("en", { numeric: true }); // edge-2 before edge-10
// Rows are made so many at a time: in between, the page draws, and hears whoever uses it.
const BATCH = 50;
const turn = () => new Promise((done) => { setTimeout(done, 0); });
const rows = new Map(); // by id: {row, last}
let known = []; // pages, as they were answered: {etag, edges}

// All edges, a page at a time; pages that have not changed are not sent again.
export async function fetched() {
  const pages = [];
  for (let after = "", place = 0; ; place += 1) {
    const page = await onePage(after, known[place]);
    pages.push(page);
    if (page.edges.length < PAGE) break;
    after = page.edges[page.edges.length - 1].id;
  }
  known = pages;
  return pages.flatMap((page) => page.edges);
}

async function onePage(after, before) {
  const asked = before && before.after === after ? { "If-None-Match": before.etag } : {};
  const path = `/v1/edges?limit=${PAGE}&after=${encodeURIComponent(after)}`;
  const answer = await get(path, { headers: asked });
  if (answer.status === 304) return before;
  if (!answer.ok) throw new Error(answer.statusText);
  return { after, etag: answer.headers.get("ETag"), edges: await answer.json() };
}

export async function show(edges) {
  at("edges-empty").hidden = edges.length > 0;
  countStates(edges);
  const wanted = at("filter").value;
  let [before, fresh] = [null, 0];
  for (const edge of [...edges].sort((one, other) => NATURAL.compare(one.id, other.id))) {
    if (!rows.has(edge.id)) {
      if (fresh > 0 && fresh % BATCH === 0) await turn();
      fresh += 1;
      rows.set(edge.id, { row: added(edge.id), last: "" });
      if (before) before.after(rows.get(edge.id).row);
      else at("edges").tBodies[0].prepend(rows.get(edge.id).row);
    }
    const kept = rows.get(edge.id);
    const content = JSON.stringify([edge.state, edge.epsilon_pld, edge.pushes, edge.updates,
      edge.retired, edge.refusal, edge.bound]);
    if (kept.last !== content) write(kept, edge);
    kept.last = content;
    kept.row.hidden = wanted !== "" && edge.state !== wanted;
    before = kept.row;
  }
}

// How many edges stand so: among hundreds, the few that need a look are found by it.
function countStates(edges) {
  const counts = new Map([["", edges.length]]);
  for (const { state } of edges) counts.set(state, 1 + (counts.get(state) ?? 0));
  for (const option of at("filter").options) {
    say(option, `${option.value || "all"} (${count(counts.get(option.value) ?? 0)})`);
  }
}

function added(id) {
  const row = made("tr");
  const name = made("th", id);
  name.scope = "row";
  row.append(name, made("td"), made("td", undefined, "spent"), made("td", "", "number"),
    made("td", "", "number"));
  return row;
}

function write({ row }, edge) {
  const [, state, spent, pushes, updates] = row.cells;
  const why = edge.retired || edge.quarantine || (edge.state === "refusing" ? edge.refusal : "");
  state.replaceChildren(made("span", edge.state, stateClass(edge.state)));
  if (why) state.append(made("span", why, "why"));
  if (edge.state === "quarantined") state.append(" ", release(edge.id));
  say(pushes, count(edge.pushes));
  say(updates, count(edge.updates));
  if (spent.childElementCount === 0) spent.append(made("progress"), made("span", "", "quiet"));
  const [bar, text] = spent.children;
  const budget = edge.budget ?? 0;
  const ofRun = edge.budget_of === "run"; // then ε counts other runs, too, and is no part of it
  bar.hidden = ofRun;
  const share = edge.epsilon_pld === null || !budget ? 0 : Math.min(1, edge.epsilon_pld / budget);
  bar.max = 1;
  bar.value = share;
  bar.className = share > 0.9 ? "nearly" : "";
  bar.setAttribute("aria-label", `ε spent by ${edge.id}`);
  say(text, edge.epsilon_pld === null ? "no guarantee"
    : ofRun ? `${epsilon(edge.epsilon_pld, edge.bound)} in all runs; limit of this one ${short(budget)}`
      : `${epsilon(edge.epsilon_pld, edge.bound)} of ${short(budget)}`);
}

// Pressed, it asks with the operator's token (page.js).
function release(id) {
  const button = made("button", "release");
  button.type = "button";
  button.dataset.release = id;
  button.setAttribute("aria-label", `release ${id}`);
  return button;
}

at("filter").addEventListener("change", () => show(known.flatMap((page) => page.edges)));
