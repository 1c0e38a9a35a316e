// ---- charts ----
const line = (i) => ({ color: COLOURS[i % COLOURS.length], dash: DASHES[Math.floor(i / COLOURS.length) % DASHES.length], width: 2 });
const rgba = (hex, alpha) => `rgba(${[1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16)).join(", ")}, ${alpha})`;
function curve(points, name, i) {
  const few = points.length < 40;
  return {
    type: "scatter", mode: few ? "lines+markers" : "lines", x: points.map((p) => p[0]), y: points.map((p) => p[1]),
    name: plain(name), title: name, line: line(i), cliponaxis: false, marker: { size: 5, symbol: SYMBOLS[i % SYMBOLS.length] },
  };
}
// A change of less than a hundredth of the values is drawn as what it is, nearly a flat line; null: as plotly does it.
function widened(traces) {
  const values = traces.flatMap((trace) => trace.y), low = Math.min(...values), high = Math.max(...values), most = Math.max(Math.abs(low), Math.abs(high), 1);
  return high - low < 0.01 * most ? [low - 0.05 * most, high + 0.05 * most] : null;
}
// Marks of a logarithmic axis, in plain numbers: powers of ten, with 2 and 5 where these are few.
function logTicks(values) {
  const low = Math.floor(Math.log10(Math.min(...values))), high = Math.ceil(Math.log10(Math.max(...values)));
  const steps = high - low > 3 ? [1] : [1, 2, 5], ticks = [];
  for (let power = low; power <= high; power++) ticks.push(...steps.map((step) => Number(`${step}e${power}`)));
  return { tickvals: ticks, ticktext: ticks.map(String) };
}
// What lines and marks mean: names in full, each once.
function key(traces) {
  const colourOf = (trace) => (trace.mode.startsWith("lines") ? trace.line.color : trace.marker.color);
  const named = Map.groupBy(traces.filter((t) => t.title && !t.unnamed), (t) => t.title);
  return make("ul", { class: "key" }, ...[...named].map(([name, alike]) => {
    const trace = alike[0], isLine = trace.mode.startsWith("lines");
    const colour = new Set(alike.map(colourOf)).size > 1 ? "var(--quiet)" : colourOf(trace); // of several colours: the kind of line alone
    const swatch = make("span", { class: isLine ? "stroke" : "swatch", "aria-hidden": "true", text: isLine ? "" : trace.marker.symbol === "circle-open" ? "○" : "●" });
    Object.assign(swatch.style, isLine ? { borderTop: `3px ${{ solid: "solid", dash: "dashed", dashdot: "dashed" }[trace.line.dash ?? "solid"] ?? "dotted"} ${colour}` } : { color: colour });
    return make("li", {}, swatch, make("span", { text: name }));
  }));
}
// A chart with its key; of fewer than three points a table.
function chart(parent, title, traces, layout, { keyed = true, note = "", across = "epoch" } = {}) {
  const box = make("div", { class: "chart" }, make("h3", { text: title }));
  parent.append(box);
  if (traces.every((trace) => trace.x.length < FEW)) {
    const shown = traces.filter((t) => !t.unnamed), xs = [...new Set(shown.flatMap((t) => t.x))].sort((a, b) => a - b);
    box.append(scores([across, ...shown.map((t) => t.title)], xs.map((x) => [x, ...shown.map((t) => number(t.y[t.x.indexOf(x)]))])));
  } else {
    const plot = make("div", { class: "plot", role: "img", "aria-label": spoken(title, traces, across) });
    box.append(...[keyed && traces.length > 1 ? key(traces) : null, plot].filter(Boolean));
    draw(plot, traces, layout);
  }
  if (note) box.append(make("p", { class: "help", text: note }));
}
// A chart for those who do not see it: where every line begins and ends.
function spoken(title, traces, across) {
  const lines = traces.filter((t) => !t.unnamed && t.mode.startsWith("lines") && t.x.length);
  const ends = (t) => `${t.title}: ${number(t.y[0])} at ${across} ${number(t.x[0])}, ${number(t.y.at(-1))} at ${across} ${number(t.x.at(-1))}`;
  return [title, ...lines.map(ends)].join(". ");
}
// Four digits, or four decimals of what is smaller than 1; what is written as 0 has no sign.
function number(value) {
  if (value === undefined || value === null) return "–";
  if (Number.isInteger(value)) return minus(value);
  return minus((Math.abs(value) >= 1 ? value.toPrecision(4) : value.toFixed(4)).replace(/^-(0\.0*)$/, "$1"));
}

