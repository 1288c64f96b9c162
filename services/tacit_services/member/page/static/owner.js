// What a member's owner reads and decides, as the member answers it on this machine.

import { ask, at, locked, lost, made, opened, Refused, say, terms, whenUnlocked } from "./parts.js";
import { epsilon as rounded } from "./words.js";

const AGAIN = 2000; // milliseconds between two looks
const PILLS = { "waits for you": "waiting", accepted: "training", refused: "failed", ended: "ended", stopped: "stopped", failed: "failed" };
const shown = {}; // the last text of each part: who reads with the keyboard keeps their place
let open = null; // the offer that is being read

const number = (value) => value.toLocaleString("en", { maximumFractionDigits: 3 });
const epsilon = (value) => (value === null ? "not bounded" : rounded(value, false)); // up, as in every other place
const time = (at) => new Date(at * 1000).toLocaleString();
const bytes = (count) => `${number(count)} bytes`;

function fresh(name, content) {
  const text = JSON.stringify(content);
  if (shown[name] === text) return false;
  shown[name] = text;
  return true;
}

function button(text, act, label) {
  const element = made("button", text);
  element.type = "button";
  element.setAttribute("aria-label", label);
  element.addEventListener("click", act);
  return element;
}

// ε as a bar of what is left of the run's budget.
function spending(cost) {
  const cell = made("td", undefined, "spent");
  if (!cost) return cell;
  if (cost.budget) {
    const bar = made("progress");
    bar.max = cost.budget;
    bar.value = Math.min(cost.epsilon ?? cost.budget, cost.budget);
    bar.setAttribute("aria-label", "part of this run's ε that is spent");
    cell.append(bar, made("span", `ε ${epsilon(cost.epsilon)} of ${number(cost.budget)}`));
  } else cell.append(made("span", `ε ${epsilon(cost.epsilon)}`));
  return cell;
}

function row(offer) {
  const line = made("tr");
  const name = made("th", offer.run);
  name.scope = "row";
  const state = made("td");
  state.append(made("span", offer.state ?? offer.answer, `pill ${PILLS[offer.state ?? offer.answer] ?? "unknown"}`));
  if (offer.works) state.append(made("span", "works now", "why"));
  if (offer.reason && offer.answer === "refused") state.append(made("span", offer.reason, "why"));
  const acts = made("td");
  acts.append(button("Read", () => read(offer.run), `Read the offer ${offer.run}`));
  if ((offer.answer === "accepted" || offer.works) && !offer.state)
    acts.append(button("Withdraw", () => decide(offer, "withdraw"), `Withdraw from ${offer.run}`));
  line.append(name, state, spending(offer.cost), acts);
  return line;
}

function showOffers(offers) {
  if (!fresh("offers", offers)) return;
  at("offers").tBodies[0].replaceChildren(...offers.map(row));
  at("offers-empty").hidden = offers.length > 0;
  const other = open && offers.find((offer) => offer.run === open.run);
  if (other) at("decide").hidden = other.answer !== "waits for you";
}

async function read(run) {
  try {
    open = await ask(`/v1/offers/${encodeURIComponent(run)}`);
  } catch (error) {
    return say(at("said"), error.message);
  }
  say(at("offer-title"), `Offer ${open.run}`);
  at("sections").replaceChildren(...open.sections.flatMap(({ title, rows }) => [made("h3", title), part(rows)]));
  at("offer").hidden = false;
  at("offer-title").focus();
  shown.offers = "";
  await refresh();
}

// Rows with labels are terms; rows that are a list of sentences are one.
function part(rows) {
  if (rows.every(({ label }) => label === "-" || label === "")) {
    const list = made("ul");
    list.append(...rows.map(({ words }) => made("li", words)));
    return list;
  }
  return terms(made("dl"), rows.map(({ label, words }) => [label, words]));
}

async function decide(offer, action) {
  const sure = action !== "withdraw" || confirm(`Withdraw from ${offer.run}? Nothing leaves from then on. What has left stays with the host.`);
  if (!sure) return;
  try {
    const answer = await ask(`/v1/offers/${encodeURIComponent(offer.run)}/${action}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ fingerprint: offer.fingerprint }),
    });
    say(at("said"), answer.said);
    if (action !== "withdraw") shut();
  } catch (error) {
    say(at("said"), error.message);
  }
  await refresh();
}

function shut() {
  open = null;
  at("offer").hidden = true;
  at("said").scrollIntoView({ block: "nearest" });
}

function showLedger(ledger) {
  if (!fresh("ledger", ledger)) return;
  terms(at("life"), [
    ["data", ledger.dataset],
    ["over its life", `ε ${epsilon(ledger.life.epsilon)} at δ ${ledger.delta}, ${number(ledger.life.releases)} releases`],
  ]);
  const rows = ledger.runs.map((run) => {
    const line = made("tr");
    const name = made("th", run.run ?? (run.fingerprint ? `another member's run ${run.fingerprint.slice(0, 12)}` : "outside of federations"));
    name.scope = "row";
    line.append(name, made("td", number(run.releases), "number"), made("td", epsilon(run.epsilon), "number"));
    return line;
  });
  at("ledger").tBodies[0].replaceChildren(...rows);
}

function showLeft(runs) {
  if (!fresh("left", runs)) return;
  terms(at("totals"), runs.flatMap(({ run, totals }) => Object.entries(totals).map(([what, total]) =>
    [`${run}, ${what}`, `${number(total.messages)}: ${bytes(total.bytes)} since ${time(total.first)}`])));
  const all = runs.flatMap(({ run, latest }) => latest.map((each) => ({ run, ...each })));
  const latest = all.sort((a, b) => b.at - a.at).slice(0, 100);
  at("left").replaceChildren(...latest.map((each) => {
    const line = made("li");
    line.append(made("time", time(each.at)), made("span", `${each.run}: ${each.what}, ${bytes(each.bytes)}`));
    return line;
  }));
}

async function refresh() {
  const me = await ask("/v1/me");
  say(at("name"), me.name);
  say(at("me"), `${me.member} at ${me.host}, with ${me.data}`);
  showOffers(await ask("/v1/offers"));
  showLedger(await ask("/v1/ledger"));
  showLeft(await ask("/v1/departures"));
}

async function look() {
  try {
    await refresh();
    opened();
    document.documentElement.dataset.shown = "yes";
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return locked("This is not the token.");
    lost("The member does not answer. Does `tacit join --page` still run? What you see is what it last said.");
  }
  setTimeout(look, AGAIN);
}

at("accept").addEventListener("click", () => decide(open, "accept"));
at("decline").addEventListener("click", () => decide(open, "decline"));
at("close").addEventListener("click", shut);
whenUnlocked(look);
look();
