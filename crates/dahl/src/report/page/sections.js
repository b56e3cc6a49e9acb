// The parts of the page, each from the runs' data.

const CAUSES = [["busy", "var(--good)"], ["no_work", "var(--none)"], ["waiting", "var(--wait)"], ["transfer", "var(--s3)"], ["spinning", "var(--spin)"], ["overhead", "var(--bad)"]];

const last = (list) => (list.length ? list[list.length - 1] : undefined);
const energiesOf = (run) => run.measured.concat(run.modelled);
const energyOf = (run) => energiesOf(run)[0];
/** Where statistics come from, in words. */
const sourceOf = (stats) => (stats.from === "counters" ? "counters of the session" : stats.engine === "simulated" ? "a simulated trace" : "the trace");
const statsOf = (run) => run.stats || run.counters;
/** The unit that a worker was on, where there was a platform. */
const unitOf = (stats, worker) => (stats.units || [])[worker];
const runColour = (i) => COLOURS[i % COLOURS.length];

function summary(runs, compared) {
  const cards = runs.map((run, i) => {
    const end = last(run.epochs) || {};
    const energy = energyOf(run);
    const stats = statsOf(run);
    const row = (name, value) => (value === undefined || value === null ? [] : [h("dt", {}, name), h("dd", {}, value)]);
    const samples = run.epochs.reduce((sum, e) => sum + e.seconds * e.samples_per_second, 0);
    return h("div", { class: "card", style: `--run:${runColour(i)}` }, h("h3", {}, run.name), h("dl", {},
      row("epochs", run.epochs.length + (run.result ? "" : ", not ended")),
      row("test accuracy", end.test_accuracy !== undefined ? percent(end.test_accuracy) : undefined),
      row("loss", end.loss !== undefined ? end.loss.toFixed(4) : undefined),
      row("learning rate", end.lr !== undefined ? `${end.lr.toPrecision(3)} at the end` : undefined),
      row("training", run.epochs.length ? seconds(run.seconds) : undefined),
      row("samples/s", run.seconds > 0 ? Math.round(samples / run.seconds).toLocaleString("en") : undefined),
      row("parallel efficiency", stats ? `${percent(efficiency(stats))}, ${sourceOf(stats)}` : undefined),
      row("recorded", run.stats ? recorded(run.stats) : undefined),
      row("energy", energy ? about(energy.total.joules, energy.total.interval) : undefined),
      row("per sample", energy && energy.samples ? about(energy.per_sample, part(energy.total, energy.per_sample)) : undefined),
      row("EDP", energy ? `${significant(energy.edp, energy.kind === "modelled" ? 2 : 4)} J s` : undefined),
      energy ? row("energy source", energy.total.source) : [],
      energy && energy.total.partial ? row("partial", energy.total.partial) : [],
      run.silent.flatMap((text) => row("no figures", text)),
      run.problems.flatMap(([, text]) => row("ignored file", text))));
  });
  const verdicts = compared.map((c) => h("div", { class: "compared" },
    [c.faster, c.cheaper].filter(Boolean).map((v) => h("p", { class: v.less === null ? "verdict open" : "verdict" }, v.text)),
    c.note ? h("p", { class: "faint" }, c.note) : null, why(c)));
  return card(runs.length > 1 ? "Runs side by side" : "Summary", "summary", h("div", { class: "cards" }, cards), ...verdicts);
}

/** Which steps a trace has. */
function recorded(stats) {
  const r = stats.recorded;
  if (!r) return "nothing";
  return `steps ${r.steps[0]} to ${r.steps[1]}${r.of ? ` of ${r.of}` : ""}: ${r.programs.map(([name, steps]) => `${steps} of ${name}`).join(", ")}${r.bound ? `; ended by the bound of ${r.bound.toLocaleString("en")} events` : ""}`;
}

