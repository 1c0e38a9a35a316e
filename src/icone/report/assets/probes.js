// ---- probes: untrained beside trained, every class with its number of samples and its interval ----
const PROBE = "A probe is a simple model that is trained with the labels on the features, which stay as they are: it shows what can be read from them.";
const percent = (value) => (value === undefined || value === null ? "–" : (100 * value).toFixed(1));
const three = (value) => (value === undefined || value === null ? "–" : minus(value.toFixed(3)));
const range = (interval, text) => (interval ? interval.map(text).join(" – ") : "–");
// What the draws of a bootstrap are of.
const bootstrapped = (p) => (p.groups ? `${counted(p.groups, "group")} of test samples` : "test samples");
// The one that is shown in detail: of the networks of a fine-tuning the fine-tuned one, which comes last.
const mainProbe = (run) => (data.kind ? run.probes.at(-1) : run.probes[0]);
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
  return [make("p", { class: "help", text: `${PROBE} Shares of test samples that are right, in percent; intervals are 95 %: of the balanced accuracy by bootstrap over ${bootstrapped(first)}, of a class by Wilson's formula${first.groups ? ", which knows no groups" : ""}. AUROC is between 0 and 1.` }),
    scores(["probe", ...named("balanced accuracy"), "95 % interval", ...named("accuracy"), ...named("AUROC")], overall, "Scores of the probes"),
    make("h3", { text: "By class" }), byClass(["class", "train", "test", ...headings], rows), ...probeNotes(run), ...confusions(first, "the linear probe")];
}
// A table with a row for every class; one with many has a box of its own.
function byClass(headings, rows) {
  const box = scores(headings, rows, "Scores by class");
  if (rows.length > MATRIX) box.classList.add("tall");
  return box;
}
// The matrix before and after training; of very many classes those that are taken for another most often.
function confusions(probe, name) {
  const { classes: names, untrained } = probe;
  if (names.length <= MATRIX) return [
    make("h3", { text: `Confusion matrix of ${name}` }), make("p", { class: "help", text: "Rows: true class. Columns: predicted class." }),
    make("div", { class: names.length > 10 ? "" : "runs" }, ...(untrained ? [confusion(untrained, "untrained")] : []), confusion(probe, untrained ? "trained" : ""))];
  const taken = probe.confusion.flatMap((counts, i) => counts.flatMap((count, k) => (i !== k && count ? [[names[i], names[k], count, percent(count / counts.reduce((a, b) => a + b))]] : [])));
  const most = taken.filter((row) => row[2] > 1).sort((a, b) => b[2] - a[2]).slice(0, MISTAKES), whole = `The whole matrix of ${names.length} × ${names.length} classes is in result.json.`;
  if (!most.length) return [make("p", { class: "note", text: `No class is taken for the same other class more than once. ${whole}` })];
  return [make("h3", { text: `What ${name} takes for something else` }),
    make("p", { class: "help", text: `The ${counted(most.length, "most frequent mistake")} on the test samples. ${whole}` }),
    scores(["true class", "taken for", "samples", "% of the class"], most, "Most frequent mistakes")];
}
// On the page of fine-tunings the probes are networks.
function classNetworks(run) {
  const row = (name, n, text) => [name, n, ...run.probes.map(text)], main = mainProbe(run), counts = main.samples_per_class;
  const rows = [...main.classes.map((c) => row(c, counts?.[c] ? `${counts[c].train} / ${counts[c].test}` : "", (p) => percent(p.per_class[c]))),
    row("all test samples", "", (p) => percent(p.accuracy))];
  return [make("p", { class: "help", text: "Share of the test samples of every class that are right, in percent. The balanced accuracy above is the mean over classes; its interval is by bootstrap over test samples, or over their groups where there are some." }),
    byClass(["class", "train + val / test", ...run.probes.map((p) => p.name)], rows), ...probeNotes(run), ...confusions(main, `the ${main.name} network`)];
}
const probeNotes = (run) => run.probes.filter((p) => p.note).map((p) => make("p", { class: "note", text: `${p.name}: ${p.note}` }));
function confusion(probe, which) {
  const isLong = probe.classes.some((name) => name.length > 18), isMany = probe.classes.length > 6 && probe.classes.some((name) => name.length > 3);
  // Names across the columns need this many letters, with the space around them; where that is too much, they stand upright.
  const letters = probe.classes.reduce((sum, name) => sum + 2 + Math.max(...name.split(/\s+/).map((word) => word.length)), 0);
  const kind = isMany || isLong || letters > WIDE ? "many" : letters > NARROW ? "narrow" : "";
  const head = make("tr", {}, make("td"), ...probe.classes.map((name) => make("th", { scope: "col" }, make("span", {}, ...breakable(name)))));
  const rows = probe.confusion.map((counts, i) => {
    const total = counts.reduce((a, b) => a + b, 0) || 1;
    return make("tr", {}, make("th", { scope: "row" }, ...breakable(probe.classes[i])), ...counts.map((count) => {
      const cell = make("td", { text: String(count), title: `${((100 * count) / total).toFixed(1)} %` });
      cell.style.background = `rgba(var(--heat), ${(0.55 * count) / total})`;
      return cell;
    }));
  });
  return make("div", { class: "room" }, which ? make("h4", { text: which }) : null,
    make("div", { class: "scroll matrix", ...reachable(`Confusion matrix ${which}`) },
      make("table", { class: `confusion ${kind} ${isLong ? "wordy" : ""}` }, make("thead", {}, head), make("tbody", {}, ...rows))));
}
function multilabel(run) {
  const [probe] = run.probes, before = probe.untrained, which = before ? ["untrained", "trained"] : ["trained"];
  const row = (name, n, m, old, now) => [name, n, m, ...["auroc", "average_precision"].flatMap((s) => [...(before ? [three(old?.[s])] : []), three(now[s])])];
  const rows = [row("mean", "", "", before, probe), ...Object.entries(probe.per_label).map(([name, s]) => row(name, s.train_positives, s.positives, before?.per_label[name], s))];
  return [make("p", { class: "help", text: `${PROBE} Here it is one logistic regression per label, on ${grouped(probe.samples.train)} training and ${counted(probe.samples.test, "test sample")}.` }),
    scores(["label", "have it, train", "have it, test", ...["AUROC", "average precision"].flatMap((s) => which.map((w) => `${s}, ${w}`))], rows, "Scores by label"), ...probeNotes(run)];
}
function multilabelNetworks(run) {
  const first = mainProbe(run), rows = [["mean", "", ...run.probes.map((p) => three(p.auroc))],
    ...Object.entries(first.per_label).map(([name, s]) => [name, `${s.train_positives} / ${s.positives}`, ...run.probes.map((p) => three(p.per_label[name]?.auroc))])];
  return [make("p", { class: "help", text: `AUROC of every label, on ${counted(first.samples.test, "test sample")}.` }), scores(["label", "have it, train / test", ...run.probes.map((p) => p.name)], rows, "Scores by label")];
}
function regression(run) {
  const named = (p) => p.name.replace(", R²", ""); // which is a column here
  const row = (p, name) => [name, three(p.r2), range(p.interval, three), three(p.spearman), p.mean_absolute_error.toPrecision(3)];
  const rows = run.probes.flatMap((p) => [...(p.untrained ? [row(p.untrained, `${named(p)}, untrained`)] : []), row(p, p.untrained ? `${named(p)}, trained` : named(p))]);
  const first = mainProbe(run), charts = make("div", { class: "charts" });
  const { samples } = first, all = [first.untrained, first].filter(Boolean).flatMap((p) => [...p.true, ...p.predicted]), low = Math.min(...all), high = Math.max(...all), ends = [low - (high - low) / 20, high + (high - low) / 20];
  const scatter = (p, which) => chart(charts, `${data.kind ? first.name : "Ridge probe"}${which}: predicted against true`, [
    { type: "scatter", mode: "markers", x: p.true, y: p.predicted, marker: { size: 5, color: COLOURS[0] }, title: "test samples" },
    { type: "scatter", mode: "lines", x: ends, y: ends, line: { color: css("--quiet"), dash: "dot", width: 1 }, unnamed: true }],
  { xaxis: { title: { text: "true" }, range: ends }, yaxis: { title: { text: "predicted" }, range: ends } }, { keyed: false, across: "true", note: p.true.length < p.samples.test ? `A random ${grouped(p.true.length)} of ${counted(p.samples.test, "test sample")} are shown.` : "" });
  if (first.untrained) scatter(first.untrained, ", untrained");
  scatter(first, first.untrained ? ", trained" : "");
  return [make("p", { class: "help", text: `${data.kind ? "" : PROBE} On ${grouped(samples.train)} training and ${counted(samples.test, "test sample")}; intervals by bootstrap over ${bootstrapped(first)}.` }),
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
