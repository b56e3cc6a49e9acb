// The chart of what each worker did: events in typed arrays, drawn on a canvas.

/** The first kind of calls; before it: spinning, waiting, transfer. */
const CALL = 3;
const KINDS = ["spinning", "waiting", "transfer"];

/** Reads the events that report/page/gantt.rs has packed. */
function unpack(gantt) {
  const text = atob(gantt.data);
  const data = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) data[i] = text.charCodeAt(i);
  let at = 0;
  const number = () => {
    let byte = data[at++];
    if (byte < 0x80) return byte;
    let value = byte & 0x7f, factor = 128;
    do { byte = data[at++]; value += (byte & 0x7f) * factor; factor *= 128; } while (byte >= 0x80);
    return value;
  };
  const signed = () => { const n = number(); return n % 2 ? -(n + 1) / 2 : n / 2; };
  const tracks = [];
  for (let w = 0; w < gantt.tracks.length; w++) {
    const count = number();
    const track = {
      count, from: new Float64Array(count), to: new Float64Array(count), kind: new Uint32Array(count),
      layer: new Uint32Array(count), step: new Float64Array(count), task: new Uint32Array(count), lost: new Float64Array(count),
    };
    let free = gantt.begin, step = 0;
    for (let i = 0; i < count; i++) {
      const kind = number();
      track.kind[i] = kind;
      track.from[i] = free + signed();
      free = track.from[i] + number();
      track.to[i] = free;
      if (kind >= CALL) {
        track.layer[i] = number();
        step += signed();
        track.step[i] = step;
        track.task[i] = number();
        track.lost[i] = number();
      }
    }
    tracks.push(track);
  }
  return tracks;
}

/** The first event of a track that ends after a time. */
function firstAfter(track, time) {
  let low = 0, high = track.count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (track.to[middle] <= time) low = middle + 1; else high = middle;
  }
  return low;
}

/** The largest value of curves whose names begin so. */
function mostOf(curves, kind) {
  let most = 0;
  for (const curve of curves) if (curve.name.startsWith(kind)) for (const p of curve.points) if (p[1] > most) most = p[1];
  return most;
}

/** The scales that charts of several runs share, so that they can be compared by eye. */
function ganttScales(runs) {
  const most = (of) => runs.reduce((least, run) => Math.max(least, of(run)), 0);
  const curve = (kind) => most((run) => mostOf(run.curves, kind));
  return { time: most((run) => run.gantt.end - run.gantt.begin), watts: curve("watts"), bytes: curve("bytes") };
}

