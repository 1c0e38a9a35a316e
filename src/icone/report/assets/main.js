// ---- everything in the order of the page ----
setTheme(theme());
if (data.kind === "fine-tuning") showFineTuned();
else {
  showVerdicts();
  showData();
  showTraining();
  showShape();
  showMaps();
  showGallery();
  showProbes();
  showDuplicates();
  showProvenance();
}
// The first chart of a row had the whole row to itself when it was drawn.
Promise.all(drawn.filter((plot) => plot.offsetParent).map((plot) => Plotly.Plots.resize(plot))).then(() => { document.body.dataset.ready = "true"; });
