// ---- verdict, and runs side by side ----
function showVerdicts() {
  showTitle();
  if (data.compared) find("#verdict .cards").before(compared(data.compared));
  if (runs.length > 1) find("#verdict .cards").before(comparison());
  for (const group of groups) {
    const own = group.runs.map((i) => runs[i]), states = [...new Set(own.map((run) => run.verdict.state))];
    find("#verdict .cards").append(make("article", { class: `card ${own.length > 1 ? "tuned" : ""} ${states.length === 1 ? states[0].replaceAll(" ", "-") : ""}` },
      own.length === 1 ? verdictOf(own[0]) : verdictOfSeeds(group, own, states), runs.length === 1 ? metricTable(runs[0].metrics) : null));
  }
  find("#verdict .cards").after(explanations());
}
// Whether runs differ, in a sentence for every run but the best, and what the interval does not hold.
function compared({ pairs: found, left_out: leftOut, notes }) {
  const said = [...found.map((pair) => pair.sentence), ...leftOut].map((text) => text.replaceAll(" %", "\u00a0%")); // the name of a run, at its beginning, stays as it is
  const shown = said.length === 1 ? [make("p", { class: "headline", text: said[0] })] : [make("ul", { class: "evidence" }, ...said.map((text) => make("li", { text })))];
  return make("article", { class: "card tuned compared" }, make("div", {}, make("h3", { text: "Do they differ?" }), ...shown, ...notes.map((text) => sentence({ class: "note" }, text))));
}
function verdictOf(run) {
  const isFolded = groups.length > MANY_RUNS; // their scores are in the table above
  return make("div", {}, make("h3", {}, ...breakable(run.name)), make("span", { class: "badge", text: run.verdict.state }),
    make("p", { class: "headline", text: run.verdict.headline }), ...alarms(run), ...(isFolded ? [make("details", { class: "why" }, make("summary", { text: "Why, and what to do" }), ...grounds(run))] : grounds(run)));
}
const alarms = (run) => run.warnings.map((text) => sentence({ class: "warning" }, text));
// Why the verdict is what it is, and what the reader should know about the data.
function grounds(run) {
  const { evidence, advice } = run.verdict;
  return [make("ul", { class: "evidence" }, ...evidence.map((text) => sentence({}, text, "li"))), advice ? sentence({}, advice) : null,
    sentence({ class: "note" }, run.note),
    // What was said of the data already when it was read stands below.
    ...run.label_notes.filter((text) => !run.data.notes.includes(text)).map((text) => sentence({ class: "note" }, text))];
}
// Runs that differ by their seed alone: how many came to which verdict, then each by itself.
function verdictOfSeeds(group, own, states) {
  const count = (state) => own.filter((run) => run.verdict.state === state).length;
  return make("div", {}, make("h3", {}, ...breakable(group.name)),
    ...states.map((state) => make("p", { class: "headline", text: `${count(state)} of ${counted(own.length, "seed")}: ${state}` })),
    group.note ? sentence({ class: "warning" }, `Note: ${group.note}.`) : null,
    ...own.map((run) => make("details", { class: "seed" }, make("summary", { text: `${run.name.split("/").at(-1)}: ${run.verdict.headline}` }), ...alarms(run), ...grounds(run))));
}
// What the rows of the tables are, for readers who do not know their names.
function explanations() {
  const known = new Map(runs.flatMap((run) => run.metrics).filter((row) => row.explanation).map((row) => [row.title, row.explanation]));
  const words = [...known].flatMap(([title, text]) => [make("dt", { text: title }), make("dd", { text })]);
  return make("details", { class: "words" }, make("summary", { text: "What these numbers mean" }), make("dl", {}, ...words));
}
function metricTable(metrics) {
  const columns = ["untrained", "trained"].filter((which) => metrics.some((row) => row[which]));
  return scores(["", ...columns], metrics.map((row) => [row.title, ...columns.map((c) => minus(row[c] ?? "–"))]));
}
// A mean with its deviation, which stands below it where there is little room.
function deviating(text) {
  const [mean, deviation] = text.split(" ± ");
  return deviation ? [`${mean} `, make("small", { text: `± ${deviation}` })] : [text];
}
// Metrics of all runs, untrained beside trained; of folders of seeds first mean ± standard deviation.
function comparison() {
  const single = (i) => ({ name: runs[i].name, metrics: runs[i].metrics, kind: "" }), ofSeed = (i) => ({ ...single(i), kind: "seed" });
  const means = groups.map(({ name, runs: own, metrics }) => (own.length > 1 ? { name: `${name}: mean ± sd of ${own.length} seeds`, metrics, kind: "mean" } : single(own[0])));
  const blocks = [...means, ...groups.flatMap((group) => (group.runs.length > 1 ? group.runs.map(ofSeed) : []))];
  const titles = [...new Set(blocks.flatMap((block) => block.metrics.map((row) => row.title)))];
  const cell = (block, title, which) => minus(block.metrics.find((row) => row.title === title)?.[which] ?? "–");
  // Runs that began with the same weights have one column before training.
  const isShared = blocks.every((block) => titles.every((title) => cell(block, title, "untrained") === cell(blocks[0], title, "untrained")));
  const shown = isShared ? [{ ...blocks[0], name: "all runs", which: ["untrained"] }, ...blocks.map((b) => ({ ...b, which: ["trained"] }))] : blocks.map((b) => ({ ...b, which: ["untrained", "trained"] }));
  const first = make("tr", {}, make("td"), ...shown.map((b) => make("th", { scope: "colgroup", colspan: String(b.which.length), class: b.kind }, ...breakable(b.name))));
  const second = make("tr", {}, make("td"), ...shown.flatMap((b) => b.which.map((which) => make("th", { scope: "col", class: `number ${which} ${b.kind}`, text: which }))));
  const rows = titles.map((title) => make("tr", {}, make("th", { scope: "row", text: title }),
    ...shown.flatMap((b) => b.which.map((which) => make("td", { class: `number ${which} ${b.kind}` }, ...deviating(cell(b, title, which)))))));
  return make("div", { class: "scroll compare", ...reachable("All metrics of all runs") }, make("table", {}, make("thead", {}, first, second), make("tbody", {}, ...rows)));
}
