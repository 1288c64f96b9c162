// What a run was worth to its owner: exact figures of their own rows, made by a process beside the page.

import { ask, at, made, post, refill, row, say } from "./parts.js";
import { short } from "./words.js";

const AGAIN = 1000; // milliseconds between two looks at one that is being made
const FIGURES = ["federation", "alone", "constant"];
const BUSY = {
  asked: "Asks for the report …",
  begun: "A model of your rows alone is being trained, on this machine. It may take minutes.",
};
let open = ""; // the run whose report was shown last
let turn = 0; // of what is shown: an earlier one asks no more

const path = (run) => `/v1/reports/${encodeURIComponent(run)}`;
const written = (figure) => (figure === null ? "none" : short(figure));

// Show the report on a run; make it, where there is none yet. again: make it anew.
export async function report(run, again = false) {
  open = run;
  turn += 1;
  show({ state: "asked", why: "", report: null, words: [] });
  at("report").hidden = false;
  say(at("report-title"), `What ${run} was worth to you`);
  at("report-title").focus();
  const mine = turn;
  try {
    let now = await ask(path(run));
    if (again || ["none", "failed"].includes(now.state)) now = await post(path(run), {});
    while (mine === turn) {
      show(now);
      if (now.state !== "begun") return;
      await new Promise((resolve) => { setTimeout(resolve, AGAIN); });
      now = await ask(path(run));
    }
  } catch (error) {
    if (mine === turn) show({ state: "failed", why: error.message, report: null, words: [] });
  }
}

function show({ state, why, report: made_, words }) {
  const busy = state in BUSY;
  at("report-said").className = busy ? "busy" : state === "failed" ? "changed" : "";
  say(at("report-said"), busy ? BUSY[state] : state === "failed" ? `There is no report: ${why}.` : "");
  at("report-again").disabled = busy;
  at("report-figures").hidden = !made_;
  refill(at("report-words"), words.map((each) => made("p", each)));
  if (made_) refill(at("report-table").tBodies[0], Object.entries(made_.metrics).map(line));
}

function line([name, judged]) {
  const cells = row([name, ...FIGURES.map((which) => written(judged[which]))]);
  for (const cell of cells.querySelectorAll("td")) cell.className = "number";
  return cells;
}

at("report-again").addEventListener("click", () => report(open, true));
at("report-close").addEventListener("click", () => {
  turn += 1;
  at("report").hidden = true;
  at("summary").focus();
});
