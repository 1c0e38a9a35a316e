// ---- gallery, probes, provenance ----
function showGallery() {
  for (const run of runs) {
    const rows = run.map.queries.map((query) => make("div", { class: "row" },
      make("div", { class: "tiles" }, ...[query, ...run.map.neighbours[query]].map((point) => tile(run, point, query, wide(run) ? 42 : 64, () => {
        const panel = panels.find((p) => p.run === run) ?? panels[0];
        if (panel.run !== run) { panel.runSelect.value = String(runs.indexOf(run)); panel.runSelect.dispatchEvent(new Event("change")); }
        panel.show(point);
        panel.plot.scrollIntoView({ block: "center" });
      })))));
    find("#gallery .body").append(...[runs.length > 1 ? make("h3", { text: run.name }) : null,
      make("p", { class: "help", text: run.map.labels ? "A query and the samples nearest to it; ✓ and a solid frame: same label, ✗ and a dashed frame: another." : "A query and the samples nearest to it." }), ...rows].filter(Boolean));
  }
}
function showProbes() {
  const body = make("div", { class: "runs" });
  for (const run of runs) {
    if (!run.probes.length) { body.append(make("div", {}, make("h3", { text: run.name }), make("p", { class: "note", text: `No probes. ${run.note}` }))); continue; }
    if (run.probes[0].per_label) { body.append(multilabel(run)); continue; }
    if (run.probes[0].true) { body.append(regression(run)); continue; }
    const classes = run.probes[0].classes, counts = run.probes[0].samples_per_class;
    const percent = (value) => (value === undefined || value === null ? "–" : (100 * value).toFixed(1));
    const samples = (c) => (counts?.[c] ? `${counts[c].train} / ${counts[c].test}` : "");
    const head = make("tr", {}, make("th", { text: "class" }), make("th", { class: "number", text: counts ? "train / test" : "" }), ...run.probes.map((p) => make("th", { class: "number", text: p.name })));
    const row = (name, n, text) => make("tr", {}, make("td", { text: name }), make("td", { class: "number", text: n }), ...run.probes.map((p) => make("td", { class: "number", text: text(p) })));
    const rows = [row("balanced accuracy", "", (p) => percent(p.balanced_accuracy)),
      run.probes.some((p) => p.interval) ? row("95 % interval", "", (p) => (p.interval ? p.interval.map(percent).join(" – ") : "–")) : null,
      row("accuracy", "", (p) => percent(p.accuracy)),
      run.probes.some((p) => p.auroc) ? row("AUROC", "", (p) => p.auroc?.toFixed(3) ?? "–") : null,
      ...classes.map((c) => row(c, samples(c), (p) => percent(p.per_class[c])))].filter(Boolean);
    body.append(make("div", {}, make("h3", { text: run.name }), make("p", { class: "help", text: "Share of test samples that are right, in percent; intervals by bootstrap over test samples. AUROC is between 0 and 1." }),
      make("div", { class: "scroll" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))),
      ...run.probes.filter((p) => p.note).map((p) => make("p", { class: "note", text: `${p.name}: ${p.note}` })),
      make("h3", { text: data.kind ? `Confusion matrix, ${run.probes[0].name}` : "Confusion matrix of the linear probe" }), make("p", { class: "help", text: "Rows: true class. Columns: predicted class." }),
      confusion(run.probes[0])));
  }
  find("#probes .body").append(...[body, labelCharts()].filter(Boolean));
}
function labelCharts() {
  const charts = make("div", { class: "charts" });
  for (const run of runs) {
    const found = run.label_efficiency;
    if (!found) continue;
    for (const probe of [...new Set(found.curves.map((c) => c.probe))]) {
      const title = `${runs.length > 1 ? `${run.name}: ` : ""}${probe}, by share of the ${found.labels} labels`;
      const plot = make("div", { class: "plot", role: "img", "aria-label": title });
      charts.append(make("div", { class: "chart" }, make("h3", { text: title }), plot,
        make("p", { class: "help", text: `Mean and 95 % interval over ${found.draws} draws of labels; all labels are one draw. ${found.text}` })));
      const traces = found.curves.filter((c) => c.probe === probe).map((c) => ({
        type: "scatter", mode: "lines+markers", name: c.encoder, x: c.points.map((p) => p.fraction), y: c.points.map((p) => c.scale * p.mean),
        error_y: { type: "data", array: c.points.map((p) => (p.interval ? c.scale * (p.interval[1] - p.mean) : 0)), thickness: 1 },
        text: c.points.map((p) => `${p.labels} labels`), line: { ...line(c.encoder === "trained" ? 0 : 1), dash: c.encoder === "trained" ? "solid" : "dot" },
      }));
      requestAnimationFrame(() => draw(plot, traces, { xaxis: { title: { text: "share of the labels" }, type: "log" }, yaxis: { title: { text: plain(probe) } } }));
    }
  }
  return charts.children.length ? charts : null;
}
function scores(headings, rows) {
  const cells = (row, tag) => make("tr", {}, ...row.map((text, i) => make(tag, { text, class: i ? "number" : "" })));
  return make("div", { class: "scroll" }, make("table", {}, make("thead", {}, cells(headings, "th")), make("tbody", {}, ...rows.map((row) => cells(row, "td")))));
}
const three = (value) => (value === undefined || value === null ? "–" : value.toFixed(3));
function multilabel(run) {
  if (data.kind) return multilabelNetworks(run);
  const probe = run.probes[0], labels = Object.entries(probe.per_label);
  const rows = [["mean", "", three(probe.auroc), three(probe.average_precision)],
    ...labels.map(([name, s]) => [name, `${s.train_positives} / ${s.positives}`, three(s.auroc), three(s.average_precision)])];
  return make("div", {}, make("h3", { text: run.name }),
    make("p", { class: "help", text: `One logistic regression per label, on ${probe.samples.train} training and ${probe.samples.test} test samples.` }),
    scores(["label", "have it, train / test", "AUROC", "average precision"], rows), probe.note ? make("p", { class: "note", text: probe.note }) : null);
}
function multilabelNetworks(run) {
  const first = run.probes[0], rows = [["mean", "", ...run.probes.map((p) => three(p.auroc))],
    ...Object.entries(first.per_label).map(([name, s]) => [name, `${s.train_positives} / ${s.positives}`, ...run.probes.map((p) => three(p.per_label[name]?.auroc))])];
  return make("div", {}, make("h3", { text: run.name }), make("p", { class: "help", text: `AUROC of every label, on ${first.samples.test} test samples.` }),
    scores(["label", "have it, train / test", ...run.probes.map((p) => p.name)], rows));
}
function regression(run) {
  const rows = run.probes.map((p) => [p.name, three(p.r2), p.interval ? p.interval.map(three).join(" – ") : "–", three(p.spearman), p.mean_absolute_error.toPrecision(3)]);
  const { true: x, predicted: y, samples } = run.probes[0];
  const plot = make("div", { class: "plot", role: "img", "aria-label": "Predicted against true values of the test samples" });
  const ends = [Math.min(...x), Math.max(...x)];
  const node = make("div", {}, make("h3", { text: run.name }), make("p", { class: "help", text: `On ${samples.train} training and ${samples.test} test samples.` }),
    scores([data.kind ? "network" : "probe", "R²", "95 % interval", "Spearman", "mean absolute error"], rows), make("h3", { text: `${data.kind ? run.probes[0].name : "Ridge probe"}: predicted against true` }), make("div", { class: "chart" }, plot));
  requestAnimationFrame(() => draw(plot, [{ type: "scatter", mode: "markers", x, y, marker: { size: 5, color: COLOURS[0] }, name: "test samples" },
    { type: "scatter", mode: "lines", x: ends, y: ends, line: { color: css("--quiet"), dash: "dot", width: 1 }, name: "equal" }],
    { showlegend: false, xaxis: { title: { text: "true" } }, yaxis: { title: { text: "predicted" } } }));
  return node;
}
function confusion(probe) {
  const head = make("tr", {}, make("td"), ...probe.classes.map((name) => make("th", { scope: "col", text: name })));
  const rows = probe.confusion.map((counts, i) => {
    const total = counts.reduce((a, b) => a + b, 0) || 1;
    return make("tr", {}, make("th", { scope: "row", text: probe.classes[i] }), ...counts.map((count) => {
      const cell = make("td", { text: String(count), title: `${((100 * count) / total).toFixed(1)} %` });
      cell.style.background = `rgba(${css("--heat")}, ${(0.55 * count) / total})`;
      return cell;
    }));
  });
  return make("div", { class: "scroll" }, make("table", { class: "confusion" }, make("thead", {}, head), make("tbody", {}, ...rows)));
}
function pairs(object) {
  return make("table", {}, make("tbody", {}, ...Object.entries(object).map(([key, value]) => make("tr", {}, make("td", { text: key }), make("td", { text: value })))));
}
function showProvenance() {
  const body = make("div", { class: "runs" });
  for (const run of runs) {
    const p = run.provenance;
    body.append(make("div", {}, make("h3", { text: run.name }), make("p", { class: "help", text: p.help ?? "This command reproduces the run:" }),
      make("pre", { text: p.command }), p.fingerprint ? make("p", { class: "note", text: `Fingerprint of the data: ${p.fingerprint}` }) : null,
      make("div", { class: "scroll" }, pairs(p.facts)), ...p.notes.map((note) => make("p", { class: "note", text: note })),
      make("details", {}, make("summary", { text: "Versions" }), make("div", { class: "scroll" }, pairs(p.versions))),
      make("details", {}, make("summary", { text: "The whole configuration" }), make("div", { class: "scroll" }, pairs(p.config)))));
  }
  find("#provenance .body").append(body);
}
