// ---- probes: untrained beside trained, every class with its number of samples and its interval ----
const percent = (value) => (value === undefined || value === null ? "–" : (100 * value).toFixed(1));
const three = (value) => (value === undefined || value === null ? "–" : value.toFixed(3));
const range = (interval, text) => (interval ? interval.map(text).join(" – ") : "–");
function showProbes() {
  for (const group of groups) if (group.classes?.length) find("#probes .body").append(groupClasses(group));
  perRun("probes", (run) => [...probesOf(run), labelCharts(run)]);
}
function probesOf(run) {
  if (!run.probes.length) return [sentence({ class: "note" }, `No probes: ${run.unprobed}`)];
  if (run.probes[0].per_label) return data.kind ? multilabelNetworks(run) : multilabel(run);
  if (run.probes[0].true) return regression(run);
  return data.kind ? classNetworks(run) : classes(run);
}
function groupClasses(group) {
  const samples = runs[group.runs[0]].probes[0].samples_per_class ?? {};
  const rows = group.classes.map((c) => [c.name, samples[c.name]?.train ?? "–", samples[c.name]?.test ?? "–", c.untrained, c.trained]);
  return make("div", { class: "group" }, make("h3", { text: `${group.name}: linear probe by class, mean ± sd of ${group.runs.length} seeds` }),
    make("p", { class: "help", text: "Share of test samples that are right, in percent." }),
    scores(["class", "train", "test", "untrained", "trained"], rows, `Classes of ${group.name}`));
}
// Scores of every probe, then of every class.
function classes(run) {
  const [first] = run.probes, has = run.probes.some((p) => p.untrained), before = (p, cell) => (has ? [p.untrained ? cell(p.untrained) : "–"] : []);
  const which = has ? ["untrained", "trained"] : ["trained"];
  const overall = run.probes.map((p) => [p.name, ...before(p, (u) => percent(u.balanced_accuracy)), percent(p.balanced_accuracy), range(p.interval, percent),
    ...before(p, (u) => percent(u.accuracy)), percent(p.accuracy), ...before(p, (u) => three(u.auroc)), three(p.auroc)]);
  const named = (score) => which.map((w) => `${score}, ${w}`);
  const rows = first.classes.map((c) => [c, first.samples_per_class?.[c]?.train ?? "–", first.samples_per_class?.[c]?.test ?? "–",
    ...run.probes.flatMap((p) => [...before(p, (u) => percent(u.per_class[c])), percent(p.per_class[c]), ...(p === first ? [range(p.class_intervals?.[c], percent)] : [])])]);
  const headings = run.probes.flatMap((p) => [...which.map((w) => `${p.name}, ${w}`), ...(p === first ? ["95 % interval"] : [])]);
  return [make("p", { class: "help", text: "Shares of test samples that are right, in percent; intervals are 95 %: of the balanced accuracy by bootstrap over test samples, of a class by Wilson's formula. AUROC is between 0 and 1." }),
    scores(["probe", ...named("balanced accuracy"), "95 % interval", ...named("accuracy"), ...named("AUROC")], overall, "Scores of the probes"),
    make("h3", { text: "By class" }), scores(["class", "train", "test", ...headings], rows, "Scores by class"), ...probeNotes(run),
    make("h3", { text: "Confusion matrix of the linear probe" }), make("p", { class: "help", text: "Rows: true class. Columns: predicted class." }),
    make("div", { class: first.classes.length > 10 ? "" : "runs" }, ...(first.untrained ? [confusion(first.untrained, "untrained")] : []), confusion(first, has ? "trained" : ""))];
}
// On the page of fine-tunings the probes are networks.
function classNetworks(run) {
  const row = (name, n, text) => [name, n, ...run.probes.map(text)], counts = run.probes[0].samples_per_class;
  const rows = [row("balanced accuracy", "", (p) => percent(p.balanced_accuracy)), row("95 % interval", "", (p) => range(p.interval, percent)),
    row("accuracy", "", (p) => percent(p.accuracy)), row("AUROC", "", (p) => three(p.auroc)),
    ...run.probes[0].classes.map((c) => row(c, counts?.[c] ? `${counts[c].train} / ${counts[c].test}` : "", (p) => percent(p.per_class[c])))];
  return [make("p", { class: "help", text: "Share of test samples that are right, in percent; intervals by bootstrap over test samples. AUROC is between 0 and 1." }),
    scores(["class", "train / test", ...run.probes.map((p) => p.name)], rows, "Scores by class"), ...probeNotes(run),
    make("h3", { text: `Confusion matrix, ${run.probes[0].name}` }), make("p", { class: "help", text: "Rows: true class. Columns: predicted class." }), confusion(run.probes[0], "")];
}
const probeNotes = (run) => run.probes.filter((p) => p.note).map((p) => make("p", { class: "note", text: `${p.name}: ${p.note}` }));
function confusion(probe, which) {
  const head = make("tr", {}, make("td"), ...probe.classes.map((name) => make("th", { scope: "col" }, make("span", { text: name }))));
  const rows = probe.confusion.map((counts, i) => {
    const total = counts.reduce((a, b) => a + b, 0) || 1;
    return make("tr", {}, make("th", { scope: "row", text: probe.classes[i] }), ...counts.map((count) => {
      const cell = make("td", { text: String(count), title: `${((100 * count) / total).toFixed(1)} %` });
      cell.style.background = `rgba(var(--heat), ${(0.55 * count) / total})`;
      return cell;
    }));
  });
  return make("div", {}, which ? make("h4", { text: which }) : null,
    make("div", { class: "scroll matrix", ...reachable(`Confusion matrix ${which}`) },
      make("table", { class: `confusion ${probe.classes.length > 6 && probe.classes.some((name) => name.length > 3) ? "many" : ""}` }, make("thead", {}, head), make("tbody", {}, ...rows))));
}
function multilabel(run) {
  const [probe] = run.probes, before = probe.untrained, which = before ? ["untrained", "trained"] : ["trained"];
  const row = (name, n, m, old, now) => [name, n, m, ...["auroc", "average_precision"].flatMap((s) => [...(before ? [three(old?.[s])] : []), three(now[s])])];
  const rows = [row("mean", "", "", before, probe), ...Object.entries(probe.per_label).map(([name, s]) => row(name, s.train_positives, s.positives, before?.per_label[name], s))];
  return [make("p", { class: "help", text: `One logistic regression per label, on ${grouped(probe.samples.train)} training and ${counted(probe.samples.test, "test sample")}.` }),
    scores(["label", "have it, train", "have it, test", ...["AUROC", "average precision"].flatMap((s) => which.map((w) => `${s}, ${w}`))], rows, "Scores by label"), ...probeNotes(run)];
}
function multilabelNetworks(run) {
  const first = run.probes[0], rows = [["mean", "", ...run.probes.map((p) => three(p.auroc))],
    ...Object.entries(first.per_label).map(([name, s]) => [name, `${s.train_positives} / ${s.positives}`, ...run.probes.map((p) => three(p.per_label[name]?.auroc))])];
  return [make("p", { class: "help", text: `AUROC of every label, on ${counted(first.samples.test, "test sample")}.` }), scores(["label", "have it, train / test", ...run.probes.map((p) => p.name)], rows, "Scores by label")];
}
function regression(run) {
  const named = (p) => p.name.replace(", R²", ""); // which is a column here
  const row = (p, name) => [name, three(p.r2), range(p.interval, three), three(p.spearman), p.mean_absolute_error.toPrecision(3)];
  const rows = run.probes.flatMap((p) => [...(p.untrained ? [row(p.untrained, `${named(p)}, untrained`)] : []), row(p, p.untrained ? `${named(p)}, trained` : named(p))]);
  const [first] = run.probes, charts = make("div", { class: "charts" });
  const { samples } = first, all = [first.untrained, first].filter(Boolean).flatMap((p) => [...p.true, ...p.predicted]), low = Math.min(...all), high = Math.max(...all), ends = [low - (high - low) / 20, high + (high - low) / 20];
  const scatter = (p, which) => chart(charts, `${data.kind ? first.name : "Ridge probe"}${which}: predicted against true`, [
    { type: "scatter", mode: "markers", x: p.true, y: p.predicted, marker: { size: 5, color: COLOURS[0] }, title: "test samples" },
    { type: "scatter", mode: "lines", x: ends, y: ends, line: { color: css("--quiet"), dash: "dot", width: 1 }, unnamed: true }],
  { xaxis: { title: { text: "true" }, range: ends }, yaxis: { title: { text: "predicted" }, range: ends } }, { keyed: false, across: "true" });
  if (first.untrained) scatter(first.untrained, ", untrained");
  scatter(first, first.untrained ? ", trained" : "");
  return [make("p", { class: "help", text: `On ${grouped(samples.train)} training and ${counted(samples.test, "test sample")}; intervals by bootstrap over test samples.` }),
    scores([data.kind ? "network" : "probe", "R²", "95 % interval", "Spearman", "mean absolute error"], rows, "Scores"), charts];
}
function labelCharts(run) {
  const solid = (i) => ({ ...line(i), dash: "solid" }), dotted = (i) => ({ ...line(i), dash: "dot" });
  const LOOKS = { trained: solid(0), untrained: dotted(1), "fine-tuned": solid(2), "from scratch": dotted(3), "linear probe": solid(0) };
  const found = run.label_efficiency, charts = make("div", { class: "charts spaced" });
  if (!found) return null;
  for (const probe of [...new Set(found.curves.map((c) => c.probe))]) {
    const traces = found.curves.filter((c) => c.probe === probe).map((c) => ({
      type: "scatter", mode: "lines+markers", name: c.encoder, title: c.encoder, x: c.points.map((p) => p.fraction), y: c.points.map((p) => c.scale * p.mean),
      error_y: { type: "data", array: c.points.map((p) => (p.interval ? c.scale * (p.interval[1] - p.mean) : 0)), thickness: 1 },
      text: c.points.map((p) => `${p.labels} labels`), line: LOOKS[c.encoder],
    }));
    const shares = traces[0].x;
    chart(charts, `${probe}, by share of the ${found.labels} labels`, traces,
      { xaxis: { title: { text: "share of the labels" }, type: "log", tickvals: shares, ticktext: shares.map(String) }, yaxis: { title: { text: plain(probe) } } },
      { across: "share", note: found.notes[probe] });
  }
  return charts;
}
