// ---- the map ----
let selection = new Set();
const panels = [];
const webgl = (() => { try { return Boolean(document.createElement("canvas").getContext("webgl")); } catch { return false; } })();
const LASSO = "drawclosedpath";
const lassoButton = () => ({
  name: "lasso", title: "Lasso", icon: Plotly.Icons.lasso, attr: "dragmode", val: LASSO, click: (plot) => Plotly.relayout(plot, { dragmode: LASSO }),
});
// A fixed order without any pattern: no group of points lies on top of all others because it is drawn last.
const mixed = (points) => points.map((i) => [Math.imul(i + 1, 2654435761) >>> 0, i]).sort((a, b) => a[0] - b[0]).map((pair) => pair[1]);
// Whether a point lies in a closed loop: a ray from it crosses the loop an odd number of times.
function inside(loop, x, y) {
  let odd = false;
  loop.forEach(([x1, y1], k) => {
    const [x0, y0] = loop.at(k - 1);
    if (y0 > y !== y1 > y && x < x0 + ((y - y0) * (x1 - x0)) / (y1 - y0)) odd = !odd;
  });
  return odd;
}

class Panel {
  constructor(parent, first) {
    this.hidden = new Set();
    this.focus = this.hovered = null;
    this.matches = []; // of the search
    this.runSelect = this.#select("run", runs.map((run) => run.name), () => this.#changeRun());
    this.mapSelect = this.#select("map", [], () => this.draw());
    this.colourSelect = this.#select("colour by", [], () => { this.hidden.clear(); this.draw(); });
    this.search = make("input", { type: "search", placeholder: "id, or part of it", on: {
      input: () => this.#find(), focus: () => { if (this.search.value) this.#find(); },
      keydown: (event) => { if (event.key === "Enter" && this.matches.length) this.show(this.matches[0]); },
    } });
    this.plot = make("div", { class: "map-plot", tabindex: "0", role: "application", "aria-label": "Map; arrow keys step through the samples", on: { keydown: (event) => this.#key(event) } });
    this.legend = make("div", { class: "legend", role: "group", "aria-label": "Legend; press to hide or show" });
    this.detail = make("div", { class: "detail box", "aria-live": "polite" });
    this.note = make("p", { class: "note" });
    this.caption = make("h3", { class: "caption" }); // on paper, where the controls are missing
    const label = (text, node) => make("label", {}, document.createTextNode(text), node);
    const shown = make("button", { type: "button", text: "Select all shown", on: { click: () => select(this.#shown().map((i) => this.run.map.ids[i])) } });
    parent.append(make("div", { class: "panel" },
      make("div", { class: "controls" },
        runs.length > 1 ? label("run", this.runSelect) : null, label("map", this.mapSelect),
        label("colour by", this.colourSelect), label("find", this.search), shown),
      this.caption, this.legend, make("div", { class: "view" }, this.plot, this.detail), this.note));
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
    this.#find();
    return this.draw();
  }
  #find() {
    const wanted = this.search.value.trim().toLowerCase();
    this.matches = wanted ? this.run.map.ids.flatMap((id, i) => (id.toLowerCase().includes(wanted) ? [i] : [])) : [];
    this.focus = this.matches.length === 1 ? this.matches[0] : null;
    this.#describe();
    this.#mark();
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
    if (!isPlotting(() => this.draw())) return null;
    const { x, y, note } = this.projection, total = this.run.map.ids.length;
    const size = total > 8000 ? 4 : total > 1500 ? 6 : 8;
    const kind = total > SVG_POINTS && webgl ? "scattergl" : "scatter";
    this.shownGroups = this.groups();
    this.points = mixed(this.#shown());
    find("#tooltip").hidden = true;
    const traces = [{
      type: kind, mode: "markers", x: this.points.map((i) => x[i]), y: this.points.map((i) => y[i]),
      customdata: this.points, hoverinfo: "none", showlegend: false, marker: { size, ...this.#look() },
      selectedpoints: this.#selected(), unselected: { marker: { opacity: 0.12 } },
    }];
    traces.push({
      type: "scatter", mode: "markers", x: [], y: [], hoverinfo: "skip", showlegend: false,
      marker: { size: size + 9, symbol: "circle-open", color: css("--ink"), line: { width: 2.5 } },
    });
    this.caption.textContent = `${this.run.name}, ${this.projection.name}, coloured by ${this.column.name}`;
    this.note.textContent = [note, ...this.run.map.notes].filter(Boolean).join(" ");
    this.#drawLegend();
    const axis = { showgrid: false, zeroline: false, showline: false, showticklabels: false };
    const drawing = draw(this.plot, traces, {
      dragmode: LASSO, hovermode: "closest", hoverdistance: 12, margin: { l: 8, r: 8, t: 8, b: 8 },
      xaxis: axis, yaxis: axis, uirevision: `${this.runSelect.value}/${this.mapSelect.value}`,
      newshape: { line: { color: css("--ink"), width: 1.5, dash: "dot" }, fillcolor: "rgba(128, 128, 128, .15)" },
    }, {
      scrollZoom: true, displayModeBar: true, plotGlPixelRatio: devicePixelRatio,
      modeBarButtonsToRemove: ["autoScale2d", "select2d", "lasso2d"], modeBarButtonsToAdd: [lassoButton()],
    });
    this.#listen();
    this.#mark();
    return drawing;
  }
  // Colours and symbols of the points, by their group or by a number.
  #look() {
    const { categories, values } = this.column;
    if (!categories) return { color: this.points.map((i) => values[i]), colorscale: "Cividis", opacity: 0.9, line: { width: 0.5, color: css("--quiet") }, showscale: true, colorbar: { thickness: 12, outlinewidth: 0, len: 0.85, y: 0, yanchor: "bottom" } };
    const looks = new Map(this.shownGroups.flatMap((group) => group.points.map((i) => [i, group]))), symbols = new Set(this.shownGroups.map((group) => group.symbol));
    return { color: this.points.map((i) => looks.get(i).colour), symbol: symbols.size > 1 ? this.points.map((i) => looks.get(i).symbol) : [...symbols][0], opacity: 0.85 };
  }
  #listen() {
    if (this.listening) return;
    this.listening = true;
    this.plot.on("plotly_hover", (event) => this.#hover(event));
    this.plot.on("plotly_unhover", () => { this.hovered = null; find("#tooltip").hidden = true; });
    this.plot.addEventListener("click", () => { if (this.hovered !== null) this.show(this.hovered); });
    this.plot.on("plotly_relayout", (change) => { if (change.shapes?.length) this.#enclose(change.shapes.at(-1).path); });
  }
  // The lasso is drawn as a shape, which costs nothing while the mouse moves; Plotly's own lasso would draw all
  // points twice per move, and without a graphics card that takes most of a second.
  #enclose(path) {
    const loop = [...path.matchAll(/(-?[\d.]+(?:e[-+]?\d+)?),(-?[\d.]+(?:e[-+]?\d+)?)/g)].map(([, x, y]) => [Number(x), Number(y)]);
    const { x, y } = this.projection, shown = this.#shown();
    Plotly.relayout(this.plot, { shapes: [] });
    select(shown.filter((i) => inside(loop, x[i], y[i])).map((i) => this.run.map.ids[i]));
  }
  #hover(event) {
    const point = event.points[0]?.customdata;
    if (point === undefined) return;
    this.hovered = point;
    const tooltip = find("#tooltip");
    tooltip.replaceChildren(...[thumbnail(this.run, point, 96)].filter(Boolean), ...facts(this.run, point));
    tooltip.hidden = false;
    const { clientX, clientY } = event.event, { width, height } = tooltip.getBoundingClientRect();
    tooltip.style.left = `${Math.max(4, clientX + 16 + width > innerWidth ? clientX - width - 12 : clientX + 16)}px`;
    tooltip.style.top = `${Math.max(4, clientY + 16 + height > innerHeight ? clientY - height - 12 : clientY + 16)}px`;
  }
  #drawLegend() {
    const groups = this.column.categories ? this.shownGroups : [];
    this.legend.replaceChildren(...groups.map((group) => {
      const swatch = make("span", { class: "swatch", text: group.glyph, "aria-hidden": "true" });
      swatch.style.color = group.colour;
      const button = make("button", { type: "button", "aria-pressed": String(!this.hidden.has(group.name)) },
        swatch, make("span", { class: "name", text: group.name }), make("span", { class: "count", text: `(${grouped(group.points.length)})` }));
      button.addEventListener("click", () => {
        if (!this.hidden.delete(group.name)) this.hidden.add(group.name);
        const index = groups.indexOf(group);
        this.draw();
        this.legend.children[index].focus();
      });
      return button;
    }));
  }
  #shown() {
    return this.shownGroups.filter((group) => !this.hidden.has(group.name)).flatMap((group) => group.points);
  }
  #selected() {
    if (!selection.size) return null;
    return this.points.flatMap((i, k) => (selection.has(this.run.map.ids[i]) ? [k] : []));
  }
  markSelection() {
    if (this.plot.data) Plotly.restyle(this.plot, { selectedpoints: [this.#selected()] }, [0]);
  }
  show(point) {
    this.focus = point;
    this.#describe();
    this.#mark();
  }
  #mark() {
    if (!this.plot.data) return;
    const points = this.focus === null ? this.matches.slice(0, LISTED) : [this.focus, ...this.run.map.neighbours[this.focus]];
    const { x, y } = this.projection;
    Plotly.restyle(this.plot, { x: [points.map((i) => x[i])], y: [points.map((i) => y[i])], "marker.color": css("--ink") }, [1]);
  }
  #describe() {
    const searched = this.search.value.trim();
    this.detail.classList.toggle("interactive", this.focus === null && !searched); // nothing that paper should show
    if (this.focus === null && searched) return this.#listMatches(searched);
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
    if (inside) this.detail.querySelector(".tile")?.focus(); // whoever walks from neighbour to neighbour by keyboard
  }
  #listMatches(searched) {
    const found = this.matches, ids = this.run.map.ids, rest = found.length - TILES;
    this.detail.replaceChildren(...[
      make("p", { text: found.length ? `${counted(found.length, "sample")} with ${searched} in the id.` : `No id holds ${searched}.` }),
      found.length ? make("button", { type: "button", text: "Select them", on: { click: () => select(found.map((i) => ids[i])) } }) : null,
      make("div", { class: "tiles matches" }, ...found.slice(0, TILES).map((i) => tile(this.run, i, i, 44, () => this.show(i), ids[i]))),
      rest > 0 ? make("p", { class: "note", text: `… and ${rest} more.` }) : null].filter(Boolean));
  }
}
function select(ids) {
  selection = new Set(ids);
  find("#selected-count").textContent = String(selection.size);
  find("#selection").classList.toggle("empty", !selection.size);
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
