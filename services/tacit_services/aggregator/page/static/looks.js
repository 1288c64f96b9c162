// Looks at rows that edges hold out: the figures of each, with the interval that the noise leaves.

import { bar, scale } from "./bars.js";
import { ask, at, refill, row, say } from "./parts.js";
import { count, epsilon, percent, several, short } from "./words.js";

const NONE = { value: null, low: null, high: null };
const written = (name, value) => (name.startsWith("accuracy") ? percent(value) : short(value));
const between = (name, { low, high }) => `${written(name, low)} to ${written(name, high)}`;
const isAnswered = (look) => look !== undefined && look.edges > 0;

// What the page has in the place of a result on a public test set. What noise hides is no number.
export function headline(judged) {
  if (!judged) return { name: "Judged at the edges", value: "–", more: "no edge has answered a look yet" };
  const of = `look ${judged.look} of ${judged.looks}, ${count(judged.edges)} of ${several(judged.of, "edge")}`;
  const [[name, figure] = []] = Object.entries(judged.metrics);
  if (!figure) return { name: "Judged at the edges", value: "suppressed", more: `the noise hides all figures; ${of}` };
  return { name: `${name}, judged at the edges`, value: written(name, figure.value), more: `95 %: ${between(name, figure)} · ${of}` };
}

// over: whether the run has ended, so that no answer comes any more.
export async function show(over) {
  const looks = await ask("/v1/looks");
  at("judged").hidden = false;
  at("judged-some").hidden = looks.length === 0;
  at("judged-empty").hidden = looks.length > 0;
  if (!looks.length) return say(at("judged-empty"), over ? "No edge has answered a look." : "No edge has answered a look yet.");
  const last = looks[looks.length - 1];
  const best = looks.find((look) => look.best);
  say(at("judged-words"), `about ${short(100 * last.held_out)} % of each edge's units are held out. All looks together cost these ε ${epsilon(last.epsilon)} at most. `
    + "A unit is trained on or judged on, so the run's ε is that of the side which has spent more, not the sum");
  say(at("judged-best"), best ? `The best model so far is that of look ${best.look}: the latest that is not surely worse than the one with the best figure.`
    : "Which model is the best is not told by looks.");
  refill(at("looks").tBodies[0], lines(looks, over));
  say(at("latest-title"), `Look ${last.look}, all figures`);
  refill(at("latest").tBodies[0], figures(last));
}

// A line for each look that the run has: answered, hidden by noise, without an answer, or to come.
function lines(looks, over) {
  const known = new Map(looks.map((look) => [look.look, look]));
  const { looks: all, look: latest } = looks[looks.length - 1];
  const name = looks.flatMap((look) => Object.keys(look.metrics))[0] ?? "";
  const place = scale(looks.map((look) => look.metrics[name] ?? NONE));
  say(at("looks-figure"), name || "Figure");
  return Array.from({ length: all }, (_, index) => index + 1).map((number) => {
    const look = known.get(number);
    if (!isAnswered(look)) return row([`${number}`, "", over || number < latest ? "no answer" : "to come", "", bar(NONE, place), "", ""]);
    const figure = look.metrics[name];
    return row([
      look.best ? `${number}, best` : `${number}`,
      several(look.version, "update"),
      figure ? written(name, figure.value) : "suppressed",
      figure ? between(name, figure) : "",
      bar(figure ?? NONE, place),
      spread(name, look.spread),
      `${count(look.edges)} of ${count(look.of)}`,
    ]);
  });
}

// How far the edges' own figures lie apart, beside what noise alone would make.
function spread(name, of) {
  if (!of) return "";
  return `${written(name, of.least)} to ${written(name, of.most)}, median ${written(name, of.median)}; noise alone moves one by ${written(name, of.noise)}`;
}

function figures(look) {
  const of = Object.entries(look.metrics);
  if (!of.length) return [row(["all figures", "suppressed", "", bar(NONE, scale([]))])];
  const place = scale(of.map(([, figure]) => figure));
  const [[first]] = of;
  const { beyond_constant: beyond, reliability } = look;
  return [
    ...of.map(([name, figure]) => line(name, name, figure, place)),
    beyond ? line(first, "better than always the same answer by", beyond, scale([beyond]))
      : row(["better than always the same answer by", "suppressed", "", bar(NONE, place)]),
    ...(reliability ?? []).map((cell) => line("accuracy",
      `came true, where the model says ${short(cell.from)} to ${short(cell.to)}`, cell, scale([cell, { low: 0, high: 1 }]))),
  ];
}

const line = (of, label, figure, place) => row([label, written(of, figure.value), between(of, figure), bar(figure, place)]);
