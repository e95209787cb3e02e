"""Starting somebody's command so that it notices nothing of us."""
