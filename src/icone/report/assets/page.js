"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const runs = data.runs;

// Okabe and Ito's colours, told apart with every common colour vision; the blues a little lighter, for dark paper.
const COLOURS = ["#1A7FC1", "#E69F00", "#009E73", "#CC79A7", "#7CC7F2", "#D55E00", "#B3A100", "#8C8C8C"];
const SYMBOLS = ["circle", "diamond", "square", "triangle-up", "cross"];
const GLYPHS = { circle: "●", diamond: "◆", square: "■", "triangle-up": "▲", cross: "✚" };
const DASHES = ["solid", "dash", "dot", "dashdot"];
const NONE = { colour: "#9a9a9a", symbol: "circle-open", glyph: "○", name: "none" };
const SVG_POINTS = 3000; // crisp and printable below, WebGL above
const LISTED = 500;
const ROUNDING = 1e-6; // of float32 through a network: smaller singular values are noise
const FROM_ZERO = ["rankme", "first_component", "alignment"];
const PER_SHEET = 256;
const SHEET_COLUMNS = 16;
const GEOMETRY = {
  rankme: "RankMe", first_component: "Variance in the first component", mean_cosine: "Mean cosine of features",
  anchor_cosine: "Mean cosine of anchors", alignment: "Alignment", uniformity: "Uniformity",
};

// ---- small helpers: text reaches the page through textContent only ----
function make(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(options)) {
    if (key === "text") node.textContent = value;
    else if (key === "class") node.className = value;
    else if (key === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
const find = (selector) => document.querySelector(selector);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const words = (name) => name.replaceAll("_", " ");
// Plotly reads a little HTML in its texts: escape what is not ours.
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

// ---- theme ----
const drawn = []; // every plot: {node, layout} to restyle when the theme changes
function theme() { return document.documentElement.dataset.theme; }
function setTheme(name) {
  document.documentElement.dataset.theme = name;
  const button = find("#theme");
  button.textContent = name === "dark" ? "Light" : "Dark";
  button.setAttribute("aria-pressed", String(name === "dark"));
  for (const plot of drawn) Plotly.relayout(plot, colours());
}
function colours() {
  const axis = { gridcolor: css("--line"), zerolinecolor: css("--line"), linecolor: css("--line") };
  const out = { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", "font.color": css("--ink") };
  for (const which of ["xaxis", "yaxis"]) for (const [k, v] of Object.entries(axis)) out[`${which}.${k}`] = v;
  return out;
}
function draw(node, traces, layout, config = {}) {
  const axis = { gridcolor: css("--line"), zerolinecolor: css("--line"), linecolor: css("--line"), automargin: true };
  const base = {
    margin: { l: 50, r: 12, t: 8, b: 40 }, modebar: { bgcolor: "rgba(0,0,0,0)" }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12.5, color: css("--ink") },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 11.5 } }, hoverlabel: { font: { size: 12 } },
  };
  const whole = { ...base, ...layout, xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis } };
  const settings = { responsive: true, displaylogo: false, displayModeBar: false, ...config };
  if (drawn.includes(node)) return Plotly.react(node, traces, whole, settings); // newPlot would drop the listeners
  drawn.push(node);
  return Plotly.newPlot(node, traces, whole, settings);
}
const dark = matchMedia("(prefers-color-scheme: dark)");
document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
find("#theme").addEventListener("click", () => setTheme(theme() === "dark" ? "light" : "dark"));
dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
let before = null; // paper is white
addEventListener("beforeprint", () => { before = theme(); setTheme("light"); });
addEventListener("afterprint", () => { if (before) setTheme(before); });

