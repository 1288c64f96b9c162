"""What the papers of the algorithms show: figures, a demonstration, and the planner of DP-PASGD."""
