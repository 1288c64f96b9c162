"""How the reasons begin for which a run ends before its updates are done."""

NO_BETTER = "no better"  # its evaluations show no gain any more: `run.stop`
NO_GAIN_OF_LOOKS = f"{NO_BETTER}: the looks at held-out rows surely show no gain"