// ---- verdict ----
function showVerdicts() {
  find("#title").textContent = `icone report · ${data.title}`;
  document.title = `icone report · ${data.title}`;
  for (const run of runs) {
    const verdict = run.verdict;
    const columns = ["untrained", "trained"].filter((which) => run.figures.some((row) => row[which]));
    const head = make("tr", {}, make("th", { text: "" }), ...columns.map((c) => make("th", { text: c, class: "number" })));
    const rows = run.figures.map((row) => make("tr", {}, make("td", { text: row.title }),
      ...columns.map((c) => make("td", { text: row[c] ?? "–", class: "number" }))));
    find("#verdict .cards").append(make("article", { class: `card ${verdict.state}` },
      make("div", {}, make("h3", { text: run.name }), make("span", { class: "badge", text: verdict.state }),
        make("p", { class: "headline", text: verdict.headline }), make("p", { text: verdict.figures }),
        ...verdict.remarks.map((remark) => make("p", { text: remark })),
        make("p", { class: "note", text: `Data: ${run.note}.` })),
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
function showTraining() {
  const names = (kind) => [...new Set(runs.flatMap((run) => Object.keys(run.history[kind])))];
  if (!names("terms").length) { find("#training .charts").append(make("p", { class: "note", text: "No epoch was finished." })); return; }
  const epochs = { xaxis: { title: { text: "epoch" }, rangemode: "tozero" } };
  if (runs.length === 1) {
    const terms = runs[0].history.terms;
    draw(chart("training", "Loss and its terms"), Object.keys(terms).map((t, i) => curve(terms[t], words(t), i)), epochs);
  } else for (const term of names("terms")) perRun(words(term), (run) => run.history.terms[term]);
  for (const key of Object.keys(GEOMETRY)) {
    if (names("geometry").includes(key)) perRun(GEOMETRY[key], (run) => run.history.geometry[key], FROM_ZERO.includes(key));
  }
  function perRun(title, points, fromZero = false) {
    const traces = runs.map((run, i) => points(run) && curve(points(run), run.name, i)).filter(Boolean);
    draw(chart("training", title), traces, { ...epochs, yaxis: { rangemode: fromZero ? "tozero" : "normal" }, showlegend: runs.length > 1 });
  }
}
function showShape() {
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

// ---- thumbnails ----
const sheetAddresses = new Map(); // decoded once: a blob is cheaper to reuse than a long address
function sheetAddress(sheet) {
  if (!sheetAddresses.has(sheet)) {
    const bytes = Uint8Array.from(atob(sheet.slice(sheet.indexOf(",") + 1)), (c) => c.charCodeAt(0));
    sheetAddresses.set(sheet, URL.createObjectURL(new Blob([bytes], { type: "image/jpeg" })));
  }
  return sheetAddresses.get(sheet);
}
function thumbnail(run, point, height) {
  const sheets = run.map.thumbnails;
  if (!sheets) return null;
  const scale = height / sheets.height, width = sheets.width * scale, within = point % PER_SHEET;
  const sheet = sheets.sheets[Math.floor(point / PER_SHEET)];
  const node = make("span", { class: "thumb", role: "img", "aria-label": `picture of ${run.map.ids[point]}` });
  Object.assign(node.style, {
    width: `${width}px`, height: `${height}px`, backgroundImage: `url("${sheetAddress(sheet)}")`,
    backgroundSize: `${width * SHEET_COLUMNS}px auto`,
    backgroundPosition: `${-width * (within % SHEET_COLUMNS)}px ${-height * Math.floor(within / SHEET_COLUMNS)}px`,
  });
  return node;
}
const wide = (run) => run.map.thumbnails?.width > run.map.thumbnails?.height; // three slices of a volume
function facts(run, point) {
  const rows = run.map.columns.map((column) => {
    const value = column.values[point];
    const text = column.categories ? column.categories[value] ?? "none" : value ?? "none";
    return make("div", {}, make("b", { text: `${column.name}: ` }), document.createTextNode(String(text)));
  });
  return [make("div", { text: run.map.ids[point] }), ...rows];
}

// ---- the map ----
let selection = new Set();
const panels = [];
const webgl = (() => { try { return Boolean(document.createElement("canvas").getContext("webgl")); } catch { return false; } })();

class Panel {
  constructor(parent, first) {
    this.hidden = new Set();
    this.focus = null;
    this.runSelect = this.#select("run", runs.map((run) => run.name), () => this.#changeRun());
    this.mapSelect = this.#select("map", [], () => this.draw());
    this.colourSelect = this.#select("colour by", [], () => { this.hidden.clear(); this.draw(); });
    this.search = make("input", { type: "search", placeholder: "id, or part of it", on: { change: () => this.#find() } });
    this.plot = make("div", { class: "map-plot", tabindex: "0", role: "application", "aria-label": "Map; arrow keys step through the samples", on: { keydown: (event) => this.#key(event) } });
    this.legend = make("div", { class: "legend", role: "group", "aria-label": "Legend; press to hide or show" });
    this.detail = make("div", { class: "detail box", "aria-live": "polite" });
    this.note = make("p", { class: "note" });
    const label = (text, node) => make("label", {}, document.createTextNode(text), node);
    const shown = make("button", { type: "button", text: "Select all shown", on: { click: () => select(this.#shownIds()) } });
    parent.append(make("div", { class: "panel" },
      make("div", { class: "controls" },
        runs.length > 1 ? label("run", this.runSelect) : null, label("map", this.mapSelect),
        label("colour by", this.colourSelect), label("find", this.search), shown),
      this.legend, make("div", { class: "view" }, this.plot, this.detail), this.note));
    this.runSelect.value = String(first);
    this.#changeRun();
  }
  get run() { return runs[Number(this.runSelect.value)]; }
  get projection() { return this.run.map.projections[Number(this.mapSelect.value)]; }
  get column() { return this.run.map.columns[Number(this.colourSelect.value)]; }

  #select(name, options, act) {
    const node = make("select", { "aria-label": name, on: { change: act } });
    this.#fill(node, options);
    return node;
  }
  #fill(node, options) {
    node.replaceChildren(...options.map((text, i) => make("option", { value: String(i), text })));
  }
  #changeRun() {
    this.#fill(this.mapSelect, this.run.map.projections.map((p) => p.name));
    this.#fill(this.colourSelect, this.run.map.columns.map((c) => c.name));
    this.hidden.clear();
    this.position = new Map(this.run.map.ids.map((id, i) => [id, i]));
    this.focus = null;
    this.#describe();
    return this.draw();
  }
  #find() {
    const wanted = this.search.value.trim();
    if (!wanted) return;
    const exact = this.position.get(wanted);
    const point = exact ?? this.run.map.ids.findIndex((id) => id.includes(wanted));
    if (point >= 0) this.show(point); else this.detail.replaceChildren(make("p", { text: `No sample is called ${wanted}.` }));
  }
  #key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const count = this.run.map.ids.length;
    if (step) { event.preventDefault(); this.show(((this.focus ?? (step > 0 ? -1 : 0)) + step + count) % count); }
    if (event.key === "Enter" && this.focus !== null) {
      event.preventDefault(); // else the same key would press the button that gets the focus
      this.detail.querySelector("button")?.focus();
    }
  }
  groups() {
    const { categories, values } = this.column;
    if (!categories) return [{ colour: null, symbol: "circle", name: this.column.name, points: values.map((_, i) => i) }];
    const groups = categories.map((name, i) => {
      const symbol = SYMBOLS[Math.floor(i / COLOURS.length) % SYMBOLS.length];
      return { name, colour: COLOURS[i % COLOURS.length], symbol, glyph: GLYPHS[symbol], points: [] };
    });
    const rest = { ...NONE, points: [] };
    values.forEach((value, i) => (groups[value] ?? rest).points.push(i));
    return [...groups, rest].filter((group) => group.points.length);
  }
  draw() {
    const { x, y, note } = this.projection, total = this.run.map.ids.length;
    const size = total > 8000 ? 4 : total > 1500 ? 6 : 8;
    const kind = total > SVG_POINTS && webgl ? "scattergl" : "scatter";
    this.shownGroups = this.groups();
    find("#tooltip").hidden = true;
    const traces = this.shownGroups.map((group) => ({
      type: kind, mode: "markers", x: group.points.map((i) => x[i]), y: group.points.map((i) => y[i]),
      customdata: group.points, hoverinfo: "none", showlegend: false, visible: !this.hidden.has(group.name),
      marker: group.colour
        ? { color: group.colour, symbol: group.symbol, size, opacity: 0.85 }
        : { color: this.column.values, colorscale: "Cividis", size, opacity: 0.9, showscale: true, colorbar: { thickness: 12, outlinewidth: 0, len: 0.85, y: 0, yanchor: "bottom" } },
      selectedpoints: this.#selected(group), unselected: { marker: { opacity: 0.12 } },
    }));
    traces.push({
      type: "scatter", mode: "markers", x: [], y: [], hoverinfo: "skip", showlegend: false,
      marker: { size: size + 9, symbol: "circle-open", color: css("--ink"), line: { width: 2.5 } },
    });
    this.note.textContent = [note, ...this.run.map.notes].filter(Boolean).join(" ");
    this.#drawLegend();
    const axis = { showgrid: false, zeroline: false, showticklabels: false };
    const drawing = draw(this.plot, traces, {
      dragmode: "lasso", hovermode: "closest", hoverdistance: 12, margin: { l: 8, r: 8, t: 8, b: 8 },
      xaxis: axis, yaxis: axis, uirevision: `${this.runSelect.value}/${this.mapSelect.value}`,
    }, { scrollZoom: true, displayModeBar: true, modeBarButtonsToRemove: ["autoScale2d"] });
    this.#listen();
    this.#mark();
    return drawing;
  }
  #listen() {
    if (this.listening) return;
    this.listening = true;
    this.plot.on("plotly_hover", (event) => this.#hover(event));
    this.plot.on("plotly_unhover", () => { find("#tooltip").hidden = true; });
    this.plot.on("plotly_click", (event) => { const point = event.points[0]?.customdata; if (point !== undefined) this.show(point); });
    this.plot.on("plotly_selected", (event) => {
      if (event?.points) select(event.points.filter((p) => p.customdata !== undefined).map((p) => this.run.map.ids[p.customdata]));
    });
    this.plot.on("plotly_deselect", () => select([]));
  }
  #hover(event) {
    const point = event.points[0]?.customdata;
    if (point === undefined) return;
    const tooltip = find("#tooltip");
    tooltip.replaceChildren(...[thumbnail(this.run, point, 96)].filter(Boolean), ...facts(this.run, point));
    tooltip.hidden = false;
    const { clientX, clientY } = event.event, { width, height } = tooltip.getBoundingClientRect();
    tooltip.style.left = `${Math.max(4, clientX + 16 + width > innerWidth ? clientX - width - 12 : clientX + 16)}px`;
    tooltip.style.top = `${Math.max(4, clientY + 16 + height > innerHeight ? clientY - height - 12 : clientY + 16)}px`;
  }
  #drawLegend() {
    const groups = this.column.categories ? this.shownGroups : [];
    this.legend.replaceChildren(...groups.map((group, i) => {
      const swatch = make("span", { class: "swatch", text: group.glyph, "aria-hidden": "true" });
      swatch.style.color = group.colour;
      const button = make("button", { type: "button", "aria-pressed": String(!this.hidden.has(group.name)) },
        swatch, make("span", { class: "name", text: group.name }), make("span", { text: String(group.points.length) }));
      button.addEventListener("click", () => {
        if (!this.hidden.delete(group.name)) this.hidden.add(group.name);
        const shown = !this.hidden.has(group.name);
        button.setAttribute("aria-pressed", String(shown));
        Plotly.restyle(this.plot, { visible: shown }, [i]);
      });
      return button;
    }));
  }
  #shownIds() {
    const groups = this.shownGroups.filter((group) => !this.hidden.has(group.name));
    return groups.flatMap((group) => group.points.map((i) => this.run.map.ids[i]));
  }
  #selected(group) {
    if (!selection.size) return null;
    return group.points.flatMap((i, k) => (selection.has(this.run.map.ids[i]) ? [k] : []));
  }
  markSelection() {
    const chosen = this.shownGroups.map((group) => this.#selected(group));
    const indices = this.shownGroups.map((_, i) => i);
    Plotly.restyle(this.plot, { selectedpoints: chosen }, indices);
    if (!selection.size) Plotly.relayout(this.plot, { selections: [] });
  }
  show(point) {
    this.focus = point;
    this.#describe();
    this.#mark();
  }
  #mark() {
    const points = this.focus === null ? [] : [this.focus, ...this.run.map.neighbours[this.focus]];
    const { x, y } = this.projection;
    Plotly.restyle(this.plot, { x: [points.map((i) => x[i])], y: [points.map((i) => y[i])], "marker.color": css("--ink") }, [this.shownGroups.length]);
  }
  #describe() {
    if (this.focus === null) {
      this.detail.replaceChildren(make("p", { class: "help", text: "Click a point, or step through them with the arrow keys." }));
      return;
    }
    const point = this.focus, near = this.run.map.neighbours[point];
    const inside = this.detail.contains(document.activeElement);
    this.detail.replaceChildren(
      ...[thumbnail(this.run, point, wide(this.run) ? 72 : 128)].filter(Boolean),
      ...facts(this.run, point), make("h3", { text: "Nearest neighbours" }),
      make("div", { class: "tiles" }, ...near.map((other) => tile(this.run, other, point, 44, () => this.show(other)))));
    if (inside) this.detail.querySelector("button")?.focus(); // whoever walks from neighbour to neighbour by keyboard
  }
}
function tile(run, point, query, height, act) {
  const labels = run.map.labels, kind = point === query ? "query" : !labels || !labels[query] ? "" : labels[point] === labels[query] ? "same" : "other";
  const mark = { same: "✓ ", other: "✗ " }[kind] ?? "";
  const caption = mark + (labels?.[point] || run.map.ids[point]);
  return make("button", { type: "button", class: `tile ${kind}`, title: run.map.ids[point], on: { click: act } },
    thumbnail(run, point, height), make("small", { text: caption }));
}
function select(ids) {
  selection = new Set(ids);
  find("#selected-count").textContent = String(selection.size);
  const shown = ids.slice(0, LISTED).map((id) => make("li", { text: id }));
  if (ids.length > LISTED) shown.push(make("li", { text: `… and ${ids.length - LISTED} more in the file` }));
  find("#selected-ids").replaceChildren(...shown);
  for (const panel of panels) panel.markSelection();
}
function exportIds() {
  const quoted = (text) => `"${String(text).replaceAll('"', '""')}"`;
  const labelOf = new Map();
  for (const run of runs) run.map.labels?.forEach((label, i) => labelOf.set(run.map.ids[i], label));
  const lines = ["id,label", ...[...selection].map((id) => `${quoted(id)},${quoted(labelOf.get(id) ?? "")}`)];
  const address = URL.createObjectURL(new Blob([lines.join("\r\n") + "\r\n"], { type: "text/csv" }));
  make("a", { href: address, download: "selected.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
function showMaps() {
  const parent = find("#map .panels"), count = Math.min(runs.length, 2);
  parent.classList.toggle("two", count === 2);
  for (let i = 0; i < count; i++) panels.push(new Panel(parent, i));
  find("#export").addEventListener("click", exportIds);
  find("#clear").addEventListener("click", () => select([]));
}

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
    if (!run.probes.length) { body.append(make("div", {}, make("h3", { text: run.name }), make("p", { class: "note", text: "No labels with two classes or more, so no probes." }))); continue; }
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

setTheme(theme());
showVerdicts();
showTraining();
showShape();
showMaps();
showGallery();
showProbes();
showProvenance();
document.body.dataset.ready = "true";
})();
