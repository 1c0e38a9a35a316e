const data = JSON.parse(document.getElementById("data").textContent);
const runs = data.runs;
const groups = data.groups ?? runs.map((run, i) => ({ name: run.name, runs: [i] })); // runs of one folder of seeds

// Okabe and Ito's colours, told apart with every common colour vision; the blues a little lighter, for dark paper.
const COLOURS = ["#1A7FC1", "#E69F00", "#009E73", "#CC79A7", "#7CC7F2", "#D55E00", "#B3A100", "#8C8C8C"];
const SYMBOLS = ["circle", "diamond", "square", "triangle-up", "cross"];
const GLYPHS = { circle: "●", diamond: "◆", square: "■", "triangle-up": "▲", cross: "✚" };
const DASHES = ["solid", "dash", "dot", "dashdot"];
const NONE = { colour: "#9a9a9a", symbol: "circle-open", glyph: "○", name: "none" };
const SVG_POINTS = 3000; // crisp and printable below, WebGL above
const LISTED = 500;
const TILES = 60; // pictures of matches that are listed
const FIRST = 6; // near-duplicate pairs and outliers that are shown before all are asked for
const MATRIX = 40; // classes up to which a confusion matrix can be read
const MISTAKES = 30; // listed where it cannot
const WIDE = 58, NARROW = 22; // letters of names side by side that fit half a screen, and a phone
const MANY_RUNS = 2; // above it the grounds of a verdict are folded up
const FEW = 3; // points that a chart needs: of fewer there is a table
const ROUNDING = 1e-6; // of float32 through a network: smaller singular values are noise
const PER_SHEET = 256;
const SHEET_COLUMNS = 16;

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
const lengthOf = (text) => (text.length < 15 ? "whole" : text.length > 24 ? "long" : "");
// A table in a box that scrolls; the first cell of a row is its heading, the others are numbers.
function scores(headings, rows, label = null) {
  const shown = (value) => (Number.isInteger(value) ? grouped(value) : String(value));
  const cell = (value, i, scope) => make(scope && value !== "" ? "th" : "td", { class: i ? "number" : lengthOf(shown(value)), ...(scope ? { scope } : {}) }, ...(i ? [shown(value)] : breakable(shown(value))));
  const head = make("tr", {}, ...headings.map((value, i) => cell(value, i, "col")));
  const body = rows.map((row) => make("tr", {}, ...row.map((value, i) => cell(value, i, i ? "" : "row"))));
  const table = make("table", { class: "scores" }, make("thead", {}, head), make("tbody", {}, ...body));
  return label ? make("div", { class: "scroll", ...reachable(label) }, table) : scrolling(table);
}
// What may be larger than its box: the keyboard can scroll it.
const reachable = (label) => ({ tabindex: "0", role: "region", "aria-label": label });
// The same for what is rarely larger: the keyboard reaches it only then.
const scrollers = new ResizeObserver((entries) => {
  for (const { target: box } of entries) {
    const isLarger = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
    if (isLarger) box.tabIndex = 0; else box.removeAttribute("tabindex");
  }
});
function scrolls(box) {
  scrollers.observe(box);
  return box;
}
const scrolling = (table) => scrolls(make("div", { class: "scroll" }, table));
function pairs(object) {
  return scrolling(make("table", { class: "facts" }, make("tbody", {}, ...Object.entries(object).map(([key, value]) => make("tr", {}, make("th", { scope: "row", text: key }), make("td", {}, ...breakable(value)))))));
}
// The part of a section that every run has: of one or two runs all open, of more the first; others when they are opened.
function perRun(section, build) {
  const body = find(`#${section} .body`);
  runs.forEach((run, i) => {
    if (runs.length === 1) { body.append(...build(run).filter(Boolean)); return; }
    const isOpen = i === 0 || runs.length === 2, box = make("details", { class: "run", ...(isOpen ? { open: "" } : {}) }, make("summary", {}, ...breakable(run.name)));
    const fill = () => {
      if (box.childElementCount === 1) box.append(...build(run).filter(Boolean));
      for (const plot of drawn) if (box.contains(plot)) Plotly.Plots.resize(plot);
    };
    body.append(box);
    if (isOpen) fill();
    box.addEventListener("toggle", () => { if (box.open) fill(); });
  });
}
// The title of the page, in the window too.
function showTitle() {
  document.title = `icone report · ${data.title}`;
  find("#title").append(...breakable(document.title));
}
const find = (selector) => document.querySelector(selector);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const words = (name) => name.replaceAll("_", " ");
const grouped = (count) => count.toLocaleString("en-US"); // 20,000
const counted = (count, thing) => `${grouped(count)} ${thing}${count === 1 ? "" : "s"}`;
// Numbers with a minus sign, which the axes of charts have, in place of a hyphen; those behind a letter (kNN-5) stay.
const minus = (text) => String(text).replace(/(?<![\w.-])-(?=\d)/g, "−");
// A sentence of ours. No line ends after the hyphens of a flag such as --size, nor before %; what a flag is given stays as it is typed.
function sentence(options, text, tag = "p") {
  const first = /^.[A-Z]/.test(text) ? text.slice(0, 1) : text.slice(0, 1).toUpperCase(); // kNN-5 stays
  const whole = first + text.slice(1) + (/[.!?:]$/.test(text) ? "" : ".");
  const parts = whole.replaceAll(" %", "\u00a0%").split(/(--[\w.-]*\w(?:[ =]-?\d[\d.]*(?![\w.]))*)/);
  return make(tag, options, ...parts.map((part) => (part.startsWith("--") ? make("span", { class: "flag", text: part }) : minus(part))));
}
// A long name breaks where a reader would break it: after _ / . -
const breakable = (text) => String(text).split(/(?<=[_/.-])(?=.)/).flatMap((part, i) => (i ? [make("wbr"), part] : [part]));
// Plotly reads a little HTML in its texts: escape what is not ours.
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

