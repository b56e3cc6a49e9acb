// Line and bar charts, and the flame graph, as SVG.

/** Round steps of an axis. */
function ticks(low, high, count) {
  const span = high - low || Math.abs(high) || 1;
  const rough = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((x) => x >= rough) || rough;
  const result = [];
  for (let x = Math.ceil(low / step) * step; x <= high + step * 1e-9; x += step) result.push(Math.abs(x) < step * 1e-9 ? 0 : x);
  return result;
}

/**
 * Lines over a common axis: series have name, colour and points [x, y]; options have title,
 * x and y (formats), zero (whether y begins at 0), begin (where x does at the latest),
 * whole (whether x has whole numbers). A y that is no number ends a line.
 */
function lineChart(series, options) {
  const W = narrow() ? 350 : 560, H = narrow() ? 180 : 220, L = 62, R = 12, T = 10, B = 30;
  const known = series.filter((one) => one.points.some((p) => Number.isFinite(p[1])));
  if (!known.length) return h("p", { class: "faint" }, "No figures.");
  const all = known.flatMap((one) => one.points).filter((p) => Number.isFinite(p[1]));
  let [x0, x1] = [Math.min(...all.map((p) => p[0])), Math.max(...all.map((p) => p[0]))];
  let [y0, y1] = [Math.min(...all.map((p) => p[1])), Math.max(...all.map((p) => p[1]))];
  if (options.zero) y0 = Math.min(0, y0);
  if (options.begin !== undefined) x0 = Math.min(x0, options.begin);
  if (x0 === x1) { x0 -= options.begin === undefined ? 0.5 : 0; x1 += 0.5; }
  if (y0 === y1) y1 = y0 + (Math.abs(y0) || 1) * 0.1;
  const pad = (y1 - y0) * 0.06;
  y1 += pad;
  if (!options.zero) y0 -= pad;
  const X = (x) => L + ((x - x0) / (x1 - x0)) * (W - L - R);
  const Y = (y) => H - B - ((y - y0) / (y1 - y0)) * (H - T - B);
  const svg = s("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": options.title });
  for (const y of ticks(y0, y1, 4)) {
    svg.append(s("line", { class: "axis", x1: L, x2: W - R, y1: Y(y), y2: Y(y) }),
      s("text", { x: L - 6, y: Y(y) + 4, "text-anchor": "end" }, options.y(y)));
  }
  // Whole numbers have steps of at least 1.
  const whole = options.whole ? ticks(x0, x1, Math.min(6, Math.max(1, x1 - x0))) : ticks(x0, x1, narrow() ? 3 : 5);
  for (const x of whole) svg.append(s("text", { x: X(x), y: H - 10, "text-anchor": "middle" }, options.x(x)));
  for (const one of known) {
    // What is not known ends the line.
    let path = "", drawn = false;
    for (const [x, y] of one.points) {
      if (!Number.isFinite(y)) { drawn = false; continue; }
      path += `${drawn ? "L" : "M"}${X(x).toFixed(1)} ${Y(y).toFixed(1)}`;
      drawn = true;
    }
    svg.append(s("path", { d: path, fill: "none", style: `stroke:${one.colour}`, "stroke-width": 1.8, "stroke-dasharray": one.dash || "none", "stroke-linejoin": "round" }));
    if (one.points.length <= 60) {
      for (const [x, y] of one.points.filter((p) => Number.isFinite(p[1]))) {
        svg.append(s("circle", { cx: X(x), cy: Y(y), r: 2.6, style: `fill:${one.colour}` }, s("title", {}, `${one.name}: ${options.x(x)}, ${options.y(y)}`)));
      }
    }
  }
  return h("figure", { style: "margin:0" }, h("h3", {}, options.title), legend(known.map((one) => [one.name, one.colour, one.dash || ""])), svg);
}

