// Pictures that the aggregator draws, made anew of the few elements and attributes that they may have.

const ELEMENTS = ["rect", "path", "text"];
const ATTRIBUTES = ["class", "x", "y", "width", "height", "rx", "d", "text-anchor"];
const SVG = "http://www.w3.org/2000/svg";

// labelled: the ids of what names the picture.
export function drawn(text, labelled) {
  const plain = text.replace(/<style>[^<]*<\/style>/, ""); // the page's own style sheet takes its place
  const source = new DOMParser().parseFromString(plain, "image/svg+xml").documentElement;
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("viewBox", source.getAttribute("viewBox") ?? "0 0 1 1");
  picture.setAttribute("width", source.getAttribute("width") ?? "1");
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-labelledby", labelled);
  for (const element of source.children) {
    if (!ELEMENTS.includes(element.localName)) continue;
    const copy = document.createElementNS(SVG, element.localName);
    for (const name of ATTRIBUTES) if (element.hasAttribute(name)) copy.setAttribute(name, element.getAttribute(name));
    if (element.localName === "text") copy.textContent = element.textContent;
    picture.append(copy);
  }
  return picture;
}
