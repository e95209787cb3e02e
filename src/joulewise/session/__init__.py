"""One measured run: recorder, command, outlook, budget."""