// ---- theme ----
const drawn = []; // every plot, to restyle when the theme changes
const waiting = []; // what needs the plotting library, in the order of the page
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
// The library is most of what a browser has to read: texts and tables are on the screen before it is run.
function loadPlotly() {
  if (window.Plotly) return;
  const script = make("script"), source = find("#plotly");
  script.textContent = source.textContent;
  document.head.append(script); // which runs it
  script.remove();
}
// Whether the library is there; if not, something is done when it is.
function isPlotting(act) {
  if (!window.Plotly) waiting.push(act);
  return Boolean(window.Plotly);
}
function draw(node, traces, layout, config = {}) {
  if (!isPlotting(() => draw(node, traces, layout, config))) return null;
  const axis = { gridcolor: css("--line"), zerolinecolor: css("--line"), linecolor: css("--line"), automargin: true };
  const titled = (own) => ({ ...axis, ...own, ...(own?.title ? { title: { font: { size: 12.5 }, standoff: 10, ...own.title } } : {}) });
  const base = {
    margin: { l: 50, r: 12, t: 8, b: 40 }, modebar: { bgcolor: "rgba(0,0,0,0)" }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12.5, color: css("--ink") },
    showlegend: false, hoverlabel: { font: { size: 12 } }, // names stand in HTML, in full
  };
  const whole = { ...base, ...layout, xaxis: titled(layout.xaxis), yaxis: titled(layout.yaxis) };
  const settings = { responsive: true, displaylogo: false, displayModeBar: false, ...config };
  if (drawn.includes(node)) return Plotly.react(node, traces, whole, settings); // newPlot would drop the listeners
  drawn.push(node);
  return Plotly.newPlot(node, traces, whole, settings);
}
const dark = matchMedia("(prefers-color-scheme: dark)");
document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
find("#theme").addEventListener("click", () => setTheme(theme() === "dark" ? "light" : "dark"));
dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));

// ---- print: paper is white and narrower than the screen ----
let before = null;
addEventListener("beforeprint", () => {
  loadPlotly();
  while (waiting.length) waiting.shift()();
  const sizes = new Map(drawn.map((plot) => [plot, [plot.clientWidth, plot.clientHeight]]));
  before = theme();
  document.documentElement.dataset.paper = "true";
  setTheme("light");
  for (const [plot, [width, height]] of sizes) {
    // Charts are drawn anew for their place. WebGL would draw too late: such a map is made smaller as it stands.
    if (plot.querySelector("canvas")) shrink(plot, width, plot.clientWidth, { width: `${width}px`, height: `${height}px` });
    else Plotly.relayout(plot, { width: plot.clientWidth, height: plot.clientHeight });
  }
  for (const box of document.querySelectorAll(".scroll")) shrink(box.firstElementChild, box.scrollWidth, box.clientWidth);
});
addEventListener("afterprint", () => {
  delete document.documentElement.dataset.paper;
  for (const node of document.querySelectorAll("[data-shrunk]")) {
    delete node.dataset.shrunk;
    node.style.cssText = "";
  }
  for (const plot of drawn) Plotly.relayout(plot, { width: null, height: null, autosize: true });
  if (before) setTheme(before);
});
function shrink(node, width, room, size = {}) {
  if (width <= room) return;
  node.dataset.shrunk = "true";
  Object.assign(node.style, size, { zoom: String(room / width) });
}
