// ---- nearest neighbours, near-duplicates and outliers, provenance ----
function showOnMap(run, point) {
  const panel = panels.find((p) => p.run === run) ?? panels[0];
  if (panel.run !== run) { panel.runSelect.value = String(runs.indexOf(run)); panel.runSelect.dispatchEvent(new Event("change")); }
  panel.show(point);
  panel.plot.scrollIntoView({ block: "center" });
}
function showGallery() {
  perRun("gallery", (run) => {
    const { queries, neighbours, untrained_neighbours: before } = run.map;
    const row = (query, near, name) => make("div", { class: name === "trained" ? "row paired" : "row" }, name ? make("span", { class: "which", text: name }) : null,
      make("div", { class: "tiles" }, ...[query, ...near].map((point) => tile(run, point, query, wide(run) ? 36 : 64, () => showOnMap(run, point)))));
    const help = `A query and the samples nearest to it${before ? ", by the trained and by the untrained encoder" : ""}${classesOf(run) > 1 ? "; ✓ and a solid frame: same label, ✗ and a dashed frame: another." : "."}`
      + " An encoder that has learned puts samples near each other that look alike to you.";
    return [make("p", { class: "help", text: help }), ...queries.flatMap((query, k) => [
      row(query, neighbours[query], before ? "trained" : ""), ...(before ? [row(query, before[k], "untrained")] : [])])];
  });
}
// The first few of many boxes, and a button that makes the others.
function firstOf(found, box) {
  if (!found.length) return null;
  const tiles = make("div", { class: "tiles" }, ...found.slice(0, FIRST).map(box));
  const rest = found.slice(FIRST);
  const all = rest.length ? make("button", { type: "button", class: "interactive", text: `Show all ${found.length}`, on: { click: () => {
    const boxes = rest.map(box);
    tiles.append(...boxes);
    all.remove();
    boxes[0].querySelector("button").focus({ preventScroll: true }); // the keyboard goes on where the button was
  } } }) : null;
  return make("div", { class: "first-of" }, tiles, all);
}
function showDuplicates() {
  perRun("duplicates", (run) => {
    const { pairs: found, outliers, counts } = run.duplicates, ids = run.map.ids, height = wide(run) ? 42 : 64;
    const named = (text) => (run.map.labels || run.map.captions ? make("small", {}, ...breakable(text)) : null); // without labels the pictures have the ids
    const picture = (point, query) => tile(run, point, query, height, () => showOnMap(run, point));
    const more = (held, all) => (all > held ? ` This page holds the first ${grouped(held)}; icone inspect RUN --duplicates lists all.` : "");
    const part = run.map.notes.map((note) => `${note} `).join(""); // where the page holds some of the samples, the rest was not looked at
    const alike = counts[0] ? `${counted(counts[0], "pair")} of samples with nearly the same features and nearly the same picture, most alike first.`
      : "No two samples have nearly the same features and nearly the same picture.";
    const far = counts[1] ? `${counted(counts[1], "sample")} far from all others, farthest first: a score above 3.5 is unusual.` : "No sample is far from all others.";
    return [
      make("p", { class: "help", text: run.map.thumbnails === null ? "Near-duplicates need pictures of the samples, which this page does not have." : part + alike + more(found.length, counts[0]) }),
      firstOf(found, ([a, b, cosine, correlation, leaks]) => make("div", { class: "pair box" },
        make("div", { class: "tiles" }, picture(a, a), picture(b, a)), named(ids[a]), named(ids[b]), leaks ? make("small", { class: "warning", text: "one trained on, one held out" }) : null,
        make("small", { text: `features: cosine ${minus(cosine.toFixed(3))}` }), make("small", { text: `pictures: correlation ${minus(correlation.toFixed(3))}` }))),
      make("p", { class: "help", text: (run.map.thumbnails === null ? part : "") + far + more(outliers.length, counts[1]) }),
      firstOf(outliers, ([point, , score]) => make("div", { class: "pair box" },
        make("div", { class: "tiles" }, picture(point, point)), named(ids[point]), make("small", { text: `score ${score.toFixed(1)}` })))];
  });
}
function showProvenance() {
  if (data.written) find("#provenance .body").before(make("p", { class: "note", text: `This page was written on ${data.written} by icone ${data.version}.` }));
  perRun("provenance", (run) => {
    const p = run.provenance;
    return [make("p", { class: "help", text: p.help ?? "This command reproduces the run:" }),
      make("pre", {}, ...p.command.split(" ").flatMap((word) => [make("span", {}, ...breakable(word)), document.createTextNode(" ")])), p.fingerprint ? make("p", { class: "note", text: `Fingerprint of the data: ${p.fingerprint}` }) : null,
      pairs(p.facts), make("details", {}, make("summary", { text: "Versions" }), pairs(p.versions)),
      make("details", {}, make("summary", { text: "The whole configuration" }), pairs(p.config))];
  });
}
