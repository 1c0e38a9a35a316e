// ---- pictures of samples ----
const sheetAddresses = new Map(); // decoded once: a blob is cheaper to reuse than a long address
function sheetAddress(sheet) {
  if (!sheetAddresses.has(sheet)) {
    const text = atob(sheet.slice(sheet.indexOf(",") + 1)), bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i); // Uint8Array.from takes ten times as long
    sheetAddresses.set(sheet, URL.createObjectURL(new Blob([bytes], { type: "image/jpeg" })));
  }
  return sheetAddresses.get(sheet);
}
// Tile i of sheets, cut out by its position.
function cutOut(sheets, i, height, label) {
  const scale = height / sheets.height, width = sheets.width * scale, within = i % PER_SHEET;
  const sheet = sheets.sheets[Math.floor(i / PER_SHEET)];
  const node = make("span", { class: "thumb", role: "img", "aria-label": label });
  Object.assign(node.style, {
    width: `${width}px`, height: `${height}px`, backgroundImage: `url("${sheetAddress(sheet)}")`,
    backgroundSize: `${width * SHEET_COLUMNS}px auto`,
    backgroundPosition: `${-width * (within % SHEET_COLUMNS)}px ${-height * Math.floor(within / SHEET_COLUMNS)}px`,
  });
  return node;
}
const sheetsOf = (run) => (run.map.thumbnails === null ? null : data.sheets[run.map.thumbnails]);
function thumbnail(run, point, height) {
  const sheets = sheetsOf(run);
  return sheets && cutOut(sheets, point, height, `picture of ${run.map.ids[point]}`);
}
const isWide = (sheets) => sheets?.width > sheets?.height; // three slices of a volume
const wide = (run) => isWide(sheetsOf(run));
function facts(run, point) {
  const rows = run.map.columns.map((column) => {
    const value = column.values[point];
    const text = column.categories ? column.categories[value] ?? "none" : minus(value ?? "none");
    return make("div", {}, make("b", { text: `${column.name}: ` }), document.createTextNode(String(text)));
  });
  return [make("div", { text: run.map.ids[point] }), ...rows];
}
const classesOf = ({ map }) => (map.classes ??= new Set(map.labels?.filter(Boolean)).size);
// A picture as a button. Where both labels are known its frame says whether that of the query is the same.
function tile(run, point, query, height, act, name = null) {
  const { labels, captions, ids } = run.map, isKnown = classesOf(run) > 1 && labels[query] && labels[point];
  const kind = point === query ? "query" : !isKnown ? "" : labels[point] === labels[query] ? "same" : "other";
  const mark = { same: "✓ ", other: "✗ " }[kind] ?? "";
  const caption = name ?? mark + (labels?.[point] || captions?.[point] || ids[point]);
  return make("button", { type: "button", class: `tile ${name ? "" : kind}`, title: run.map.ids[point], on: { click: act } },
    thumbnail(run, point, height), make("small", {}, ...breakable(caption)));
}

// ---- what was read ----
function showData() {
  const told = new Map(); // runs of the same data say it once
  for (const run of runs) {
    const key = JSON.stringify(run.data.key);
    told.set(key, [...(told.get(key) ?? []), run]);
  }
  for (const [run, ...others] of told.values()) {
    const { facts: found, labels, notes, skipped, views, examples } = run.data;
    const counts = labels?.counts.length ? scores([labels.text, ...labels.parts], labels.counts) : null;
    if (labels && !counts) found.labels = minus(labels.text);
    counts?.classList.add("short");
    find("#read .body").append(...[
      told.size > 1 ? make("h3", {}, ...breakable([run, ...others].map((r) => r.name).join(", "))) : null,
      make("div", { class: "reading" },
        make("div", {}, pairs(found), ...notes.map((text) => sentence({ class: "note" }, text)),
          skipped.length ? make("details", {}, make("summary", { text: `${skipped.length} left out` }), scores(["sample", "reason"], skipped)) : null, counts),
        examples ? exampleViews(run, examples, views) : null)].filter(Boolean));
  }
}
function exampleViews(run, { rows, views, sheet }, text) {
  const height = isWide(sheet) ? 44 : 64, each = views + 1;
  return make("div", {},
    make("p", { class: "help", text: [views ? `Samples as they were prepared, and ${counted(views, "random view")} of each, as training sees them.` : "Samples as they were prepared.",
      isWide(sheet) ? "A volume is shown as a strip of its three middle slices, one across each axis." : "", text].filter(Boolean).join(" ") }),
    make("div", { class: "examples" }, ...rows.map((point, row) => make("figure", {},
      scrolls(make("div", { class: "tiles" }, ...Array.from({ length: each }, (_, k) => cutOut(sheet, row * each + k, height, k ? `view ${k} of ${run.map.ids[point]}` : run.map.ids[point])))),
      make("figcaption", {}, ...breakable(nameOf(run, point)))))));
}
// The id with the label, unless the folder in the id is the label already.
function nameOf({ map }, point) {
  const id = map.ids[point], label = map.labels?.[point] || map.captions?.[point];
  return !label || id.split("/").includes(label) ? id : `${id} · ${label}`;
}