function why(c) {
  if (!c.reasons.length) return null;
  const change = (a, b) => h("span", { class: b > a ? "plus" : "minus" }, `${b > a ? "+" : "−"}${nanos(Math.abs(b - a))}`);
  const calls = (r) => (r.calls ? r.calls.map((n) => n.toFixed(2)) : ["", ""]);
  const rows = c.reasons.map((r) => [r.what, change(...r.nanos), nanos(r.nanos[0]), nanos(r.nanos[1]), ...calls(r)]);
  const sum = [0, 1].map((i) => c.reasons.reduce((t, r) => t + r.nanos[i], 0));
  rows.push({ attributes: { class: "sum" }, cells: ["total", change(...sum), nanos(sum[0]), nanos(sum[1]), "", ""] });
  return h("div", {}, h("h3", {}, "Why: wall time per training sample by cause, largest differences first"),
    h("p", { class: "faint" }, "Wall time: the time of all workers divided by their number. The rows sum to the difference."),
    table(["", "difference", c.names[0], c.names[1], `calls, ${c.names[0]}`, `calls, ${c.names[1]}`], rows, { label: "differences" }));
}

function efficiency(stats) {
  const busy = stats.codelets.reduce((sum, row) => sum + row.total, 0);
  return stats.window && stats.workers.length ? busy / (stats.window * stats.workers.length) : 0;
}

function learning(runs) {
  const many = runs.length > 1;
  const lines = (keys) => runs.flatMap((run, i) => keys.map(([key, name, dash]) => ({
    name: many ? `${run.name}, ${name}` : name, dash, colour: many ? runColour(i) : (dash ? COLOURS[1] : COLOURS[0]),
    points: run.epochs.filter((e) => e[key] !== undefined).map((e) => [e.epoch, e[key]]),
  })));
  const axis = { x: (x) => String(x), whole: true };
  return card("Learning", "learning", h("div", { class: "grid" },
    lineChart(lines([["loss", "training"], ["test_loss", "test", "5 3"], ["validation_loss", "validation", "2 2"]]), { ...axis, title: "Loss by epoch", y: (y) => y.toPrecision(3), zero: true }),
    lineChart(lines([["accuracy", "training"], ["test_accuracy", "test", "5 3"], ["validation_accuracy", "validation", "2 2"]]), { ...axis, title: "Accuracy by epoch", y: (y) => `${(100 * y).toFixed(1)} %` }),
    lineChart(lines([["lr", "learning rate"]]), { ...axis, title: "Learning rate by epoch (of its last step)", y: (y) => y.toPrecision(2), zero: true })));
}

function epochs(runs) {
  const numbers = [...new Set(runs.flatMap((run) => run.epochs.map((e) => e.epoch)))].sort((a, b) => a - b);
  const times = runs.map((run, i) => ({ name: run.name, colour: runColour(i), values: numbers.map((n) => (run.epochs.find((e) => e.epoch === n) || {}).seconds) }));
  const energies = runs.flatMap((run, i) => [run.measured[0], run.modelled[0]].filter(Boolean).map((e) => ({
    name: runs.length > 1 ? `${run.name}, ${e.kind}` : e.kind, colour: runColour(i), pale: e.kind === "modelled" && run.measured.length > 0,
    values: numbers.map((n) => (e.epochs.find((p) => p[0] === n) || [])[1]),
  })));
  return card("Epochs", "epochs", h("div", { class: "grid" },
    barChart(numbers, times, { title: "Training time per epoch", y: seconds }),
    barChart(numbers, energies, { title: "Energy per epoch, evaluation included", y: joules })));
}

function timeline(runs) {
  const traced = runs.filter((run) => run.gantt);
  if (!traced.length) return card("Timeline", "timeline", h("p", { class: "faint" }, "There is no trace; dahl train --trace records one, which is shown when the run has ended."));
  const scales = ganttScales(traced);
  const charts = runs.map((run, i) => (run.gantt ? h("div", {}, h("p", { class: "faint" }, h("strong", {}, run.name), `: ${recorded(run.stats)}${run.stats.engine === "simulated" ? "; simulated, nothing was measured" : ""}`), ganttChart(run, i, scales)) : null));
  const shared = traced.length > 1 ? h("p", { class: "faint" }, "All charts have the same scales of time, watts and bytes.") : null;
  return card("Timeline", "timeline", ...[shared, ...charts].filter(Boolean));
}

