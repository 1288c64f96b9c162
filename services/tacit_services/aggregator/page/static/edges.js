// The table of edges. A row is written anew only where something in it has changed.

import { at, made, say, stateClass } from "./parts.js";
import { count, epsilon, short } from "./words.js";

const PAGE = 500;
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
  const answer = await fetch(path, { headers: asked, cache: "no-store" });
  if (answer.status === 304) return before;
  if (!answer.ok) throw new Error(answer.statusText);
  return { after, etag: answer.headers.get("ETag"), edges: await answer.json() };
}

export function show(edges) {
  at("edges-empty").hidden = edges.length > 0;
  const wanted = at("filter").value;
  const fresh = document.createDocumentFragment();
  for (const edge of edges) {
    if (!rows.has(edge.id)) fresh.append(added(edge.id));
    const kept = rows.get(edge.id);
    const content = JSON.stringify([edge.state, edge.epsilon_pld, edge.pushes, edge.updates,
      edge.retired, edge.refusal, edge.bound]);
    if (kept.last !== content) write(kept, edge);
    kept.last = content;
    kept.row.hidden = wanted !== "" && edge.state !== wanted;
  }
  at("edges").tBodies[0].append(fresh);
}

function added(id) {
  const row = made("tr");
  const name = made("th", id);
  name.scope = "row";
  row.append(name, made("td"), made("td", undefined, "spent"), made("td", "", "number"),
    made("td", "", "number"));
  rows.set(id, { row, last: "" });
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
  const share = edge.epsilon_pld === null || !budget ? 0 : Math.min(1, edge.epsilon_pld / budget);
  bar.max = 1;
  bar.value = share;
  bar.className = share > 0.9 ? "nearly" : "";
  bar.setAttribute("aria-label", `ε spent by ${edge.id}`);
  say(text, edge.epsilon_pld === null ? "no guarantee"
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
