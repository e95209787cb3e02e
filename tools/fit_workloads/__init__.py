"""How the workloads got their figures: the published table, and the fit to it."""
