"""Energy and time to a score: which setting is best, by how much, and how surely."""