// ---- over epochs; of a folder of seeds mean and standard deviation ----
// [epoch, mean, sd, runs] of the epochs that all runs of a group have.
function meanPoints(columns) {
  const found = columns.filter(Boolean);
  if (!found.length) return [];
  return found[0].map((p) => p[0]).filter((epoch) => found.every((points) => points.some((p) => p[0] === epoch))).map((epoch) => {
    const values = found.map((points) => points.find((p) => p[0] === epoch)[1]), mean = values.reduce((a, b) => a + b) / values.length;
    const sd = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / Math.max(values.length - 1, 1));
    return [epoch, mean, sd, values.length];
  });
}
function groupTraces(points, name, i) {
  const mean = curve(points, name, i), xs = points.map((p) => p[0]);
  if (!points.length || points[0][3] === 1) return [mean];
  const band = {
    type: "scatter", mode: "lines", x: [...xs, ...xs.toReversed()], y: [...points.map((p) => p[1] + p[2]), ...points.toReversed().map((p) => p[1] - p[2])],
    fill: "toself", fillcolor: rgba(COLOURS[i % COLOURS.length], 0.2), line: { width: 0 }, hoverinfo: "skip", unnamed: true,
  };
  return [band, mean];
}
function liveSamples() {
  const counts = [...new Set(runs.map((run) => run.live_samples).filter(Boolean))].sort((a, b) => a - b);
  return counts.length ? `${counts.length > 1 ? `${counts[0]} to ` : ""}${counted(counts.at(-1), "sample")}` : "a few samples";
}
const capital = (text) => text.replace(/^./, (letter) => letter.toUpperCase());
// Everything that was written down over epochs: {title, fromZero, terms} with {name, i, points} of every line.
function quantities() {
  const names = (kind) => [...new Set(runs.flatMap((run) => Object.keys(run.history[kind])))];
  const ofGroups = (kind, name) => groups.map((group, i) => ({ name: group.name, i, points: meanPoints(group.runs.map((r) => runs[r].history[kind][name])) })).filter((l) => l.points.length);
  const terms = names("terms");
  const losses = groups.length > 1 ? terms.map((term) => ({ title: capital(words(term)), lines: ofGroups("terms", term) }))
    : [{ title: "Loss and its terms", keyed: true, lines: terms.map((term, i) => ({ ...ofGroups("terms", term)[0], name: words(term), i })) }];
  const times = (factor, lines) => lines.map((l) => ({ ...l, points: l.points.map(([epoch, mean, sd, count]) => [epoch, factor * mean, factor * sd, count]) }));
  const geometry = runs[0].charts.filter((c) => names("geometry").includes(c.name))
    .map(({ name, title, scale, from_zero }) => ({ title, fromZero: from_zero, lines: times(scale, ofGroups("geometry", name)) }));
  return terms.length ? [...losses, ...geometry] : [];
}
function showTraining() {
  const parent = find("#training .charts"), all = quantities();
  const isShort = (quantity) => quantity.lines.every((l) => l.points.length < FEW);
  find("#training .help").textContent = "The loss is what training makes smaller, as a sum of terms; losses of different methods cannot be compared. "
    + `Live metrics were measured along the way, on random views of ${liveSamples()}; epoch 0 is the encoder before training. `
    + "The table at the top measures all samples, so its values of the same metrics are others: compare a live value with other live values only."
    + (runs.length > groups.length ? " Of a folder of seeds the mean is drawn, and its standard deviation as a band." : "");
  if (!all.length) { parent.append(make("p", { class: "note", text: "No epoch was finished." })); return; }
  const few = all.filter(isShort);
  if (few.length) parent.before(epochTable(few));
  if (groups.length > 1) parent.before(key(groups.map((group, i) => curve([], group.name, i))));
  for (const { title, fromZero, lines, keyed = false } of all.filter((q) => !isShort(q))) {
    const traces = lines.flatMap((l) => groupTraces(l.points, l.name, l.i)), range = fromZero ? null : widened(traces);
    const layout = { xaxis: epochAxis(lines.flatMap((l) => l.points)), yaxis: { rangemode: fromZero ? "tozero" : "normal", ...(range ? { range } : {}) } };
    chart(parent, title, traces, layout, { keyed });
  }
}
// Whole epochs only.
function epochAxis(points) {
  const most = Math.max(...points.map((p) => p[0]));
  return { title: { text: "epoch" }, rangemode: "tozero", ...(most <= 8 ? { dtick: most > 4 ? 2 : 1 } : {}) };
}
function epochTable(few) {
  const epochs = [...new Set(few.flatMap((q) => q.lines.flatMap((l) => l.points.map((p) => p[0]))))].sort((a, b) => a - b);
  const text = (point) => (point ? number(point[1]) + (point[3] > 1 ? ` ± ${number(point[2])}` : "") : "–");
  const rows = few.flatMap(({ title, lines, keyed }) => lines.map((l) => [
    keyed ? capital(l.name) : groups.length > 1 ? `${title}: ${l.name}` : title, ...epochs.map((epoch) => text(l.points.find((p) => p[0] === epoch)))]));
  return scores(["", ...epochs.map((epoch) => `epoch ${epoch}`)], rows, "What was measured over epochs");
}

