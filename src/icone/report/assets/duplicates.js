// ---- near-duplicates and outliers ----
function showDuplicates() {
  for (const run of runs) {
    const { pairs, outliers, counts } = run.duplicates, ids = run.map.ids;
    const height = wide(run) ? 42 : 64;
    const show = (point) => () => {
      const panel = panels.find((p) => p.run === run) ?? panels[0];
      if (panel.run !== run) { panel.runSelect.value = String(runs.indexOf(run)); panel.runSelect.dispatchEvent(new Event("change")); }
      panel.show(point);
      panel.plot.scrollIntoView({ block: "center" });
    };
    const more = (shown, all) => (all > shown ? `, the first ${shown} of them here` : "");
    const parts = [runs.length > 1 ? make("h3", { text: run.name }) : null,
      make("p", { class: "help", text: !run.map.thumbnails ? "Near-duplicates need pictures of the samples, which this page does not have."
        : `${counts[0]} pairs that the encoder and a perceptual hash both take for the same${more(pairs.length, counts[0])}.` }),
      make("div", { class: "tiles" }, ...pairs.map(([a, b, cosine, differs]) => make("div", { class: "pair box" },
        make("div", { class: "tiles" }, tile(run, a, a, height, show(a)), tile(run, b, a, height, show(b))),
        make("small", { text: `${ids[a]} · ${ids[b]}` }),
        make("small", { text: `cosine ${cosine.toFixed(3)}, ${(100 * differs).toFixed(0)} % of the hash differs` })))),
      make("p", { class: "help", text: `${counts[1]} samples far from all others${more(outliers.length, counts[1])}.` }),
      make("div", { class: "tiles" }, ...outliers.map(([point, , score]) => make("div", { class: "pair box" },
        make("div", { class: "tiles" }, tile(run, point, point, height, show(point))), make("small", { text: ids[point] }), make("small", { text: `score ${score.toFixed(1)}` }))))];
    find("#duplicates .body").append(...parts.filter(Boolean));
  }
}
