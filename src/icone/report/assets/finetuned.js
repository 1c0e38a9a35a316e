// ---- the page of fine-tunings: scores side by side, curves, classes and confusion ----
const UNUSED = ["read", "shape", "map", "gallery", "duplicates"]; // sections of a pretraining
function showFineTuned() {
  for (const id of UNUSED) for (const node of [find(`#${id}`), find(`nav a[href="#${id}"]`)]) node.remove();
  find(".skip").setAttribute("href", "#probes");
  find(".skip").textContent = "Skip to the scores";
  find("#h-verdict").textContent = "Is fine-tuning better?";
  find("#h-probes").textContent = find(`nav a[href="#probes"]`).textContent = "Scores";
  find(`nav a[href="#verdict"]`).textContent = "Result";
  showTitle();
  const cards = find("#verdict .cards");
  if (data.compared) cards.before(compared(data.compared));
  cards.before(...data.tables.map(tunedTable));
  if (data.tables.length) cards.before(make("p", { class: "note", text: smallNumbers(data.tables) }));
  for (const group of groups) {
    const own = group.runs.map((i) => runs[i]);
    cards.append(make("article", { class: "card tuned" }, make("h3", {}, ...breakable(group.name)), group.note ? sentence({ class: "warning" }, `Note: ${group.note}.`) : null,
      ...(own.length === 1 ? tunedResult(own[0]) : tunedSeeds(own))));
  }
  const ringed = "The ringed epoch is the one that was kept: the best of the validation samples, or the last where none were held out.";
  const banded = "Of seeds the mean is drawn, and its standard deviation as a band; each seed kept an epoch of its own.";
  find("#training .help").textContent = [...(groups.some((group) => group.runs.length === 1) ? [ringed] : []), ...(runs.length > groups.length ? [banded] : [])].join(" ");
  if (groups.length > 1) find("#training .charts").before(key(groups.map((group, i) => curve([], group.name, i))));
  for (const title of new Set(runs.flatMap((run) => run.curves.map((c) => c.title)))) {
    const traces = groups.flatMap((group, i) => tunedTraces(group, i, title));
    chart(find("#training .charts"), title, traces, { xaxis: epochAxis(traces.flatMap((t) => t.x.map((x) => [x]))) });
  }
  showProbes();
  showProvenance();
}
// The lines of a group: a network has a kind of line, and of several groups each has a colour. Of seeds it is the mean, with a band.
function tunedTraces(group, i, title) {
  const own = group.runs.map((r) => runs[r]), charts = own.map((run) => run.curves.find((c) => c.title === title)).filter(Boolean);
  return [...new Set(charts.flatMap((c) => c.networks.map((network) => network.name)))].flatMap((name) => {
    const found = charts.flatMap((c) => c.networks.filter((network) => network.name === name && network.points.length));
    const points = meanPoints(found.map((network) => network.points)), kept = found.length === 1 ? points.filter((p) => p[0] === found[0].kept) : [];
    if (!points.length) return [];
    const colour = groups.length > 1 ? i : { "fine-tuned": 2, "from scratch": 3 }[name], traces = groupTraces(points, groups.length > 1 ? `${group.name}, ${name}` : name, colour);
    Object.assign(traces.at(-1), { title: name, line: { ...line(colour), dash: name === "from scratch" ? "dot" : "solid" } });
    if (points.length < FEW || !kept.length) return traces; // of a table the kept epoch is in the table above
    return [...traces, { type: "scatter", mode: "markers", x: kept.map((p) => p[0]), y: kept.map((p) => p[1]), hoverinfo: "skip", unnamed: true,
      marker: { size: 13, symbol: "circle-open", color: traces.at(-1).line.color, line: { width: 2 } } }];
  });
}
// Whether one fine-tuning is better than the probe and than the network from scratch, and its scores.
function tunedResult(run) {
  return [make("div", {}, make("ul", { class: "evidence" }, ...run.sentences.map((text) => sentence({}, text, "li"))), ...[run.note, ...run.label_notes].map((text) => sentence({ class: "note" }, text))),
    twoLined(["on the test samples", ...run.networks], run.metrics.map((row) => [row.title, ...row.values]))];
}
// How many seeds came to which result, then each by itself.
function tunedSeeds(own) {
  const others = Array.from(own[0].states, (_, i) => [...Map.groupBy(own, (run) => run.states[i])]).flat().filter(([state]) => state);
  return [make("ul", { class: "evidence" }, ...others.map(([state, found]) => make("li", { text: `${found.length} of ${counted(own.length, "seed")}: ${state.replace(/^./, (letter) => letter.toLowerCase())}.` }))),
    ...own.map((run) => make("details", { class: "seed" }, make("summary", {}, ...breakable(run.name)), ...tunedResult(run)))];
}
const tunedCell = ([value, below]) => make("td", { class: "number" }, minus(value), below ? make("small", { text: minus(below) }) : null);
// A table whose numbers have their interval below them.
function twoLined(headings, rows) {
  const head = make("tr", {}, ...headings.map((text, i) => make("th", { scope: "col", class: i ? "number" : "", text })));
  const body = rows.map(([title, ...cells]) => make("tr", {}, make("th", { scope: "row", text: title }), ...cells.map(tunedCell)));
  return scrolling(make("table", { class: "two-lined" }, make("thead", {}, head), make("tbody", {}, ...body)));
}
function smallNumbers(tables) {
  const rows = tables.flatMap((table) => table.rows), isMean = (row) => row.kind === "mean";
  const below = (found) => found.some((row) => row.values.flat().some((cell) => cell.length > 1));
  return ["Below a score", [below(rows.filter((row) => !isMean(row))) ? "is its 95 % interval, by bootstrap over the test samples or their groups" : "",
    rows.some(isMean) ? "of a mean the standard deviation over seeds" : ""].filter(Boolean).join("; ")].join(" ") + ".";
}
// A row for every fine-tuning, so that what is compared stands one below the other; of groups of seeds the means come first.
function tunedTable({ scores: titles, networks, rows }) {
  const parts = ["train", ...(rows.every((row) => row.samples.val === "0") ? [] : ["val"]), "test"];
  const columns = [...titles.map((title) => [title, networks]), ["samples", parts]];
  const begins = (i) => (i ? "" : " begins"); // a line before the first column of a score
  const first = make("tr", {}, make("td"), ...columns.map(([title, own]) => make("th", { scope: "colgroup", colspan: String(own.length), class: "begins", text: title })));
  const second = make("tr", {}, make("td"), ...columns.flatMap(([, own]) => own.map((text, i) => make("th", { scope: "col", class: `number${begins(i)}`, text }))));
  const body = rows.map(({ name, kind, samples, values }) => make("tr", { class: kind }, make("th", { scope: "row" }, ...breakable(name)),
    ...[...values, parts.map((part) => [samples[part]])].flatMap((cells) => cells.map((found, i) => { const cell = tunedCell(found); cell.className += begins(i); return cell; }))));
  return make("div", { class: "scroll compare side-by-side", ...reachable("Scores of all fine-tunings") }, make("table", { class: "two-lined" }, make("thead", {}, first, second), make("tbody", {}, ...body)));
}