// ---- geometry of the evaluated features ----
function showShape() {
  const parent = find("#shape .charts"), spectra = [], plane = [];
  parent.classList.toggle("crowded", groups.length > 1);
  groups.forEach((group, i) => group.runs.forEach((r) => {
    const run = runs[r], width = group.runs.length > 1 ? 1 : 2, colour = COLOURS[i % COLOURS.length];
    // Colours of several groups are named above both charts: here it is what lines and marks mean.
    const named = (which) => ({ title: which, name: plain(groups.length === 1 ? which : `${group.name}, ${which}`) });
    for (const [which, values] of Object.entries(run.spectrum)) {
      const top = values[0] || 1, kept = values.filter((v) => v > ROUNDING * top);
      spectra.push({
        type: "scatter", mode: "lines", ...named(which), x: kept.map((_, k) => k + 1), y: kept.map((v) => v / top),
        line: { color: colour, width, dash: which === "untrained" ? "dot" : "solid" },
      });
    }
    const { alignment = [], uniformity = [] } = run.history.geometry;
    if (alignment.length > 1) plane.push({
      type: "scatter", mode: "lines+markers", x: uniformity.map((p) => p[1]), y: alignment.map((p) => p[1]),
      ...named("live, while training, on fewer samples"), line: { color: colour, width: 1, dash: "dot" },
      marker: { size: 4 }, text: alignment.map((p) => `epoch ${p[0]}`),
    });
    for (const [which, [a, u]] of Object.entries(run.plane)) plane.push({
      type: "scatter", mode: "markers", x: [u], y: [a], ...named(which),
      marker: { size: 13, color: colour, symbol: which === "untrained" ? "circle-open" : "circle" },
    });
  }));
  if (groups.length > 1) parent.before(key(groups.map((group, i) => curve([], group.name, i))));
  chart(parent, "Singular values of the standardised features", spectra, {
    xaxis: { title: { text: "rank" } }, yaxis: { type: "log", title: { text: "relative to the largest" }, ...logTicks(spectra.flatMap((t) => t.y)) },
  }, { across: "rank", note: "The weight of every direction of the features, largest first. A curve that falls slowly uses many directions; one that drops after a few has collapsed." });
  // Two points, before and after, are in the table at the top already.
  if (plane.reduce((sum, trace) => sum + trace.x.length, 0) < FEW) return;
  const box = make("div", { class: "chart" }, make("h3", { text: "Alignment and uniformity" }), key(plane));
  const plot = make("div", { class: "plot", role: "img", "aria-label": "Alignment and uniformity, whose values are in the tables" });
  box.append(plot, make("p", { class: "help", text: "A good encoder is low, where views of a sample agree, and left, where samples are spread. Low and right is a collapse: everything agrees with everything." }));
  parent.append(box);
  draw(plot, plane, { xaxis: { title: { text: "uniformity (left: more spread)" } }, yaxis: { title: { text: "alignment (down: views agree)" } } });
}