function workers(runs) {
  const parts = runs.map((run) => {
    const stats = statsOf(run);
    if (!stats) return null;
    const rows = stats.workers.map((w, i) => {
      const cells = percents(CAUSES.map(([cause]) => w[cause]));
      return [unitOf(stats, i) || `worker ${i}`, stack(CAUSES.map(([cause, colour]) => [cause.replace("_", " "), w[cause], colour])), ...cells.map((p) => `${p.toFixed(1)} %`)];
    });
    return h("div", {}, h("h3", {}, `${run.name}: ${percent(efficiency(stats))} parallel efficiency over ${nanos(stats.window)}, ${sourceOf(stats)}`),
      table(["", "", ...CAUSES.map(([cause]) => cause.replace("_", " "))], rows, { label: "what workers did" }));
  });
  return card("Workers", "workers", legend(CAUSES.map(([cause, colour]) => [cause.replace("_", " "), colour])), ...parts.filter(Boolean),
    h("p", { class: "faint" }, "Worker 0 is the caller's thread: its overhead is the caller's time too."));
}

function codelets(runs) {
  const parts = runs.map((run) => {
    const stats = statsOf(run);
    if (!stats) return null;
    const shares = percents(stats.codelets.map((row) => row.total));
    // A step of the program that was predicted, and of no other.
    const own = run.predicted && stats.paths.find((p) => p.program === run.predicted.program);
    const predicted = new Map(own ? run.predicted.codelets : []);
    const took = new Map(own ? own.times.map(([name, time]) => [name, time / Math.max(1, own.steps)]) : []);
    const body = h("tbody");
    const columns = [
      ["codelet", (r) => r.codelet], ["calls", (r) => r.calls], ["total", (r) => r.total], ["share", (r) => r.share], ["mean", (r) => r.mean],
      ["p50", (r) => r.p50], ["p90", (r) => r.p90], ["p99", (r) => r.p99], ["GFLOP/s", (r) => (r.total ? r.flops / r.total : 0)],
    ];
    const rows = stats.codelets.map((row, i) => ({ row, share: shares[i], open: false }));
    const cells = (row, share) => [row.calls.toLocaleString("en"), h("span", { title: exact(row.total), "data-ns": row.total }, nanos(row.total)), share, nanos(row.mean), ...[row.p50, row.p90, row.p99].map((x) => (x ? nanos(x) : "–")), row.flops ? (row.flops / row.total).toFixed(2) : "–"];
    const fill = () => {
      body.replaceChildren(...rows.flatMap((one) => {
        const toggle = h("button", { type: "button", class: "plain", "aria-expanded": String(one.open), onclick: () => { one.open = !one.open; fill(); } },
          `${one.open ? "▾" : "▸"} `, h("span", { class: "swatch", style: `background:${colourOf(one.row.codelet)}` }), one.row.codelet);
        const head = h("tr", {}, h("td", {}, toggle), cells(one.row, `${one.share.toFixed(1)} %`).map((c) => h("td", {}, c)));
        if (predicted.size) head.append(h("td", {}, predicted.has(one.row.codelet) ? `${nanos(predicted.get(one.row.codelet))} / ${nanos(took.get(one.row.codelet) || 0)}` : "–"));
        const parts = percents(one.row.shapes.map((shape) => shape.total), Math.round(10 * one.share));
        const shapes = one.open ? one.row.shapes.map((shape, k) => h("tr", { class: "shape" }, h("td", {}, shape.shape || "(no shape)"), cells(shape, `${parts[k].toFixed(1)} %`).map((c) => h("td", {}, c)))) : [];
        return [head, ...shapes];
      }));
    };
    fill();
    let order = "total";
    const heads = columns.map(([name, of]) => h("th", { scope: "col" }, h("button", { type: "button", onclick: () => {
      const back = order === name ? -1 : 1;
      order = order === name ? "" : name;
      rows.sort((a, b) => { const [x, y] = [of(a.row), of(b.row)]; return back * (typeof x === "string" ? x.localeCompare(y) : y - x); });
      fill();
    } }, name)));
    if (predicted.size) heads.push(h("th", { scope: "col" }, `${own.program}: predicted / measured per step`));
    return h("div", {}, h("h3", {}, `${run.name}, from ${sourceOf(stats)}: ${nanos(stats.codelets.reduce((t, r) => t + r.total, 0))} in ${stats.from === "counters" ? `${stats.steps} training steps, with evaluation` : recorded(stats)}`),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "codelets" }, h("table", { class: "codelets" }, h("thead", {}, h("tr", {}, heads)), body)));
  });
  return card("Codelets", "codelets", ...parts.filter(Boolean));
}

