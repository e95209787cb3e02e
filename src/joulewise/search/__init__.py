"""What to try next (ask/tell), apart from which result is best."""
