// ---- nearest neighbours, near-duplicates and outliers, provenance ----
function showOnMap(run, point) {
  const panel = panels.find((p) => p.run === run) ?? panels[0];
  if (panel.run !== run) { panel.runSelect.value = String(runs.indexOf(run)); panel.runSelect.dispatchEvent(new Event("change")); }
  panel.show(point);
  panel.plot.scrollIntoView({ block: "center" });
}
function showGallery() {
  perRun("gallery", (run) => {
    const { queries, neighbours, untrained_neighbours: before, labels } = run.map;
    const row = (query, near, name) => make("div", { class: name === "trained" ? "row paired" : "row" }, name ? make("span", { class: "which", text: name }) : null,
      make("div", { class: "tiles" }, ...[query, ...near].map((point) => tile(run, point, query, wide(run) ? 36 : 64, () => showOnMap(run, point)))));
    const help = `A query and the samples nearest to it${before ? ", by the trained and by the untrained encoder" : ""}${labels ? "; ✓ and a solid frame: same label, ✗ and a dashed frame: another." : "."}`;
    return [make("p", { class: "help", text: help }), ...queries.flatMap((query, k) => [
      row(query, neighbours[query], before ? "trained" : ""), ...(before ? [row(query, before[k], "untrained")] : [])])];
  });
}
function showDuplicates() {
  perRun("duplicates", (run) => {
    const { pairs: found, outliers, counts } = run.duplicates, ids = run.map.ids, height = wide(run) ? 42 : 64;
    const named = (text) => (run.map.labels ? make("small", {}, ...breakable(text)) : null); // without labels the pictures have the ids
    const picture = (point, query) => tile(run, point, query, height, () => showOnMap(run, point));
    const more = (shown, all) => (all > shown ? `, the first ${shown} of them here` : "");
    return [
      make("p", { class: "help", text: run.map.thumbnails === null ? "Near-duplicates need pictures of the samples, which this page does not have."
        : `${counted(counts[0], "pair")} of samples that the encoder and a perceptual hash both take for the same${more(found.length, counts[0])}.` }),
      make("div", { class: "tiles" }, ...found.map(([a, b, cosine, differs]) => make("div", { class: "pair box" },
        make("div", { class: "tiles" }, picture(a, a), picture(b, a)), named(`${ids[a]} · ${ids[b]}`),
        make("small", { text: `cosine ${cosine.toFixed(3)}, ${(100 * differs).toFixed(0)} % of the hash differs` })))),
      make("p", { class: "help", text: `${counted(counts[1], "sample")} far from all others${more(outliers.length, counts[1])}.` }),
      make("div", { class: "tiles" }, ...outliers.map(([point, , score]) => make("div", { class: "pair box" },
        make("div", { class: "tiles" }, picture(point, point)), named(ids[point]), make("small", { text: `score ${score.toFixed(1)}` }))))];
  });
}
function showProvenance() {
  perRun("provenance", (run) => {
    const p = run.provenance;
    return [make("p", { class: "help", text: p.help ?? "This command reproduces the run:" }),
      make("pre", {}, ...p.command.split(" ").flatMap((word) => [make("span", { text: word }), document.createTextNode(" ")])), p.fingerprint ? make("p", { class: "note", text: `Fingerprint of the data: ${p.fingerprint}` }) : null,
      make("div", { class: "scroll" }, pairs(p.facts)),
      make("details", {}, make("summary", { text: "Versions" }), make("div", { class: "scroll" }, pairs(p.versions))),
      make("details", {}, make("summary", { text: "The whole configuration" }), make("div", { class: "scroll" }, pairs(p.config)))];
  });
}
