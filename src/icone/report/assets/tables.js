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
    const classes = run.probes[0].classes;
    const percent = (value) => (value === undefined || value === null ? "–" : (100 * value).toFixed(1));
    const head = make("tr", {}, make("th", { text: "class" }), ...run.probes.map((p) => make("th", { class: "number", text: p.name })));
    const rows = [["balanced accuracy", (p) => p.balanced_accuracy], ["accuracy", (p) => p.accuracy], ...classes.map((c) => [c, (p) => p.per_class[c]])]
      .map(([name, value]) => make("tr", {}, make("td", { text: name }), ...run.probes.map((p) => make("td", { class: "number", text: percent(value(p)) }))));
    body.append(make("div", {}, make("h3", { text: run.name }), make("p", { class: "help", text: "Share of test samples that are right, in percent." }),
      make("div", { class: "scroll" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))),
      ...run.probes.filter((p) => p.note).map((p) => make("p", { class: "note", text: `${p.name}: ${p.note}` })),
      make("h3", { text: "Confusion matrix of the linear probe" }), make("p", { class: "help", text: "Rows: true class. Columns: predicted class." }),
      confusion(run.probes[0])));
  }
  find("#probes .body").append(body);
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
    body.append(make("div", {}, make("h3", { text: run.name }), make("p", { class: "help", text: "This command reproduces the run:" }),
      make("pre", { text: p.command }), make("p", { class: "note", text: `Fingerprint of the data: ${p.fingerprint}` }),
      make("div", { class: "scroll" }, pairs(p.facts)), ...p.notes.map((note) => make("p", { class: "note", text: note })),
      make("details", {}, make("summary", { text: "Versions" }), make("div", { class: "scroll" }, pairs(p.versions))),
      make("details", {}, make("summary", { text: "The whole configuration" }), make("div", { class: "scroll" }, pairs(p.config)))));
  }
  find("#provenance .body").append(body);
}
