"""A developer's tool: fits the workloads' figures to the published table.

- ``__main__``: the command; ``table``: the table as curves to fit; ``solve``: the least-squares fit
"""
