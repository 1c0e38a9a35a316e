"""The examples at the end of every `--help`: what one does, and its command."""

from __future__ import annotations

EXAMPLES: dict[str, list[tuple[str, str]]] = {
    "": [
        ("See it work on generated data, in a minute or two.", "icone demo"),
        ("From a folder of images to a page about them.", "icone pretrain scans/ && icone report runs/scans"),
    ],
    "fetch": [
        ("One set of MedMNIST.", "icone fetch medmnist:pneumoniamnist@64"),
        ("Natural images, into a folder of your own.", "icone fetch imagenette@160 --data-root data"),
    ],
    "inspect": [
        ("What would be read of a folder?", "icone inspect scans/"),
        ("The same for volumes of two channels, for a script.",
         "icone inspect scans/ --channels-from '{id}_{t1,t2}.nii.gz' --json"),
        ("Near-duplicates and outliers of a run.", "icone inspect runs/scans --duplicates"),
    ],
    "plan": [
        ("Does this fit, and how long does it take?", "icone plan scans/ --epochs 50 --batch-size 16"),
        ("Let icone choose the micro-batches.", "icone plan scans/ --batch-size auto"),
    ],
    "pretrain": [
        ("A folder of images or volumes, into runs/scans.", "icone pretrain scans/"),
        ("CT volumes in a soft-tissue window, with labels that only probes see.",
         "icone pretrain ct/ --window -160 240 --labels labels.csv --out runs/ct"),
        ("Another method, five seeds.",
         "icone pretrain cells.npy --method simclr --batch-size 32 --seeds 5"),
        ("The settings of an earlier run, with more epochs.",
         "icone pretrain --config runs/scans/config.toml --epochs 200 --out runs/more"),
    ],
    "finetune": [
        ("Train with the labels of the run's own data.", "icone finetune runs/scans"),
        ("With labels of a table, a tenth of them.", "icone finetune runs/scans --labels labels.csv --fraction 0.1"),
    ],
    "methods": [
        ("All methods side by side.", "icone methods"),
        ("What can be set about one, for --options.", "icone methods icone"),
    ],
    "demo": [
        ("One small training, and what it changed.", "icone demo"),
        ("Into a folder of your own.", "icone demo --out runs/first"),
    ],
    "embed": [
        ("Features of the data that the run was trained on.", "icone embed runs/scans"),
        ("Of other images, with a map, as AnnData for scanpy.",
         "icone embed runs/scans new/ --projections umap --out new.h5ad"),
    ],
    "predict": [
        ("Classes of new images.", "icone predict runs/scans-finetuned new/"),
        ("Of the run's own data, as Parquet.", "icone predict runs/scans-finetuned --out own.parquet"),
    ],
    "export": [
        ("For timm.", "icone export runs/scans --format timm"),
        ("One ONNX file.", "icone export runs/scans --format onnx --out encoder.onnx"),
    ],
    "evaluate": [
        ("Geometry, and probes where the run has labels.", "icone evaluate runs/scans"),
        ("Labels of a table; patients are not split.",
         "icone evaluate runs/scans --labels labels.csv --group-column patient"),
        ("How many labels does pretraining save?",
         "icone evaluate runs/scans --label-fractions 0.01 0.1 1"),
        ("The same, and fine-tuned with three draws of labels each.",
         "icone evaluate runs/scans --label-fractions 0.1 0.5 --finetune-draws 3"),
    ],
    "report": [
        ("One page about one run.", "icone report runs/scans"),
        ("Two runs side by side.", "icone report runs/scans runs/more --out both.html"),
    ],
    "figures": [
        ("All pictures of a run.", "icone figures runs/scans"),
        ("Two of them, of two runs.", "icone figures runs/scans runs/more --names map spectrum"),
    ],
    "cache": [
        ("What is kept, and how large it is.", "icone cache"),
        ("Find and delete what is damaged.", "icone cache --check"),
    ],
    "paper": [
        ("What there is, and how long it takes.", "icone paper list"),
        ("One table in miniature, in minutes on a CPU.", "icone paper run knn-3d --smoke"),
        ("Its tables and figures.", "icone paper show knn-3d --smoke"),
    ],
    "paper list": [
        ("All tables and figures of the paper.", "icone paper list"),
        ("Those of a sweep in another folder.", "icone paper list --store runs/mine"),
    ],
    "paper run": [
        ("What would run, and for how long?", "icone paper run all --dry-run"),
        ("One table, with two seeds.", "icone paper run knn-3d --seeds 2"),
    ],
    "paper show": [
        ("One table beside the paper's numbers.", "icone paper show knn-3d"),
        ("All of them, as files in a folder.", "icone paper show all --out figures"),
    ],
    "paper report": [
        ("One page with every table and figure.", "icone paper report"),
        ("The tables as Markdown.", "icone paper report --out results.md"),
    ],
    "paper export": [
        ("All finished runs of the store in one file.", "icone paper export runs.zip"),
        ("Those of another store, with what maps need.", "icone paper export runs.zip --store runs/mine --features"),
    ],
    "paper import": [
        ("Take the runs of two machines.", "icone paper import first.zip second.zip"),
        ("Merge another store into one of your own.", "icone paper import /mnt/other/paper --store runs/all"),
    ],
}  # fmt: skip
