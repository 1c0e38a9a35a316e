// ---- verdict, and runs side by side ----
function showVerdicts() {
  find("#title").textContent = `icone report · ${data.title}`;
  document.title = `icone report · ${data.title}`;
  if (runs.length > 1) find("#verdict .cards").before(comparison());
  for (const run of runs) {
    const verdict = run.verdict;
    find("#verdict .cards").append(make("article", { class: `card ${verdict.state.replaceAll(" ", "-")}` },
      make("div", {}, make("h3", { text: run.name }), make("span", { class: "badge", text: verdict.state }),
        make("p", { class: "headline", text: verdict.headline }),
        make("ul", { class: "evidence" }, ...verdict.evidence.map((text) => sentence({}, text, "li"))),
        verdict.advice ? sentence({}, verdict.advice) : null,
        ...run.warnings.map((text) => sentence({ class: "warning" }, text)), sentence({ class: "note" }, run.note),
        // What was said of the data already when it was read stands below.
        ...run.label_notes.filter((text) => !run.data.notes.includes(text)).map((text) => sentence({ class: "note" }, text))),
      runs.length === 1 ? metricTable(run.metrics) : null));
  }
  find("#verdict .cards").after(explanations());
}
// What the rows of the tables are, for readers who do not know their names.
function explanations() {
  const known = new Map(runs.flatMap((run) => run.metrics).filter((row) => row.explanation).map((row) => [row.title, row.explanation]));
  const words = [...known].flatMap(([title, text]) => [make("dt", { text: title }), make("dd", { text })]);
  return make("details", { class: "words" }, make("summary", { text: "What these numbers are" }), make("dl", {}, ...words));
}
function metricTable(metrics) {
  const columns = ["untrained", "trained"].filter((which) => metrics.some((row) => row[which]));
  return scores(["", ...columns], metrics.map((row) => [row.title, ...columns.map((c) => row[c] ?? "–")]));
}
// Metrics of all runs, untrained beside trained; of a folder of seeds first mean ± standard deviation.
function comparison() {
  const blocks = groups.flatMap((group) => {
    const own = group.runs.map((i) => ({ name: runs[i].name, metrics: runs[i].metrics }));
    const mean = { name: `${group.name}: mean ± sd of ${group.runs.length} seeds`, metrics: group.metrics, isMean: true };
    return group.runs.length > 1 ? [mean, ...own] : own;
  });
  const titles = [...new Set(blocks.flatMap((block) => block.metrics.map((row) => row.title)))];
  const cell = (block, title, which) => block.metrics.find((row) => row.title === title)?.[which] ?? "–";
  const first = make("tr", {}, make("td"), ...blocks.map((b) => make("th", { scope: "colgroup", colspan: "2", text: b.name, class: b.isMean ? "mean" : "" })));
  const second = make("tr", {}, make("td"), ...blocks.flatMap((b) => ["untrained", "trained"].map((which) => make("th", { scope: "col", class: `number ${which} ${b.isMean ? "mean" : ""}`, text: which }))));
  const rows = titles.map((title) => make("tr", {}, make("th", { scope: "row", text: title }),
    ...blocks.flatMap((b) => ["untrained", "trained"].map((which) => make("td", { class: `number ${which} ${b.isMean ? "mean" : ""}`, text: cell(b, title, which) })))));
  return make("div", { class: "scroll compare", ...reachable("All metrics of all runs") }, make("table", {}, make("thead", {}, first, second), make("tbody", {}, ...rows)));
}
