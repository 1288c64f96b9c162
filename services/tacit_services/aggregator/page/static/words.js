// Numbers as people read them, and what has been released, in plain words.

import { made, terms } from "./parts.js";

export const count = (value) => value.toLocaleString("en");
export const several = (number, what) => `${count(number)} ${what}${number === 1 ? "" : "s"}`;
export const percent = (value) => `${(100 * value).toFixed(2)} %`;
export const moment = (seconds_) => new Date(seconds_ * 1000).toLocaleString();
// With two digits, or three from 100 on; no less than it is, as rounding.odds of Python writes it.
export function times(odds) {
  const places = Math.floor(Math.log10(odds));
  const digits = places < 2 ? 2 : 3;
  const step = 10 ** (places + 1 - digits);
  return Number((Math.ceil(odds / step) * step).toPrecision(digits)).toLocaleString("en");
}
export const short = (value) => (value === null ? "none" : Number(value.toPrecision(4)).toString());

// ε in four digits, at most six decimals, rounded up, as rounding.epsilon of Python writes it; with the sign of a bound.
export function epsilon(value, bound) {
  if (value === null) return "no guarantee";
  if (value === 0) return "0";
  const unit = 10 ** Math.min(6, 3 - Math.floor(Math.log10(value)));
  const digits = Number((Math.ceil(value * unit * (1 - 1e-9)) / unit).toFixed(6));
  return `${bound ? "≤ " : ""}${digits}`;
}

const RAISED = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

// 10⁻⁵, as δ is written.
export function power(value) {
  if (!value) return "0";
  const [first, exponent] = value.toExponential().split("e");
  const raised = [...exponent.replace("+", "")].map((sign) => RAISED[sign]).join("");
  return `${first === "1" ? "" : `${first} · `}10${raised}`;
}

export function seconds(value) {
  const whole = Math.round(value);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

const UNITS = { row: "one row of the data", record: "one record of the data" };

// The sheet for whoever signs a privacy statement.
// learnt: the answers that columns and bounds come of, where the run states some.
export function released(sheet, status, edges, learnt = null) {
  const privacy = status.privacy;
  const whose = UNITS[privacy.unit] ?? `everything of one ${privacy.unit}`;
  const pushes = edges.reduce((sum, edge) => sum + edge.pushes, 0);
  const facts = made("dl");
  terms(facts, [
    ["Run", `${status.run}: ${status.algorithm} on ${status.dataset}`],
    ["Whose privacy (unit)", whose],
    [`ε, largest of any edge${privacy.counts ? `, over ${privacy.counts}` : ""}`, epsilon(privacy.epsilon, privacy.bound)],
    ...limits(edges),
    ["δ", power(privacy.delta)],
    ["Against whom", privacy.trusted === "nobody but the edge itself"
      ? "everybody but the edge itself: the aggregator, the other edges, whoever has the model"
      : `everybody but: ${privacy.trusted}`],
    ...(privacy.apart_from ? [["Taken for other people",
      `those of ${several(privacy.apart_from, "other ledger")}, on the owner's word (data.apart_from): ids or `
      + "rows are alike, and what was spent there is not counted"]] : []),
    ...(learnt ? [["Learnt before", `columns and bounds come of the answers of ${several(learnt.edges, "edge")} to `
      + `${several(learnt.questions, "question")}, at ε ${epsilon(learnt.epsilon, false)} and δ = ${power(learnt.delta)} together`
      + (privacy.counts ? "; ε above counts them, too, where the same ledger paid for both" : "")]] : []),
    ["Releases so far", `${count(pushes)}, by ${several(edges.length, "edge")}`],
    ["Run definition", `${status.run_file_sha256.slice(0, 16)}…`],
    ["As of", new Date().toLocaleString("en-GB")],
  ]);
  const text = made("div");
  text.replaceChildren(...paragraphs(privacy, whose, status.judged));
  sheet.replaceChildren(facts, text);
}

// What an edge's data may ever spend, or in a federation in this run, where edges have a budget; the largest of them.
function limits(edges) {
  const whose = edges.some((edge) => edge.budget_of === "run") ? "Its limit, in this run" : "Its limit, for the life of the data";
  const budgets = edges.map((edge) => edge.budget).filter((budget) => budget > 0);
  return budgets.length ? [[whose, epsilon(Math.max(...budgets), false)]] : [];
}

// judged: the latest look at rows that edges hold out, where one was answered.
function paragraphs(privacy, whose, judged) {
  if (privacy.epsilon === null || privacy.simulated) {
    return [made("p", `There is no guarantee: ${privacy.guarantee}. Whoever sees the updates or the `
      + "model may be able to tell who was in the data.")];
  }
  if (privacy.epsilon === 0) return [made("p", "Nothing has been released yet.")];
  const odds = Math.exp(privacy.epsilon);
  return [
    made("h3", "What was released"),
    made("p", `Noisy updates of a model${judged ? ", and noisy counts of how it does on rows that were held out" : ""}, and no row. `
      + "How many rows there are is told by nothing but the number in "
      + "the run definition, which is public. "
      + (privacy.noise_at === "edge" ? "Each update's noise was added at the edge, before it left."
        : "The noise was added at the aggregator, which saw what it was added to.")),
    made("h3", "What a single person risks"),
    made("p", `Somebody who sees all updates and the model, and asks whether ${whose} was used, finds `
      + `no answer more than ${times(odds)} times as likely as if it had not been, but for a chance of `
      + `about ${power(privacy.delta)}. That holds whatever else they know, and whatever is done with the model later. In one line: ${privacy.guarantee}.`),
    made("h3", "What is not promised"),
    list([
      "That the model says nothing about people like those in the data: that is what it is for.",
      "That somebody whose rows are at several edges risks no more than this: there ε adds up, unless "
        + "the run counts all edges together (people = \"shared\").",
      "That it stays secret which edges take part, and when each of them sent an update.",
      "That people are others because an edge's owner says so (data.apart_from): what other ledgers have spent "
        + "is not in this ε.",
      "Anything about what an edge's owner releases by other means.",
    ]),
  ];
}

function list(items) {
  const made_ = made("ul");
  made_.replaceChildren(...items.map((item) => made("li", item)));
  return made_;
}
