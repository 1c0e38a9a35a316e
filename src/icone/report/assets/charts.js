// ---- verdict ----
function showVerdicts() {
  find("#title").textContent = `icone report · ${data.title}`;
  document.title = `icone report · ${data.title}`;
  for (const run of runs) {
    const verdict = run.verdict;
    const columns = ["untrained", "trained"].filter((which) => run.metrics.some((row) => row[which]));
    const head = make("tr", {}, make("th", { text: "" }), ...columns.map((c) => make("th", { text: c, class: "number" })));
    const rows = run.metrics.map((row) => make("tr", {}, make("td", { text: row.title }),
      ...columns.map((c) => make("td", { text: row[c] ?? "–", class: "number" }))));
    find("#verdict .cards").append(make("article", { class: `card ${verdict.state.replaceAll(" ", "-")}` },
      make("div", {}, make("h3", { text: run.name }), make("span", { class: "badge", text: verdict.state }),
        make("p", { class: "headline", text: verdict.headline }),
        make("ul", { class: "evidence" }, ...verdict.evidence.map((text) => make("li", { text }))),
        verdict.advice ? make("p", { text: verdict.advice }) : null,
        ...run.warnings.map((text) => make("p", { class: "warning", text })), make("p", { class: "note", text: run.note }),
        ...run.label_notes.map((text) => make("p", { class: "note", text }))),
      make("div", { class: "scroll" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)))));
  }
}

// ---- charts ----
function chart(section, title, label) {
  const plot = make("div", { class: "plot", role: "img", "aria-label": label ?? title });
  find(`#${section} .charts`).append(make("div", { class: "chart" }, make("h3", { text: title }), plot));
  return plot;
}
const line = (i) => ({ color: COLOURS[i % COLOURS.length], dash: DASHES[Math.floor(i / COLOURS.length) % DASHES.length], width: 2 });
function curve(points, name, i) {
  const few = points.length < 40;
  return {
    type: "scatter", mode: few ? "lines+markers" : "lines", x: points.map((p) => p[0]), y: points.map((p) => p[1]),
    name: plain(name), line: line(i), marker: { size: 5, symbol: SYMBOLS[i % SYMBOLS.length] },
  };
}
function liveSamples() {
  const counts = [...new Set(runs.map((run) => run.live_samples).filter(Boolean))].sort((a, b) => a - b);
  return counts.length ? `${counts.length > 1 ? `${counts[0]} to ` : ""}${counts.at(-1)} samples` : "a few samples";
}
function showTraining() {
  const names = (kind) => [...new Set(runs.flatMap((run) => Object.keys(run.history[kind])))];
  find("#training .help").textContent = `Loss terms, and the geometry of random views of ${liveSamples()} along the way; epoch 0 is the encoder before training. `
    + "Ranks grow with the number of samples: compare these with each other, not with those of the evaluation above.";
  if (!names("terms").length) { find("#training .charts").append(make("p", { class: "note", text: "No epoch was finished." })); return; }
  const epochs = { xaxis: { title: { text: "epoch" }, rangemode: "tozero" } };
  if (runs.length === 1) {
    const terms = runs[0].history.terms;
    draw(chart("training", "Loss and its terms"), Object.keys(terms).map((t, i) => curve(terms[t], words(t), i)), epochs);
  } else for (const term of names("terms")) perRun(words(term), (run) => run.history.terms[term]);
  for (const { name, title, from_zero, grows } of runs[0].charts) {
    if (names("geometry").includes(name)) perRun(`${title}${grows ? `, ${liveSamples()}` : ""}`, (run) => run.history.geometry[name], from_zero);
  }
  function perRun(title, points, fromZero = false) {
    const traces = runs.map((run, i) => points(run) && curve(points(run), run.name, i)).filter(Boolean);
    draw(chart("training", title), traces, { ...epochs, yaxis: { rangemode: fromZero ? "tozero" : "normal" }, showlegend: runs.length > 1 });
  }
}
function showShape() {
  find("#shape .charts").classList.toggle("crowded", runs.length > 1);
  const spectra = [], plane = [];
  runs.forEach((run, i) => {
    const label = (which) => (runs.length === 1 ? which : `${run.name}, ${which}`);
    for (const [which, values] of Object.entries(run.spectrum)) {
      const top = values[0] || 1;
      spectra.push({
        type: "scatter", mode: "lines", name: plain(label(which)), x: values.map((_, k) => k + 1),
        y: values.map((v) => (v > ROUNDING * top ? v / top : null)),
        line: { color: COLOURS[i % COLOURS.length], width: 2, dash: which === "untrained" ? "dot" : "solid" },
      });
    }
    const { alignment = [], uniformity = [] } = run.history.geometry;
    if (alignment.length > 1) plane.push({
      type: "scatter", mode: "lines+markers", x: uniformity.map((p) => p[1]), y: alignment.map((p) => p[1]),
      name: plain(label("while training")), line: { color: COLOURS[i % COLOURS.length], width: 1, dash: "dot" },
      marker: { size: 4 }, text: alignment.map((p) => `epoch ${p[0]}`),
    });
    for (const [which, [a, u]] of Object.entries(run.plane)) plane.push({
      type: "scatter", mode: "markers", x: [u], y: [a], name: plain(label(which)),
      marker: { size: 13, color: COLOURS[i % COLOURS.length], symbol: which === "untrained" ? "circle-open" : "circle" },
    });
  });
  draw(chart("shape", "Singular values of the standardised features"), spectra, {
    xaxis: { title: { text: "rank" } }, yaxis: { type: "log", title: { text: "relative to the largest" }, exponentformat: "power" },
  });
  if (plane.length) draw(chart("shape", "Alignment and uniformity"), plane, {
    xaxis: { title: { text: "uniformity (left: more spread)" } }, yaxis: { title: { text: "alignment (down: views agree)" } },
  });
}
