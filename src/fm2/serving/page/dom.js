// Elements from values. Text only ever becomes a text node, so a value of a vocabulary cannot become markup.
const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

/** Create an element: h("p", {class: "quiet", onclick: f}, "text", child). False and null children are left out. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Create an element of an SVG image. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== false && child !== undefined));
  return element;
}

/** The columns of a table, by the classes that give them their widths. */
export function columns(...classes) {
  return h("colgroup", {}, classes.map((name) => h("col", { class: name })));
}

/** The head of a table whose columns speak for themselves, for screen readers. */
export function hiddenHead(...names) {
  return h("thead", { class: "unseen" }, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name))));
}

/** Place a bar inside its track, between two shares of the track's width. */
export function placeBar(bar, from, to) {
  bar.style.left = `${100 * Math.min(from, to)}%`; // the style property is allowed by the content security policy
  bar.style.width = `${100 * Math.abs(to - from)}%`;
  return bar;
}

/** Show or hide the message of an element with role="alert". */
export function showMessage(element, message) {
  element.textContent = message || "";
  element.hidden = !message;
}
