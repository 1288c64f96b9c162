// Ties the page together: status events come in, and what has changed is asked for and shown.

import * as answers from "./answers.js";
import * as chart from "./chart.js";
import * as edges from "./edges.js";
import * as functions from "./functions.js";
import * as looks from "./looks.js";
import * as network from "./network.js";
import { ask, at, events, locked, lost, made, opened, Refused, say, stateClass, terms, whenUnlocked } from "./parts.js";
import { count, epsilon, percent, power, released, seconds, several, short } from "./words.js";

const EVENTS = 200; // lines that are kept
const AGAIN = 2000; // milliseconds until the connection is tried again
const SYMBOLS = { clip: "C", delta_s: "ΔS" };
const seen = { events: 0, points: 0 };
let series = [];
let asks = false; // whether the run asks questions, in the place of training
let learnt = null; // the answers that the run's columns come of, where it states some
let judges = false; // whether edges judge the model on rows that they hold out
let busy = false;
let waiting = null;

function showStatus(status) {
  document.title = `${status.state} · ${status.run} · tacit`;
  say(at("run"), status.run);
  say(at("what"), `${status.algorithm} on ${status.dataset}, ${status.model} with `
    + `${count(status.parameters)} parameters`);
  const pill = at("state");
  say(pill, status.edges_needed ? `waiting for edges: ${status.edges_online} of ${status.edges_needed}` : status.state);
  at("begin").hidden = !status.edges_needed;
  pill.className = `pill ${stateClass(status.state)}`;
  say(at("applied"), `${count(status.applied)} of ${count(status.target)}`);
  at("progress").value = Math.min(1, status.applied / status.target);
  say(at("speed"), speed(status));
  say(at("online"), `${count(status.edges_online)} of ${count(status.edges)}`);
  say(at("edges-more"), edgesMore(status));
  const privacy = status.privacy;
  say(at("epsilon"), privacy.epsilon === null ? "no guarantee" : `ε ${epsilon(privacy.epsilon, privacy.bound)}`);
  say(at("epsilon-more"), `at δ = ${power(privacy.delta)}, per ${privacy.unit}, at the edge that spent most`
    + (privacy.counts ? `, over ${privacy.counts}` : ""));
  showMetric(status);
  showFacts(status);
}

function edgesMore(status) {
  if (["finished", "halted"].includes(status.state)) {
    return `${several(status.edges, "edge")} took part; whoever is done leaves`;
  }
  const refusing = status.edges_refusing;
  const [veto] = status.vetoes ?? [];
  if (veto) return `${several(refusing, "edge")} ${refusing === 1 ? "refuses" : "refuse"}; ${veto.id}: its policy's ${veto.policy} does not allow the run`;
  if (refusing) return `${several(refusing, "edge")} ${refusing === 1 ? "refuses" : "refuse"} the model`;
  return status.applied ? `staleness ${status.staleness.mean.toFixed(1)} on average, ${status.staleness.max} at most`
    : "no update has come yet";
}

function speed(status) {
  if (!status.applied) return "training has not begun";
  const rate = `${status.updates_per_s.toFixed(1)} a second`;
  const left = (status.target - status.applied) / status.updates_per_s;
  return status.state === "training" && Number.isFinite(left)
    ? `${rate}, about ${seconds(left)} left` : `${rate}, ${seconds(status.duration_s)} in all`;
}

function showMetric(status) {
  if (judges && status.test_accuracy === null && status.test_loss === null) {
    const { name, value, more } = looks.headline(status.judged);
    say(at("metric-name"), name);
    say(at("metric"), value);
    say(at("metric-more"), more);
    return;
  }
  const others = Object.entries(status.metrics ?? {}).filter(([name]) => name !== "accuracy");
  const first = status.test_accuracy === null && others.length ? others.shift() : null;
  say(at("metric-name"), first ? first[0] : "Accuracy");
  say(at("metric"), first ? short(first[1])
    : status.test_accuracy === null ? "–" : percent(status.test_accuracy));
  const loss = status.test_loss === null ? "on the public test set" : `loss ${short(status.test_loss)}`;
  say(at("metric-more"), [...others.map(([name, value]) => `${name} ${short(value)}`), loss].join(" · "));
}