function spreads(runs) {
  const names = ["preemption", "worker", "data", "neighbours", "unexplained"];
  const colours = ["var(--bad)", "var(--s0)", "var(--s2)", "var(--s3)", "var(--wait)"];
  const parts = runs.filter((run) => run.stats && run.stats.spreads.length).map((run) => h("div", {}, h("h3", {}, run.name),
    table(["codelet", "calls", "mean", "deviation", "variance by cause", "means of groups"], run.stats.spreads.map((x) => [
      h("span", { title: x.shape }, x.codelet), x.calls.toLocaleString("en"), nanos(x.mean), nanos(x.deviation), stack(x.parts.map((p, i) => [names[i], p, colours[i]])),
      x.levels.map((l) => `${l.what} ${nanos(l.mean)} (${l.calls})`).join(", ")]), { wide: 5, label: "spread" })));
  if (!parts.length) return null;
  return card("Why times differ", "spread", legend(names.map((n, i) => [n, colours[i]])), ...parts);
}

function path(runs) {
  const parts = runs.filter((run) => run.stats).map((run) => h("div", {}, h("h3", {}, run.name),
    ...run.stats.paths.map((p) => h("p", {}, `${p.program}: the critical path is ${nanos(p.path)} of ${nanos(p.span)} per step (${percent(p.path / (p.span || 1))}), with ${nanos(p.work)} of work; `,
      p.codelets.slice(0, 4).map(([name, time]) => `${name} ${nanos(time)}`).join(", "))),
    table(["gap", "worker", "at", "step", "cause", "ended by; then"], run.stats.gaps.map((g) => [nanos(g.to - g.from), unitOf(run.stats, g.worker) || g.worker, nanos(g.from - run.stats.begin), g.step, g.cause, `${g.ended_by}; then ${g.then}`]), { wide: 5, label: "largest gaps" })));
  return parts.length ? card("Critical path and gaps", "path", ...parts) : null;
}

/** A figure of energy with all its parts. */
function energyFigure(run, e) {
  const values = e.causes.map((c) => c.energy.value);
  const whole = values.every((v) => v >= 0);
  const shares = percents(values);
  const colours = e.causes.map((c, i) => COLOURS[i % COLOURS.length]);
  const cause = (c, i) => [h("span", {}, h("span", { class: "swatch", style: `background:${colours[i]}` }), c.name), about(values[i], [c.energy.low, c.energy.high]), whole ? `${shares[i].toFixed(1)} %` : ""];
  return h("div", {}, h("h3", {}, `${run.name}, ${e.kind}: ${about(e.total.joules, e.total.interval)}`), h("p", { class: "faint" }, e.total.source, e.total.partial ? `; partial: ${e.total.partial}` : ""),
    e.causes.length && whole ? stack(e.causes.map((c, i) => [c.name, values[i], colours[i]])) : null,
    e.causes.length ? table(["cause", "energy", "share"], e.causes.map(cause), { label: "energy by cause" }) : null,
    e.domains.length > 1 ? table(["read by", "energy", "missed"], e.domains.map((d) => [`${d.name}${d.covers === "part" ? " (in its package)" : ""}`, joules(d.joules), d.missed > 0 ? `${d.missed.toFixed(1)} s` : "–"]), { label: "energy by meter" }) : null,
    e.to_accuracy.length ? h("p", {}, e.to_accuracy.map(([a, j]) => `${about(j, part(e.total, j))} to ${Math.round(100 * a)} % test accuracy`).join(", ")) : null);
}

