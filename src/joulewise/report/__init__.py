"""View models, and what draws them."""
