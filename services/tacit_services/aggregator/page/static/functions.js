// The functions of an additive model: the picture that the aggregator draws, importance by column, and a table of all bins.

import { drawn } from "./drawing.js";
import { ask, at, get, refill, row, say } from "./parts.js";
import { count, short } from "./words.js";

let additive = false; // whether the run's model is one
let shown = ""; // the version that is shown, and whether it has a band
let next = 0; // when a run that goes on is looked at again

const PERIOD = 5000; // milliseconds

export async function begin() {
  ({ additive } = await ask("/v1/model"));
  shown = "";
}

// over: whether the run has ended, so that the band of the noise is known.
export async function show(version, over) {
  if (!additive || !version || shown === `${version} ${over}`) return;
  if (!over && performance.now() < next) return;
  next = performance.now() + PERIOD;
  const functions = await ask("/v1/model/functions");
  const drawing = await get("/v1/model/functions/picture");
  at("functions").hidden = false;
  say(at("functions-words"), `What each bin of a column adds: ${functions.outputs.join(", ")}. `
    + (banded(functions) ? "The band is two standard deviations of what the releases' noise makes of a bin. It has no chance in whose rows they are."
      : "The band that the noise allows is drawn when the run has ended."));
  const terms = [...functions.terms].sort((one, other) => (other.importance ?? 0) - (one.importance ?? 0));
  refill(at("importance").tBodies[0], terms.map((term) => row([name(term), number(term.importance), number(term.by_noise)])));
  refill(at("bins").tBodies[0], functions.terms.flatMap((term) => term.bins.map((bin) => row([
    name(term),
    bin.value ?? `${short(bin.from)} to ${short(bin.to)}`,
    bin.rows === null ? "" : count(Math.round(bin.rows)),
    bin.added.map(short).join(", "),
    number(bin.deviation),
  ]))));
  if (drawing.ok) at("functions-drawing").replaceChildren(drawn(await drawing.text(), "functions-title functions-words"));
  shown = `${version} ${over}`;
}

const name = (term) => term.columns.join(" × ");
const number = (value) => (value === null || value === undefined ? "" : short(value));
const banded = (functions) => functions.terms.some((term) => term.by_noise !== null);