function showFacts(status) {
  const schedule = Object.entries(status.schedule).filter(([, value]) => value !== null)
    .map(([name, value]) => `${SYMBOLS[name] ?? name.replaceAll("_", " ")} ${short(value)}`);
  terms(at("facts"), [
    ["Refused", `${count(status.rejected)} rejected, ${count(status.stale)} too old`],
    ["Sent twice", `${count(status.duplicates)}, each counted once`],
    ["Schedule", schedule.join(", ")],
    ["Staleness", `p95 ${status.staleness.p95}, at most ${status.staleness.max}`],
    ["Model", `version ${count(status.model_version)}, SHA-256 ${status.model_sha256.slice(0, 16)}…`],
    ...(status.reason ? [["Ended", status.reason]] : []),
  ]);
}

function told({ at: when, text }) {
  const line = made("li");
  const day = new Date(when);
  line.append(made("time", when ? day.toLocaleTimeString("en-GB") : "earlier"), made("span", text));
  line.title = when ? day.toLocaleString("en-GB") : "";
  at("events").prepend(line);
  while (at("events").childElementCount > EVENTS) at("events").lastChild.remove();
}

// What has happened since the last look, by the server's time; the latest stands on top.
function tell(happened) {
  const evaluated = series.slice(seen.points).map((point) => ({ at: point.at ?? "", text: evaluation(point) }));
  const all = [...happened, ...evaluated];
  for (const event of all.sort((one, other) => (one.at < other.at ? -1 : Number(one.at > other.at)))) told(event);
  seen.points = series.length;
  if (happened.length) seen.events = happened[happened.length - 1].number;
}

function evaluation(point) {
  const metric = chart.drawnMetric(point);
  const value = metric.of(point);
  return `evaluated at ${several(point.version, "update")}: ${metric.name} ${metric.name === "accuracy" ? percent(value) : short(value)}`;
}

// One look at everything; a newer status that comes meanwhile is looked at afterwards.
async function look(status) {
  if (busy) { waiting = status; return; }
  busy = true;
  try {
    showStatus(status);
    const later = series.length ? `?after=${series[series.length - 1].version}` : "";
    const [more, all, happened] = await Promise.all([ask(`/v1/series${later}`), edges.fetched(),
      ask(`/v1/log?after=${seen.events}`)]);
    series = series.concat(more);
    if (asks) await answers.show();
    else chart.show(series);
    if (judges) await looks.show(["finished", "halted"].includes(status.state));
    await functions.show(status.model_version, ["finished", "halted"].includes(status.state));
    at("evaluations").hidden = asks || (judges && !series.length);
    await edges.show(all);
    released(at("released-words"), status, all, learnt);
    tell(happened);
    document.documentElement.dataset.version = String(status.model_version);
  } finally {
    busy = false;
    const next = waiting;
    waiting = null;
    if (next) await look(next);
  }
}

// What there is, then what changes; again and again, as whoever is asked may come and go.
async function follow() {
  try {
    await begin();
    opened();
    for await (const status of events("/v1/events")) look(status).catch(() => {});
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return locked("This is not the token.");
    const why = error instanceof Refused ? error.message : "The aggregator does not answer";
    lost(`${why}. What you see is what it last said; this page goes on trying.`);
  }
  setTimeout(follow, AGAIN);
}

async function begin() {
  const definition = await ask("/v1/definition");
  say(at("definition"), JSON.stringify(definition.agreed, null, 2));
  asks = "ask" in definition.agreed;
  learnt = definition.agreed.data?.learnt ?? null;
  judges = definition.agreed.evaluation?.at === "edges";
  at("metric").closest(".card").hidden = asks;
  await network.show();
  await functions.begin();
  const status = await ask("/v1/status");
  if (series.length && status.model_version < series[series.length - 1].version) {
    series = [];
    seen.points = 0;
    seen.events = 0;
  }
  await look(status);
}

// The run is shown to everybody who has a token: asked for, and tried with the next look.
whenUnlocked(follow);

async function operate(path, body) {
  const headers = { Authorization: `Bearer ${at("token").value}`, "Content-Type": "application/json" };
  try {
    await ask(path, { method: "POST", headers, body: JSON.stringify(body) });
    say(at("said"), "Done.");
  } catch (error) {
    say(at("said"), `Refused: ${error.message}`);
  }
}

at("operator").addEventListener("submit", (event) => {
  event.preventDefault();
  operate("/v1/halt", { reason: at("reason").value });
});
at("begin").addEventListener("click", () => operate("/v1/begin", {}));
at("edges").addEventListener("click", (event) => {
  const edge = event.target.dataset?.release;
  if (edge !== undefined) operate(`/v1/edges/${encodeURIComponent(edge)}/release`, {});
});
at("print").addEventListener("click", () => print());
follow();
