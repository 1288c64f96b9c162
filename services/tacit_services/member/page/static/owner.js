// What a member's owner reads and decides, as the member answers it on this machine.

import { ask, at, button, locked, lost, made, opened, post, refill, Refused, row, say, terms, whenUnlocked } from "./parts.js";
import { showLeft } from "./owner_left.js";
import { report } from "./owner_report.js";
import { epsilon as rounded, moment, several } from "./words.js";

const AGAIN = 2000; // milliseconds between two looks
const PILLS = { "waits for you": "waiting", accepted: "training", refused: "failed", ended: "ended", stopped: "stopped", failed: "failed" };
const LABELS = { accept: "Accept", decline: "Decline", withdraw: "Withdraw", confirm: "Confirm the key" };
const STAYS = "What has left by then stays with the host for good, and what it has cost stays spent.";
let open = null; // the offer that is being read
let acting = false; // whether an answer is on its way
let unlocked = false; // whether a token of this page was ever right

const number = (value) => value.toLocaleString("en", { maximumFractionDigits: 3 });
const epsilon = (value) => (value === null ? "not bounded" : rounded(value, false)); // up, as in every other place
const day = (seconds) => new Date(seconds * 1000).toLocaleDateString();
const over = (offer) => Boolean(offer.state);

// What a run has cost, with its part of the run's budget as a bar while it goes on.
function spending(offer) {
  const { cost } = offer;
  if (offer.answer === "waits for you" && !over(offer) && offer.most) return [made("span", `may cost ε ${number(offer.most)} at most`)];
  if (!cost) return [];
  const words = `${over(offer) ? "has cost" : "spent"} ε ${epsilon(cost.epsilon)}${cost.budget ? ` of ${number(cost.budget)}` : ""}`;
  if (!cost.budget || over(offer) || offer.answer !== "accepted") return [made("span", words)];
  const bar = made("progress");
  bar.max = cost.budget;
  bar.value = Math.min(cost.epsilon ?? cost.budget, cost.budget);
  bar.setAttribute("aria-label", "part of this run's ε that is spent");
  return [bar, made("span", words)];
}

// Who asks, and when what happened.
function dates(offer) {
  const who = offer.by_policy ? "by your policy" : "by you";
  return [
    offer.researcher && `asked by ${offer.researcher}`,
    offer.offered_at && `offered ${day(offer.offered_at)}`,
    over(offer) && offer.answer === "waits for you" && "not answered",
    offer.answered && `${offer.answer === "withdrawn" ? "accepted" : offer.answer} ${day(offer.answered)} ${who}`,
    offer.withdrawn && `withdrawn ${day(offer.withdrawn)}`,
    offer.ended && `${offer.state} ${day(offer.ended)}`,
  ].filter(Boolean).join(", ");
}

function line(offer) {
  const item = made("li");
  const about = made("div");
  const heading = made("h3", offer.run);
  about.append(heading, made("span", offer.state ?? offer.answer, `pill ${PILLS[offer.state ?? offer.answer] ?? "unknown"}`));
  if (offer.works) about.append(made("span", " works now", "why"));
  if (offer.looks) about.append(made("span", " your member reads it, and the rows that it asks for", "why busy"));
  about.append(made("div", dates(offer), "why"));
  if (offer.reason && offer.answer === "refused") about.append(made("div", offer.reason, "why"));
  const cost = made("div");
  cost.append(...spending(offer));
  const acts = made("div", undefined, "acts");
  if (offer.fingerprint) acts.append(act("Read", () => read(offer.run), `Read the offer ${offer.run}`, offer.run));
  if (offer.reports) acts.append(act("What was it worth?", () => report(offer.run), `What was ${offer.run} worth to you?`, offer.run));
  if (offer.actions.includes("withdraw") || offer.works)
    acts.append(act("Withdraw", () => decide(offer, "withdraw"), `Withdraw from ${offer.run}`, offer.fingerprint));
  item.append(about, cost, acts);
  return item;
}

function act(text, does, label, of) {
  const made_ = button(text, does, label, of);
  made_.disabled = acting;
  return made_;
}

