// Makes elements. Text becomes text nodes only, so no value of a rule or a caller can become markup.

const SVG = "http://www.w3.org/2000/svg";

/** Creates an HTML element. Properties that start with `on` are listeners; `null` children are left out. */
export function el(name, properties = {}, ...children) {
  return fill(document.createElement(name), properties, children);
}

/** Creates an SVG element. */
export function svg(name, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, name), properties, children);
}

/** Replaces all children of an element. */
export function replace(parent, ...children) {
  parent.replaceChildren(
    ...children
      .flat(Infinity)
      .filter((child) => child !== null && child !== undefined)
      .map(node),
  );
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) element.append(node(child));
  }
  return element;
}

function node(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}