function energy(runs) {
  const parts = runs.flatMap((run) => {
    const figures = [h("div", { class: "grid" }, energiesOf(run).map((e) => energyFigure(run, e)))];
    if (run.power) {
      const series = run.power.domains.map((d, i) => ({ name: d.name, colour: COLOURS[i % COLOURS.length], points: d.points }));
      figures.push(lineChart(series, { title: `${run.name}: measured watts, means of ${run.power.interval} s and more`, x: seconds, y: (y) => `${y.toPrecision(3)} W`, zero: true, begin: 0 }));
    }
    if (!run.layers || !run.layers.length) return figures;
    const known = run.layers.every((l) => l[3] !== null) && run.platform;
    const format = known ? joules : nanos;
    const layers = run.layers.map(([layer, codelet, ns, j]) => ({ layer, codelet, value: known ? j : ns }));
    const title = known ? `joules of busy workers above idle, modelled from ${run.platform}, during the steps in the trace` : "time of workers in the trace";
    return figures.concat([h("h3", {}, `${run.name}, by layer: ${title}`), flameGraph(layerTree(layers), format)]);
  });
  return card("Energy", "energy", parts.length ? parts : h("p", { class: "faint" }, "No figures."));
}

function memory(runs) {
  const parts = runs.map((run, i) => {
    if (!run.memory) return null;
    const planned = run.memory.planned.reduce((sum, p) => sum + p[1], 0);
    return h("div", {}, h("h3", {}, `${run.name}: ${bytes(planned)} planned, ${run.memory.peak ? bytes(run.memory.peak) : "unknown"} peak of the process`),
      stack(run.memory.planned.map(([name, value], k) => [name, value, COLOURS[k]])),
      legend(run.memory.planned.map(([name, value], k) => [`${name} ${bytes(value)}`, COLOURS[k]])),
      lineChart([
        { name: "resident", colour: runColour(i), points: run.memory.resident },
        { name: "planned", colour: "var(--faint)", dash: "5 3", points: run.memory.resident.length ? [[0, planned], [last(run.memory.resident)[0], planned]] : [] },
      ], { title: "Memory over time", x: seconds, y: bytes, zero: true, begin: 0 }));
  });
  return card("Memory", "memory", h("div", { class: "grid" }, ...parts.filter(Boolean)));
}

function prediction(runs) {
  const parts = runs.filter((run) => run.predicted).map((run) => {
    const p = run.predicted;
    const train = run.stats && run.stats.paths.find((x) => x.program === p.program);
    const step = run.counted && run.counted.steps ? (run.seconds * 1e9) / Math.max(1, last(run.epochs) ? last(run.epochs).steps : run.counted.steps) : undefined;
    const rows = [["step, predicted", nanos(p.step), `${nanos(p.interval[0])} to ${nanos(p.interval[1])}`], ["energy of a step, modelled", `about ${joules(Number(p.joules.toPrecision(2)))}`, ""]];
    if (run.step_joules) rows.push(["energy of a step, modelled from the workers' activity in the trace", `about ${joules(Number(run.step_joules.toPrecision(2)))}`, p.joules > 0 ? `${(100 * (run.step_joules / p.joules - 1)).toFixed(1)} %` : ""]);
    if (train) rows.push(["step, measured in the trace (median)", nanos(train.span), `${(100 * (train.span / p.step - 1)).toFixed(1)} % off the prediction`]);
    if (step) rows.push(["step, measured, with everything between steps (mean)", nanos(step), `${(100 * (step / p.step - 1)).toFixed(1)} %`]);
    return h("div", {}, h("h3", {}, `${run.name}: ${p.program || "a training step"}, by ${p.from}`), table(["", "", ""], rows, { label: "prediction" }));
  });
  return card("Predicted and measured", "prediction", parts.length ? parts : h("p", { class: "faint" }, "There is no prediction; dahl train --calibration FILE makes one."));
}

function provenance(runs) {
  return card("Configuration and provenance", "provenance", h("div", { class: "grid" }, runs.map((run) => h("div", {},
    h("h3", {}, run.name), h("pre", { tabindex: 0 }, run.config || "none"),
    h("pre", { tabindex: 0 }, run.sessions.map((x) => JSON.stringify(x, null, 1)).join("\n") || "no sessions"),
    run.result ? h("pre", { tabindex: 0 }, JSON.stringify(run.result, null, 1)) : null))));
}
