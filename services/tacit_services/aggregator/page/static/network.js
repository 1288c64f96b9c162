// A graph's layers: a table, and the picture that the aggregator draws of them.

import { drawn } from "./drawing.js";
import { ask, at, get, made, say } from "./parts.js";
import { count } from "./words.js";

const HEADINGS = ["No.", "Layer", "Operations", "Reads", "Gives", "Trained", "Fixed", "Multiply-adds"];
const shape = (sizes) => sizes.join("×") || "1";
const some = (number) => (number ? count(number) : "");

export async function show() {
  const model = await ask("/v1/model");
  at("network").hidden = !model.graph;
  if (!model.graph) return;
  const [graph, drawing] = await Promise.all([ask("/v1/model/graph"), get("/v1/model/picture")]);
  say(at("network-words"), `For one example it takes ${graph.example}, and it gives ${shape(graph.output)} numbers. `
    + `${count(graph.trained)} numbers are trained, ${count(graph.fixed)} fixed; a row costs ${count(graph.multiply_adds)} multiply-adds.`);
  say(at("network-digest"), `SHA-256 ${graph.sha256}`);
  const times = new Map(graph.repeats.map((each) => [each.first, each]));
  at("layers").tHead.replaceChildren(row("th", HEADINGS));
  at("layers").tBodies[0].replaceChildren(...graph.layers.map((layer) => row("td", cells(layer, times.get(layer.number)))));
  if (drawing.ok) at("drawing").replaceChildren(drawn(await drawing.text(), "network-title network-words"));
}

function cells(layer, repeat) {
  const name = layer.layers > 1 ? `… ${count(layer.layers)} more layers`
    : `${layer.name || layer.line}${layer.again && layer.name ? " (again)" : ""}`;
  const part = repeat?.first === repeat?.last ? "" : `${repeat?.first} to ${repeat?.last}: `;
  return [count(layer.number), repeat ? `${name} (${part}${count(repeat.times)} times)` : name, layer.operations.join(", "),
    layer.reads.slice(0, 8).join(", "), shape(layer.shape), some(layer.trained), some(layer.fixed), some(layer.multiply_adds)];
}

function row(tag, texts) {
  const line = made("tr");
  line.append(...texts.map((text, place) => made(tag, text, place > 4 ? "number" : "")));
  if (tag === "th") for (const cell of line.children) cell.scope = "col";
  return line;
}
