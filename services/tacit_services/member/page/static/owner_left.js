// What has left this machine, message by message, the latest first. Older ones come when they are asked for.

import { ask, at, happened, say, terms } from "./parts.js";
import { moment } from "./words.js";

const MORE = 100; // messages that one press shows more
const seen = new Map(); // those that the member has told, by run and number
const totals = new Map(); // by run: how many messages have left
let most = MORE; // that are shown

const number = (value) => value.toLocaleString("en");

// Show what the member tells of all runs now.
export async function showLeft(runs) {
  terms(at("totals"), runs.flatMap(({ run, totals: kinds }) => Object.entries(kinds).map(([what, total]) =>
    [`${run}, ${what}`, `${number(total.messages)}: ${number(total.bytes)} bytes since ${moment(total.first)}`])));
  for (const { run, totals: kinds, latest } of runs) {
    totals.set(run, Object.values(kinds).reduce((sum, total) => sum + total.messages, 0));
    keep(run, latest);
  }
  await show();
}

const keep = (run, messages) => messages.forEach((each) => seen.set(`${run} ${each.number}`, { run, ...each }));
const has = (run, number_) => seen.has(`${run} ${number_}`);

// The oldest message of a run behind which none is missing.
function oldest(run) {
  let first = totals.get(run);
  while (first > 1 && has(run, first - 1)) first -= 1;
  return first;
}

async function show() {
  const every = [...totals.values()].reduce((sum, count) => sum + count, 0);
  const wanted = Math.min(most, every);
  await fill(wanted);
  const latest = [...seen.values()].sort((a, b) => b.at - a.at || b.number - a.number).slice(0, wanted);
  happened(at("left"), latest.map((each) => [moment(each.at), `${each.run}: ${each.what}, ${number(each.bytes)} bytes`]));
  say(at("left-shown"), every > latest.length ? `The latest ${number(latest.length)} of ${number(every)} messages:` : every ? `All ${number(every)} messages:` : "Nothing has left.");
  at("older").hidden = every <= latest.length;
  for (const [key, { run, number: place }] of seen) if (place <= totals.get(run) - most) seen.delete(key);
}

// Ask for older ones, until as many of each run are here as can be among those that are shown.
async function fill(wanted) {
  for (const [run, count] of totals) {
    for (let first = oldest(run); first > 1 && count - first + 1 < wanted; ) {
      const older = await ask(`/v1/departures/${encodeURIComponent(run)}?before=${first}`);
      if (older.length === 0) break;
      keep(run, older);
      first = older[0].number;
    }
  }
}

at("older").addEventListener("click", async () => {
  most += MORE;
  at("older").disabled = true;
  try {
    await show();
  } finally {
    at("older").disabled = false;
  }
});
