"""The policy of a recurring job: which batch size to try next, and up to what cost.

Read in this order:

- ``interface``: what a policy offers, what its factory takes; plug-ins follow it
- ``curve_mixture``: a random curve over batch sizes, given values and lower bounds
- ``epochs_model``: epochs to the target, from tries that reached it or were stopped
- ``epoch_cost_model``: the cost of an epoch, fixed once it was measured
- ``knowledge_gradient``: which batch size and budget are worth a try
- ``batch_size_policy``: the built-in policy
- ``plugins``: policies by name, built in and of other packages
"""
