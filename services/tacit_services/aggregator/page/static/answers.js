// Answers to a run's questions: a table, and in each row a bar with the interval that noise leaves.

import { bar, scale } from "./bars.js";
import { ask, at, refill, row, say } from "./parts.js";
import { count, epsilon, power, several } from "./words.js";

const number = (value) => (value === null ? "" : value.toLocaleString("en-GB", { maximumFractionDigits: 6 }));

export async function show() {
  const answers = await ask("/v1/answers");
  at("answers").hidden = false;
  at("answers-empty").hidden = answers.length > 0;
  if (!answers.length) return;
  const [first] = answers;
  say(at("answers-words"), `of ${count(first.edges)} of ${several(first.of, "edge")}, ε ${epsilon(first.epsilon)} at δ = ${power(first.delta)}`
    + `, per ${first.unit}; an interval holds the exact figure of these rows with 95 %`);
  refill(at("answers-table").tBodies[0], answers.flatMap(rows));
}

function rows(answer) {
  const each = answer.values ?? [{ label: "", ...answer }];
  const place = scale(each);
  return each.map((one, line) => row([
    line ? "" : answer.question,
    one.label ?? "",
    one.suppressed ? "suppressed" : number(one.value),
    one.low === null ? "" : `${number(one.low)} to ${number(one.high)}`,
    bar(one, place),
  ]));
}