function summary(offers) {
  const count = (test) => offers.filter((offer) => !over(offer) && test(offer)).length;
  const waiting = count(({ answer }) => answer === "waits for you");
  const keys = count(({ actions }) => actions.includes("confirm"));
  const accepted = count(({ answer }) => answer === "accepted");
  const words = [waiting ? `${several(waiting, "offer")} ${waiting === 1 ? "waits" : "wait"} for you.` : "No offer waits for you."];
  if (keys) words.push(`${several(keys, "offer")} came with a key that you have not confirmed.`);
  if (accepted) words.push(`${several(accepted, "accepted run")} may use your data.`);
  return words.join(" ");
}

function showOffers(offers) {
  say(at("summary"), summary(offers));
  const looked = offers.filter(({ looks }) => looks).map(({ run }) => run);
  at("looks").hidden = looked.length === 0;
  say(at("looks"), looked.length ? `Your member looks at ${looked.join(", ")}: it reads the offer, and your rows. Nothing leaves.` : "");
  refill(at("offers"), offers.map(line));
  at("offers-empty").hidden = offers.length > 0;
}

// An offer that is open is read again when it stands in another way: its words are others then.
async function follow(offers) {
  const other = open && offers.find(({ run }) => run === open.run);
  if (!other || acting || (other.answer === open.answer && other.state === open.state)) return;
  try {
    showOffer(await ask(`/v1/offers/${encodeURIComponent(open.run)}`));
  } catch (error) {
    say(at("changed"), error.message);
  }
}

async function read(run) {
  busy(`Reads ${run} …`);
  try {
    showOffer(await ask(`/v1/offers/${encodeURIComponent(run)}`));
    done("");
    say(at("changed"), "");
    at("offer-title").focus();
  } catch (error) {
    done(error.message);
  }
  await refresh();
}

function showOffer(offer) {
  open = offer;
  say(at("offer-title"), `Offer ${open.run}`);
  refill(at("sections"), open.sections.flatMap(({ title, rows }) => [made("h3", title), part(rows)]));
  at("offer").hidden = false;
  showActs();
}

