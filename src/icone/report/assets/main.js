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
// Then the charts, one after another, so that the page can be read and scrolled meanwhile.
const rest = () => new Promise((done) => setTimeout(done));
async function showCharts() {
  await rest();
  loadPlotly();
  for (; waiting.length; await rest()) await waiting.shift()();
  // The first chart of a row had the whole row to itself when it was drawn.
  await Promise.all(drawn.filter((plot) => plot.offsetParent).map((plot) => Plotly.Plots.resize(plot)));
  document.body.dataset.ready = "true";
}
addEventListener("DOMContentLoaded", showCharts);
