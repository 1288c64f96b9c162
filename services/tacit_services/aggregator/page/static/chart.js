// Accuracy, or loss, as a line that grows. Its axis begins at the first value, not at zero.

import { at, say } from "./parts.js";
import { epsilon, percent, several, short } from "./words.js";

const HEIGHT = 260;
const WHOLE = [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7].flatMap((ten) => [ten, 2 * ten, 5 * ten]); // between ticks
let drawn = null;
let kind = "";
let words = ""; // from where to where it went, while no point is pointed at
let latest = []; // the series, to be drawn again against something else

// What is drawn: accuracy where there are classes; else the first other metric; else the loss.
export function drawnMetric(point) {
  if (point.accuracy !== null) return { name: "accuracy", of: (one) => one.accuracy };
  const name = Object.keys(point.metrics ?? {})[0];
  if (name) return { name, of: (one) => one.metrics[name] };
  return { name: "loss", of: (one) => one.loss };
}

// What it is drawn against: updates, or the ε spent, where each point has one.
function against(series) {
  const spent = at("against").value === "epsilon" && series.every((point) => point.epsilon !== null);
  return spent ? { name: "ε spent, at most", of: (point) => point.epsilon, say: (value) => `ε ${epsilon(value, false)}` }
    : { name: "updates applied", of: (point) => point.version, say: updates };
}

export function show(series) {
  latest = series;
  at("chart-empty").hidden = series.length > 0;
  at("chart").hidden = series.length === 0;
  if (!series.length) return;
  const metric = drawnMetric(series[0]);
  const values = series.map(metric.of);
  const across = against(series);
  const data = [series.map(across.of), values];
  if (!drawn || kind !== metric.name + across.name) draw(metric.name, data, values, across);
  else drawn.setData(data);
  const write = metric.name === "accuracy" ? percent : short;
  const last = values.length - 1;
  words = `${metric.name}: ${write(values[0])} at ${across.say(data[0][0])}`
    + (last ? `, ${write(values[last])} at ${across.say(data[0][last])}` : "");
  say(at("chart-words"), words);
}

const updates = (number) => several(number, "update");

function draw(name, data, values, across) {
  drawn?.destroy();
  kind = name + across.name;
  const style = getComputedStyle(document.documentElement);
  const colour = (of) => style.getPropertyValue(of).trim();
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line"), width: 1 }, font: "13px system-ui, sans-serif" };
  const spread = Math.max(...values) / Math.min(...values);
  const log = name !== "accuracy" && Math.min(...values) > 0 && spread > 20;
  const shown = name === "accuracy" ? (value) => percent(value) : (value) => short(value);
  drawn = new uPlot({
    width: width(), height: HEIGHT, padding: [8, 22, 0, 0],
    scales: { x: { time: false }, y: { distr: log ? 3 : 1 } },
    axes: [{ ...axis, ...(across.say === updates ? { incrs: WHOLE } : {}), size: 32, label: across.name, labelFont: axis.font, labelSize: 20 },
      { ...axis, size: 68, values: (_, ticks) => ticks.map((tick) => (tick === null ? ""
        : name === "accuracy" ? `${Number((100 * tick).toPrecision(6))} %` : short(tick))) }],
    series: [{ label: "updates" }, { label: name, stroke: colour("--accent"), width: 2,
      paths: uPlot.paths.linear(), points: { show: data[0].length < 60, size: 6 },
    }],
    legend: { show: false },
    cursor: { drag: { x: false, y: false } },
    hooks: { setCursor: [(chart) => pointed(chart, name, shown, across)] },
  }, data, at("chart"));
}

// The line above the drawing says the point that is pointed at.
function pointed({ cursor, data: [places, values] }, name, shown, across) {
  const here = cursor.idx;
  say(at("chart-words"), here === null || here === undefined ? words
    : `${name}: ${shown(values[here])} at ${across.say(places[here])}`);
}

at("against").addEventListener("change", () => show(latest));

const width = () => Math.max(240, at("chart").clientWidth);

new ResizeObserver(() => drawn?.setSize({ width: width(), height: HEIGHT })).observe(at("chart"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { kind = ""; });
