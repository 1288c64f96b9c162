// Bars of noisy figures: each with the interval that the noise leaves.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 160; // of a bar, in its own units
const HEIGHT = 14;

// Return what gives a value its place on a bar, so that all of these figures and 0 are on it.
export function scale(figures) {
  const ends = figures.flatMap(({ low, high }) => [low, high]).filter((end) => end !== null);
  const least = Math.min(0, ...ends);
  const most = Math.max(least + Number.EPSILON, ...ends);
  return (value) => ((value - least) / (most - least)) * WIDTH;
}

// What the numbers beside it say, so nobody needs to hear it twice.
export function bar({ value, low, high }, place) {
  const drawing = drawn("svg", { class: "bar", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" });
  if (low === null) return drawing;
  const middle = HEIGHT / 2;
  if (value !== null) {
    const [begin, end] = [place(0), place(value)].sort((one, other) => one - other);
    drawing.append(drawn("rect", { x: begin, y: 2, width: Math.max(1, end - begin), height: HEIGHT - 4 }));
  }
  const [left, right] = [place(low), place(high)];
  drawing.append(drawn("path", { d: `M${left} ${middle}H${right}M${left} 3V${HEIGHT - 3}M${right} 3V${HEIGHT - 3}` }));
  return drawing;
}

function drawn(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
