"""Figures and tables of Huang et al. (2021), drawn from finished campaigns. `codline paper` runs and draws them."""