/** A chart of one run; `name` tells charts apart. */
function ganttChart(run, name, scales) {
  const gantt = run.gantt;
  // Where the longest of the runs would end.
  const end = gantt.begin + scales.time;
  const tracks = unpack(gantt);
  const colours = gantt.cells.map(([codelet]) => colourOf(gantt.codelets[codelet]));
  const curves = run.curves.filter((c) => c.points.length > 1);
  const ROW = 26, GAP = 6, LEFT = 74, CURVE = 60;
  // Each curve has a line of its own for its name.
  const labels = (list) => 4 + 14 * list.length;
  const wattCurves = curves.filter((c) => c.name.startsWith("watts"));
  const byteCurves = curves.filter((c) => c.name.startsWith("bytes"));
  const below = [wattCurves, byteCurves].filter((list) => list.length);
  const height = 22 + tracks.length * (ROW + GAP) + below.reduce((sum, list) => sum + CURVE + labels(list), 0) + 10;
  const canvas = h("canvas", { tabindex: 0, role: "application", style: `height:${height}px`,
    "aria-label": `timeline of ${run.name}: arrows pan, plus and minus zoom, 0 shows all, comma and point go from event to event` });
  const details = h("div", { class: "details", "aria-live": "polite" }, "Point at a part, or press . and , to go from call to call.");
  const view = { from: gantt.begin, to: end };
  const chosen = { worker: -1, index: -1 };
  const least = 100;

  const clamp = () => {
    const all = scales.time || 1;
    const span = Math.min(all, Math.max(least, view.to - view.from));
    view.from = Math.min(Math.max(gantt.begin, view.from), end - span);
    view.to = view.from + span;
  };
  let asked = false;
  const redraw = () => { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; draw(); }); } };
  const zoom = (factor, at) => {
    const middle = at === undefined ? (view.from + view.to) / 2 : at;
    view.from = middle - (middle - view.from) * factor;
    view.to = middle + (view.to - middle) * factor;
    clamp();
    redraw();
  };
  const pan = (part) => { const shift = (view.to - view.from) * part; view.from += shift; view.to += shift; clamp(); redraw(); };
  const fit = () => { view.from = gantt.begin; view.to = end; redraw(); };

  function draw() {
    const ratio = window.devicePixelRatio || 1;
    const wide = canvas.clientWidth || 800;
    if (canvas.width !== Math.round(wide * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(wide * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink"), faint = style.getPropertyValue("--faint"), line = style.getPropertyValue("--line");
    const waits = [style.getPropertyValue("--spin"), style.getPropertyValue("--wait"), style.getPropertyValue("--s3")];
    const bad = style.getPropertyValue("--bad");
    const c = canvas.getContext("2d");
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, wide, height);
    c.font = "11px system-ui, sans-serif";
    const room = wide - LEFT - 8;
    const scale = room / (view.to - view.from);
    const X = (t) => LEFT + (t - view.from) * scale;
    c.fillStyle = faint;
    c.strokeStyle = line;
    const marks = ticks((view.from - gantt.begin), (view.to - gantt.begin), Math.max(2, room / 150));
    const told = nanosBy(marks.length > 1 ? marks[1] - marks[0] : view.to - view.from, view.to - gantt.begin);
    canvas.dataset.ticks = marks.map(told).join("|");
    for (const t of marks) {
      const x = X(t + gantt.begin);
      c.beginPath(); c.moveTo(x + 0.5, 16); c.lineTo(x + 0.5, height); c.stroke();
      if (x + 60 < wide) c.fillText(told(t), x + 3, 12);
    }
    tracks.forEach((track, w) => {
      const y = 22 + w * (ROW + GAP);
      c.fillStyle = ink;
      c.fillText(gantt.tracks[w].slice(0, 12), 6, y + ROW / 2 + 4);
      // What is narrower than a pixel is gathered: a column is as high as it is busy and has
      // the colour of its longest part.
      const busy = new Float64Array(Math.ceil(room) + 1);
      const longest = new Float64Array(busy.length);
      const owner = new Int32Array(busy.length).fill(-1);
      let small = false;
      for (let i = firstAfter(track, view.from); i < track.count && track.from[i] < view.to; i++) {
        const kind = track.kind[i];
        const a = Math.max(track.from[i], view.from), b = Math.min(track.to[i], view.to);
        const width = (b - a) * scale;
        if (width >= 1) {
          c.fillStyle = kind >= CALL ? colours[kind - CALL] : waits[kind];
          const x = X(a), high = kind >= 2, top = high ? y : y + ROW / 3, tall = high ? ROW : ROW / 3;
          c.fillRect(x, top, Math.max(1, width - (width > 4 ? 1 : 0)), tall);
          // As much of it as the worker was off its processor, wherever that was.
          if (track.lost[i]) { c.fillStyle = bad; c.fillRect(x, y + ROW - 4, Math.min(width, Math.max(2, track.lost[i] * scale)), 4); }
          if (kind >= CALL && width > 60) {
            c.fillStyle = "#16191b";
            c.fillText(gantt.codelets[gantt.cells[kind - CALL][0]].slice(0, Math.floor(width / 6.2)), x + 4, y + ROW / 2 + 4);
          }
        } else if (kind >= CALL) {
          const column = Math.floor((a - view.from) * scale);
          busy[column] += width;
          if (width >= longest[column]) { longest[column] = width; owner[column] = kind - CALL; }
          small = true;
        }
      }
      if (small) {
        for (let column = 0; column < busy.length; column++) {
          if (owner[column] < 0) continue;
          const tall = Math.max(1, Math.min(1, busy[column]) * ROW);
          c.fillStyle = colours[owner[column]];
          c.fillRect(LEFT + column, y + ROW - tall, 1, tall);
        }
      }
      if (chosen.worker === w && chosen.index >= 0) {
        c.strokeStyle = ink;
        c.lineWidth = 2;
        const x = X(track.from[chosen.index]);
        c.strokeRect(x, y - 1, Math.max(3, X(track.to[chosen.index]) - x), ROW + 2);
        c.lineWidth = 1;
      }
    });
    let top = 22 + tracks.length * (ROW + GAP);
    below.forEach((list, k) => {
      list.forEach((curve, i) => {
        c.fillStyle = resolved(COLOURS[(k * 3 + i) % COLOURS.length]);
        c.fillText(curve.name, LEFT + 8, top + 12 + 14 * i);
      });
      top += labels(list);
      const most = list === wattCurves ? scales.watts : scales.bytes;
      c.fillStyle = faint;
      const format = list === wattCurves ? (v) => `${v.toFixed(v < 10 ? 1 : 0)} W` : (v) => `${bytes(v)}/s`;
      c.fillText(format(most), 6, top + 8);
      c.fillText(list[0].name.split(/[ ,]/)[0], 6, top + CURVE - 2);
      c.strokeStyle = line;
      c.strokeRect(LEFT + 0.5, top + 0.5, room, CURVE);
      list.forEach((curve, i) => {
        c.strokeStyle = resolved(COLOURS[(k * 3 + i) % COLOURS.length]);
        c.beginPath();
        let begun = false;
        curve.points.forEach(([t, v], j) => {
          const next = j + 1 < curve.points.length ? curve.points[j + 1][0] : gantt.end;
          if (v === null) { begun = false; return; }
          if (next < view.from || t > view.to) return;
          const py = top + CURVE - (v / (most || 1)) * (CURVE - 4);
          const px = Math.max(LEFT, X(t)), qx = Math.min(LEFT + room, X(next));
          if (begun) c.lineTo(px, py); else c.moveTo(px, py);
          c.lineTo(qx, py);
          begun = true;
        });
        c.stroke();
      });
      top += CURVE;
    });
    canvas.dataset.watts = scales.watts;
    canvas.dataset.from = view.from;
    canvas.dataset.to = view.to;
    canvas.dataset.drawn = String(Number(canvas.dataset.drawn || 0) + 1);
  }

  const timeAt = (x) => view.from + ((x - LEFT) / Math.max(1, canvas.clientWidth - LEFT - 8)) * (view.to - view.from);
  const tell = (w, i) => {
    chosen.worker = w;
    chosen.index = i;
    const track = tracks[w];
    const kind = track.kind[i];
    // All times of the page are since the first event.
    const lost = track.lost[i] ? `, off its processor for ${exact(track.lost[i])}` : "";
    const times = `${gantt.tracks[w]}, ${exact(track.to[i] - track.from[i])} from ${exact(track.from[i] - gantt.begin)}${lost}`;
    if (kind < CALL) {
      details.replaceChildren(h("strong", {}, KINDS[kind]), ` ${times}`);
    } else {
      const [codelet, shape] = gantt.cells[kind - CALL];
      details.replaceChildren(
        h("span", { class: "swatch", style: `background:${colours[kind - CALL]};display:inline-block;width:.75rem;height:.75rem;margin-right:.4rem` }),
        h("strong", {}, gantt.codelets[codelet]), ` ${gantt.layers[track.layer[i]] || ""}, step ${track.step[i]}, ${times}`,
        h("br"), h("span", { class: "faint" }, `${gantt.tasks[track.task[i]]} · ${shape}`));
    }
    redraw();
  };
  const choose = (x, y) => {
    const w = Math.floor((y - 22) / (ROW + GAP));
    if (w < 0 || w >= tracks.length || x < LEFT) return;
    const time = timeAt(x);
    const i = firstAfter(tracks[w], time);
    if (i < tracks[w].count && tracks[w].from[i] <= time) tell(w, i);
  };
  const walk = (way) => {
    if (chosen.worker < 0) chosen.worker = 0;
    const track = tracks[chosen.worker];
    if (!track.count) return;
    const next = chosen.index < 0 ? firstAfter(track, view.from) : chosen.index + way;
    const i = Math.min(track.count - 1, Math.max(0, next));
    if (track.from[i] < view.from || track.to[i] > view.to) {
      const span = Math.max(view.to - view.from, (track.to[i] - track.from[i]) * 1.2);
      view.from = track.from[i] - span / 4;
      view.to = view.from + span;
      clamp();
    }
    tell(chosen.worker, i);
  };

  canvas.addEventListener("wheel", (e) => {
    // The page scrolls, unless the chart was chosen or a key says otherwise.
    if (!e.ctrlKey && !e.shiftKey && document.activeElement !== canvas) return;
    if (!e.ctrlKey && !e.shiftKey && Math.abs(e.deltaX) > Math.abs(e.deltaY)) { e.preventDefault(); pan(e.deltaX / 600); return; }
    e.preventDefault();
    zoom(Math.exp(Math.max(-1, Math.min(1, e.deltaY / 240))), timeAt(e.offsetX));
  }, { passive: false });
  const pointers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (e) => { canvas.setPointerCapture(e.pointerId); pointers.set(e.pointerId, e.offsetX); moved = 0; canvas.classList.add("moving"); });
  canvas.addEventListener("pointermove", (e) => {
    if (!pointers.has(e.pointerId)) { if (e.pointerType === "mouse") choose(e.offsetX, e.offsetY); return; }
    const room = canvas.clientWidth - LEFT - 8;
    if (pointers.size === 2) {
      const [a, b] = [...pointers.values()];
      pointers.set(e.pointerId, e.offsetX);
      const [p, q] = [...pointers.values()];
      if (Math.abs(p - q) > 8) zoom(Math.abs(a - b) / Math.abs(p - q), timeAt((p + q) / 2));
    } else {
      const shift = e.offsetX - pointers.get(e.pointerId);
      moved += Math.abs(shift);
      pan(-shift / room);
      pointers.set(e.pointerId, e.offsetX);
    }
  });
  const up = (e) => {
    if (pointers.delete(e.pointerId) && moved < 4 && e.type === "pointerup") choose(e.offsetX, e.offsetY);
    if (!pointers.size) canvas.classList.remove("moving");
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("keydown", (e) => {
    const actions = {
      ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2),
      0: fit, Home: fit, ".": () => walk(1), ",": () => walk(-1),
      ArrowDown: () => { chosen.worker = Math.min(tracks.length - 1, chosen.worker + 1); chosen.index = -1; walk(1); },
      ArrowUp: () => { chosen.worker = Math.max(0, chosen.worker - 1); chosen.index = -1; walk(1); },
    };
    if (actions[e.key] && !e.ctrlKey && !e.metaKey && !e.altKey) { e.preventDefault(); actions[e.key](); }
  });
  if (window.ResizeObserver) new ResizeObserver(redraw).observe(canvas);
  document.addEventListener("theme", redraw);
  const tools = h("div", { class: "tools" },
    h("button", { type: "button", "data-zoom": "in", onclick: () => zoom(0.5) }, "Zoom in"),
    h("button", { type: "button", "data-zoom": "out", onclick: () => zoom(2) }, "Zoom out"),
    h("button", { type: "button", onclick: () => pan(-0.3), "aria-label": "earlier" }, "◀"),
    h("button", { type: "button", onclick: () => pan(0.3), "aria-label": "later" }, "▶"),
    h("button", { type: "button", "data-zoom": "all", onclick: fit }, "All"),
    h("span", { class: "faint" }, `${gantt.events.toLocaleString("en")} events; dragging pans, Ctrl and the wheel zoom (the wheel alone after a click), keys: + - 0 ← → , .`));
  const used = [...new Set(gantt.cells.map(([codelet]) => gantt.codelets[codelet]))];
  redraw();
  return h("div", { "data-run": name }, tools, canvas, details, legend(used.slice(0, 24).map((codelet) => [codelet, colourOf(codelet)]).concat([["spinning", "var(--spin)"], ["waiting", "var(--wait)"]], gantt.tracks.length > gantt.workers ? [["transfer", "var(--s3)"]] : [], [["off its processor", "var(--bad)"]])));
}
