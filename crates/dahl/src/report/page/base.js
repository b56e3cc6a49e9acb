"use strict";
// Small things that all parts of the page use.

// The colours of series; style.css has them for light and dark.
const COLOURS = [0, 1, 2, 3, 4, 5, 6, 7].map((i) => `var(--s${i})`);

/** What a colour of the style is now, for a canvas. */
const resolved = (colour) => colour.startsWith("var(") ? getComputedStyle(document.documentElement).getPropertyValue(colour.slice(4, -1)).trim() : colour;

/** Whether the page is as narrow as a phone: charts are drawn for it then. */
const narrow = () => window.innerWidth < 640;

/** An element with attributes and children; texts are never markup. */
function h(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((c) => c !== null && c !== undefined));
  return element;
}

/** The same in SVG. */
function s(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  element.append(...children.flat().filter((c) => c !== null && c !== undefined));
  return element;
}

function scaled(x, base, units) {
  let unit = 0;
  while (unit + 1 < units.length && Math.abs(x) >= base) { x /= base; unit += 1; }
  const digits = Math.abs(x) >= 100 || (Number.isInteger(x) && Math.abs(x) < 1000) ? 0 : Math.abs(x) >= 10 ? 1 : 2;
  return `${x.toFixed(digits)} ${units[unit]}`;
}

const nanos = (x) => scaled(x, 1000, ["ns", "µs", "ms", "s"]);

/** Times of an axis, with as many digits as its steps need. */
function nanosBy(step, most) {
  const unit = [1, 1e3, 1e6, 1e9].filter((u) => u <= Math.max(most, step)).pop() || 1;
  const digits = Math.min(9, Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9)));
  return (x) => `${(x / unit).toFixed(digits)} ${{ 1: "ns", 1e3: "µs", 1e6: "ms", 1e9: "s" }[unit]}`;
}
const bytes = (x) => scaled(x, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
const joules = (x) => (x < 0 ? `−${joules(-x)}` : x < 1 ? scaled(x * 1e6, 1000, ["µJ", "mJ", "J"]) : scaled(x, 1000, ["J", "kJ", "MJ", "GJ"]));
/** A number with at most so many significant digits. */
const significant = (x, digits) => String(Number(x.toPrecision(digits)));
/** Joules of which only the first digits are known, in an interval. */
function about(x, [low, high]) {
  if (!(high - low > 1e-4 * Math.abs(x))) return joules(x);
  const [scale, unit] = x >= 1e6 ? [1e-6, "MJ"] : x >= 1e3 ? [1e-3, "kJ"] : x >= 1 || x === 0 ? [1, "J"] : x >= 1e-3 ? [1e3, "mJ"] : [1e6, "µJ"];
  const digits = 2 + Math.max(0, Math.min(10, Math.ceil(Math.log10((2 * Math.abs(x)) / (high - low)))));
  const of = (j) => significant(j * scale, digits);
  return `about ${of(x)} ${unit} (${of(low)}–${of(high)} ${unit})`;
}
/** What joules of a figure lie in, of which a part is looked at. */
const part = (figure, of) => figure.interval.map((x) => (figure.joules > 0 ? (x * of) / figure.joules : 0));
const seconds = (x) => nanos(x * 1e9);
const percent = (x) => `${(100 * x).toFixed(2)} %`;
const exact = (x) => `${Math.round(x).toLocaleString("en").replaceAll(",", " ")} ns`;

const known = new Map();

/** A colour that belongs to a name: the same in every chart and every run of the page. */
function colourOf(name) {
  if (!known.has(name)) known.set(name, known.size);
  const i = known.get(name);
  // The golden angle keeps hues apart, however many there are.
  return `hsl(${(205 + i * 137.508) % 360} ${i % 3 === 2 ? 38 : 58}% ${[58, 68, 50][i % 3]}%)`;
}

/** Parts of a whole in percent with one digit that sum up to 100.0, or to other tenths. */
function percents(parts, all = 1000) {
  const whole = parts.reduce((a, b) => a + b, 0);
  if (!(whole > 0)) return parts.map(() => 0);
  const exactly = parts.map((p) => (all * p) / whole);
  const tenths = exactly.map(Math.floor);
  let left = all - tenths.reduce((a, b) => a + b, 0);
  const order = exactly.map((_, i) => i).sort((a, b) => (exactly[b] % 1) - (exactly[a] % 1) || a - b);
  for (let i = 0; left > 0 && order.length; i = (i + 1) % order.length, left -= 1) tenths[order[i]] += 1;
  return tenths.map((t) => t / 10);
}

function card(title, id, ...children) {
  return h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), ...children);
}

/** Names with their colours; a line that is dashed is dashed here too. */
function legend(entries) {
  return h("div", { class: "legend" }, entries.map(([name, colour, dash]) =>
    h("span", {}, dash !== undefined
      ? s("svg", { viewBox: "0 0 22 8", class: "stroke" }, s("path", { d: "M0 4H22", style: `stroke:${colour}`, "stroke-width": 2.4, "stroke-dasharray": dash || "none" }))
      : h("span", { class: "swatch", style: `background:${colour}` }), name)));
}

/** A table; cells are texts, numbers or elements. */
function table(head, rows, options) {
  const body = h("tbody", {}, rows.map((row) => h("tr", row.attributes || {},
    (row.cells || row).map((cell, i) => h("td", (options && options.wide === i) ? { class: "wide" } : {}, cell instanceof Node ? cell : String(cell))))));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": (options && options.label) || "table" },
    h("table", {}, h("thead", {}, h("tr", {}, head.map((cell) => h("th", { scope: "col" }, cell)))), body));
}
