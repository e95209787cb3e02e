"""What can be read and turned on this machine, one vendor library a file."""