/** Groups of bars: groups are labels, series have name, colour and a value a group. */
function barChart(groups, series, options) {
  const W = narrow() ? 350 : 560, H = narrow() ? 180 : 220, L = 62, R = 12, T = 10, B = 30;
  const known = series.filter((one) => one.values.some((v) => Number.isFinite(v)));
  if (!known.length || !groups.length) return h("p", { class: "faint" }, "No figures.");
  const most = Math.max(...known.flatMap((one) => one.values.filter(Number.isFinite)), 0) * 1.06 || 1;
  const Y = (y) => H - B - (y / most) * (H - T - B);
  const svg = s("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": options.title });
  for (const y of ticks(0, most, 4)) {
    svg.append(s("line", { class: "axis", x1: L, x2: W - R, y1: Y(y), y2: Y(y) }),
      s("text", { x: L - 6, y: Y(y) + 4, "text-anchor": "end" }, options.y(y)));
  }
  const wide = (W - L - R) / groups.length;
  const bar = Math.min(28, (wide * 0.8) / known.length);
  const every = Math.ceil(groups.length / 12);
  groups.forEach((group, g) => {
    const middle = L + wide * (g + 0.5);
    if (g % every === 0) svg.append(s("text", { x: middle, y: H - 10, "text-anchor": "middle" }, String(group)));
    known.forEach((one, i) => {
      const value = one.values[g];
      if (!Number.isFinite(value)) return;
      const x = middle + (i - known.length / 2) * bar;
      svg.append(s("rect", { x, y: Y(value), width: Math.max(1, bar - 1.5), height: Math.max(0, H - B - Y(value)), style: `fill:${one.colour}`, "fill-opacity": one.pale ? 0.45 : 1 },
        s("title", {}, `${one.name}, ${group}: ${options.y(value)}`)));
    });
  });
  return h("figure", { style: "margin:0" }, h("h3", {}, options.title), legend(known.map((one) => [one.name, one.colour])), svg);
}

/** A tree from paths such as features.0, with the codelets as leaves. */
function layerTree(layers) {
  const root = { name: "all", value: 0, children: new Map() };
  for (const { layer, codelet, value } of layers) {
    let node = root;
    node.value += value;
    const names = (layer || "(no layer)").split(/[./]/).concat([codelet]);
    for (const name of names) {
      if (!node.children.has(name)) node.children.set(name, { name, value: 0, children: new Map() });
      node = node.children.get(name);
      node.value += value;
    }
  }
  return root;
}

/** The flame graph: a row a depth, as wide as the part of the whole. Click or Enter looks closer. */
function flameGraph(tree, format) {
  const W = narrow() ? 350 : 1120, ROW = 20;
  const holder = h("div", {});
  const told = h("p", { class: "faint", "aria-live": "polite" }, "Click a part to zoom in, the first row to zoom out.");
  const draw = (root, path) => {
    const depth = (node) => 1 + Math.max(0, ...[...node.children.values()].map(depth));
    const rows = depth(root);
    const svg = s("svg", { viewBox: `0 0 ${W} ${rows * (ROW + 1)}`, role: "group", "aria-label": "flame graph over layers" });
    const put = (node, x, width, row, up) => {
      if (width < 1) return;
      const label = `${node.name}: ${format(node.value)}, ${percent(node.value / (tree.value || 1))}`;
      const part = s("g", { class: "flame", tabindex: 0, role: "button", "aria-label": label });
      part.append(s("title", {}, label), s("rect", { x, y: row * (ROW + 1), width: Math.max(1, width - 1), height: ROW, rx: 2, fill: colourOf(node.name) }));
      if (width > 40) part.append(s("text", { x: x + 4, y: row * (ROW + 1) + 14 }, node.name.slice(0, Math.floor(width / 6.6))));
      const go = () => { draw(row === 0 ? tree : node, row === 0 ? "" : label); told.textContent = label; };
      part.addEventListener("click", go);
      part.addEventListener("keydown", (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); go(); } });
      svg.append(part);
      let at = x;
      for (const child of node.children.values()) {
        const own = (child.value / (node.value || 1)) * width;
        put(child, at, own, row + 1, node);
        at += own;
      }
    };
    put(root, 0, W, 0, null);
    holder.replaceChildren(svg);
  };
  draw(tree, "");
  return h("div", {}, holder, told);
}

/** A bar of parts: [name, value, colour]. */
function stack(parts) {
  const whole = parts.reduce((sum, p) => sum + p[1], 0) || 1;
  return h("div", { class: "bar", role: "img", "aria-label": parts.map((p) => `${p[0]} ${percent(p[1] / whole)}`).join(", ") },
    parts.map(([name, value, colour]) => h("i", { style: `width:${(100 * value) / whole}%;background:${colour}`, title: `${name} ${percent(value / whole)}` })));
}
