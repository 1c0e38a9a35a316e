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
  for (const run of runs) {
    const table = scores(["on the test samples", ...run.networks], run.metrics.map((row) => [row.title, ...row.values.map(minus)]));
    find("#verdict .cards").append(make("article", { class: "card tuned" },
      make("div", {}, make("h3", {}, ...breakable(run.name)), make("ul", { class: "evidence" }, ...run.sentences.map((text) => sentence({}, text, "li"))),
        ...[run.note, ...run.label_notes].map((text) => sentence({ class: "note" }, text))), table));
  }
  find("#training .help").textContent = "The ringed epoch is the one that was kept: the best of the validation samples, or the last where none were held out.";
  for (const title of [...new Set(runs.flatMap((run) => run.curves.map((c) => c.title)))]) {
    const traces = [];
    for (const run of runs) for (const found of run.curves.filter((c) => c.title === title)) for (const { name, points, kept } of found.networks) {
      if (!points.length) continue;
      const trace = curve(points, runs.length > 1 ? `${run.name}, ${name}` : name, traces.filter((t) => !t.unnamed).length);
      const best = points.filter((p) => p[0] === kept);
      if (points.length < FEW) { traces.push(trace); continue; } // a table, whose kept epoch is in the table above
      traces.push(trace, { type: "scatter", mode: "markers", x: best.map((p) => p[0]), y: best.map((p) => p[1]), hoverinfo: "skip", unnamed: true,
        marker: { size: 13, symbol: "circle-open", color: trace.line.color, line: { width: 2 } } });
    }
    chart(find("#training .charts"), title, traces, { xaxis: epochAxis(traces.flatMap((t) => t.x.map((x) => [x]))) });
  }
  showProbes();
  showProvenance();
}
