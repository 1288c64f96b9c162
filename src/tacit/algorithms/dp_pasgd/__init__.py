"""DP-PASGD: noisy local steps, periodic averages, and the design for both budgets."""
