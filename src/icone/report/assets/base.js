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

// ---- print: paper is white and narrower than the screen ----
let before = null;
addEventListener("beforeprint", () => {
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
