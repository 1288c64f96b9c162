// What a member's owner reads and decides, as the member answers it on this machine.

import { ask, at, button, happened, locked, lost, made, opened, post, refill, Refused, row, say, terms, whenUnlocked } from "./parts.js";
import { epsilon as rounded, moment } from "./words.js";

const AGAIN = 2000; // milliseconds between two looks
const PILLS = { "waits for you": "waiting", accepted: "training", refused: "failed", ended: "ended", stopped: "stopped", failed: "failed" };
let open = null; // the offer that is being read

const number = (value) => value.toLocaleString("en", { maximumFractionDigits: 3 });
const epsilon = (value) => (value === null ? "not bounded" : rounded(value, false)); // up, as in every other place
const bytes = (count) => `${number(count)} bytes`;

// ε as a bar of what is left of the run's budget.
function spending(cost) {
  if (!cost) return [];
  if (!cost.budget) return [made("span", `ε ${epsilon(cost.epsilon)}`)];
  const bar = made("progress");
  bar.max = cost.budget;
  bar.value = Math.min(cost.epsilon ?? cost.budget, cost.budget);
  bar.setAttribute("aria-label", "part of this run's ε that is spent");
  return [bar, made("span", `ε ${epsilon(cost.epsilon)} of ${number(cost.budget)}`)];
}

function line(offer) {
  const state = [made("span", offer.state ?? offer.answer, `pill ${PILLS[offer.state ?? offer.answer] ?? "unknown"}`)];
  if (offer.works) state.push(made("span", "works now", "why"));
  if (offer.reason && offer.answer === "refused") state.push(made("span", offer.reason, "why"));
  const acts = [button("Read", () => read(offer.run), `Read the offer ${offer.run}`, offer.run)];
  if ((offer.answer === "accepted" || offer.works) && !offer.state)
    acts.push(button("Withdraw", () => decide(offer, "withdraw"), `Withdraw from ${offer.run}`, offer.fingerprint));
  const cells = row([offer.run, state, spending(offer.cost), acts]);
  cells.children[2].className = "spent";
  return cells;
}

function showOffers(offers) {
  refill(at("offers").tBodies[0], offers.map(line));
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
    const answer = await post(`/v1/offers/${encodeURIComponent(offer.run)}/${action}`, { fingerprint: offer.fingerprint });
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
  terms(at("life"), [
    ["data", ledger.dataset],
    ["over its life", `ε ${epsilon(ledger.life.epsilon)} at δ ${ledger.delta}, ${number(ledger.life.releases)} releases`],
  ]);
  refill(at("ledger").tBodies[0], ledger.runs.map((run) => {
    const name = run.run ?? (run.fingerprint ? `another member's run ${run.fingerprint.slice(0, 12)}` : "outside of federations");
    const cells = row([name, number(run.releases), epsilon(run.epsilon)]);
    for (const cell of cells.querySelectorAll("td")) cell.className = "number";
    return cells;
  }));
}

function showLeft(runs) {
  terms(at("totals"), runs.flatMap(({ run, totals }) => Object.entries(totals).map(([what, total]) =>
    [`${run}, ${what}`, `${number(total.messages)}: ${bytes(total.bytes)} since ${moment(total.first)}`])));
  const all = runs.flatMap(({ run, latest }) => latest.map((each) => ({ run, ...each })));
  const latest = all.sort((a, b) => b.at - a.at).slice(0, 100);
  happened(at("left"), latest.map((each) => [moment(each.at), `${each.run}: ${each.what}, ${bytes(each.bytes)}`]));
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