function showActs() {
  const { run } = open;
  refill(at("decide"), open.actions.map((action) => act(LABELS[action], () => decide(open, action), `${LABELS[action]}: ${run}`, open.fingerprint + open.costs)));
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

// What an owner is asked before an answer that lets something leave, or that ends it.
function question(offer, action) {
  if (action === "accept") {
    const figure = offer.in_short || "This run promises no privacy: an update may tell of single rows";
    return `Accept ${offer.run}?\n\n${figure}.\n\nYou may withdraw at any time: nothing leaves from then on. ${STAYS}`;
  }
  if (action === "withdraw") return `Withdraw from ${offer.run}?\n\nNothing leaves from then on. ${STAYS} You may accept it again while its run goes on.`;
  if (action === "confirm") return `Is this the key of ${offer.researcher}? Ask them, by another way, first. From then on offers with this key count as theirs.`;
  return null;
}

async function decide(offer, action) {
  const asked = question(offer, action);
  if (asked !== null && !confirm(asked)) return;
  busy(action === "withdraw" ? `Withdraws from ${offer.run}, and waits until its work has ended …` : `Enters your answer to ${offer.run} …`);
  const answer = { fingerprint: offer.fingerprint, ...(action === "accept" ? { costs: offer.costs } : {}) };
  try {
    const { said } = await post(`/v1/offers/${encodeURIComponent(offer.run)}/${action}`, answer);
    done(`${said}.`);
    if (open && open.run === offer.run) shut();
    else at("said").focus();
  } catch (error) {
    done("");
    await again(offer, action, error);
  }
  await refresh();
}

// An answer was refused. What it was to is shown as it is now, and asked for again.
async function again(offer, action, refusal) {
  const place = action === "withdraw" ? at("said") : at("changed");
  say(place, `${refusal.message}. Nothing was entered.${action === "accept" ? " Below stands what holds now." : ""}`);
  try {
    if (place === at("changed")) showOffer(await ask(`/v1/offers/${encodeURIComponent(offer.run)}`));
  } catch {
    say(place, `${refusal.message}. Nothing was entered. Read it again in a moment.`);
  }
  place.focus();
}

function busy(words) {
  acting = true;
  at("said").className = "busy";
  say(at("said"), words);
  for (const each of document.querySelectorAll("#offers button, #decide button")) each.disabled = true;
}

function done(words) {
  acting = false;
  at("said").className = "";
  say(at("said"), words);
  for (const each of document.querySelectorAll("#offers button, #decide button")) each.disabled = false;
}

function shut() {
  open = null;
  at("offer").hidden = true;
  (at("said").textContent ? at("said") : at("summary")).focus();
}

// What is spent, promised and left of the owner's bound, as a bar and in words.
function showBound(lifetime) {
  if (!lifetime) {
    refill(at("bound"), [made("p", "You have set no bound on what this data may spend in all. A policy file sets one (lifetime_epsilon).", "quiet")]);
    return;
  }
  const { spent, promised, left } = lifetime;
  const bar = made("div", undefined, "parts");
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", `${spent} % spent, ${promised} % promised, ${left} % left`);
  for (const [kind, part] of [["spent", spent], ["promised", Math.min(promised, 100 - spent)]]) {
    const piece = made("span", undefined, kind);
    piece.style.width = `${part}%`;
    bar.append(piece);
  }
  const key = made("ul", undefined, "key");
  key.append(made("li", `spent ${spent} %`, "spent"), made("li", `promised ${promised} %`, "promised"), made("li", `left ${left} %`));
  const words = [`Your bound: ε ${number(lifetime.epsilon)} at δ ${lifetime.delta}, over all runs of this data. No run goes beyond it.`];
  if (lifetime.runs.length) words.push(`Promised: what accepted runs may still spend (${lifetime.runs.join(", ")}).`);
  if (spent + promised > 100) words.push("More is promised than there is: the bound ends runs early.");
  refill(at("bound"), [made("p", words.join(" ")), bar, key, made("p", lifetime.words, "quiet")]);
}

function showLedger(ledger) {
  showBound(ledger.lifetime);
  terms(at("life"), [
    ["data", ledger.dataset],
    ["in all", `ε ${epsilon(ledger.life.epsilon)} at δ ${ledger.delta}, ${number(ledger.life.releases)} releases`],
  ]);
  refill(at("ledger").tBodies[0], ledger.runs.map((run) => {
    const heading = made("span", run.run ?? (run.fingerprint ? `another member's run ${run.fingerprint.slice(0, 12)}` : "outside of federations"));
    const who = [run.researcher, run.began && `from ${day(run.began)}`, run.ended && `to ${day(run.ended)}`].filter(Boolean).join(", ");
    if (who) heading.append(made("span", who, "why"));
    const cells = row([heading, number(run.releases), `${epsilon(run.epsilon)}${run.budget ? ` of ${number(run.budget)}` : ""}`]);
    for (const cell of cells.querySelectorAll("td")) cell.className = "number";
    return cells;
  }));
}

// Let the list tell of each run what the ledger does, though a run spends between two questions.
function agree(offers, ledger) {
  const spent = new Map(ledger.runs.map((run) => [run.fingerprint, run]));
  for (const { fingerprint, cost } of offers) {
    const { epsilon: newest, releases } = spent.get(fingerprint) ?? {};
    if (cost && releases !== undefined) Object.assign(cost, { epsilon: newest, releases });
  }
}

async function refresh() {
  const me = await ask("/v1/me");
  say(at("name"), me.name);
  say(at("me"), `A member of the federation at ${me.host.replace("https://", "")}, with the rows in ${me.data}`);
  const [offers, ledger] = [await ask("/v1/offers"), await ask("/v1/ledger")];
  agree(offers, ledger);
  showOffers(offers);
  showLedger(ledger);
  await follow(offers);
  await showLeft(await ask("/v1/departures"));
}

async function look() {
  try {
    await refresh();
    opened();
    document.documentElement.dataset.shown = "yes";
    if (!unlocked) at("summary").focus({ preventScroll: true });
    unlocked = true;
  } catch (error) {
    if (error instanceof Refused && error.status === 401) {
      // A member that starts again makes another token: the one of before opens nothing.
      const wrong = unlocked ? "The member was started again, and its token is a new one: look into the file again." : "This is not the token.";
      unlocked = false;
      return locked(wrong);
    }
    lost("The member does not answer. Does the program that shows this page still run on this machine? What you see is what it told last.");
  }
  setTimeout(look, AGAIN);
}

at("close").addEventListener("click", shut);
whenUnlocked(look);
look();
