"""The paper's tables and figures: many runs described by data, executed anywhere, merged into one results table."""
