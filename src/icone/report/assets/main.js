// ---- everything in the order of the page ----
setTheme(theme());
showVerdicts();
showTraining();
showShape();
showMaps();
showGallery();
showProbes();
showProvenance();
document.body.dataset.ready = "true";
