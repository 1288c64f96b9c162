"""How the reasons begin for which a run ends before its updates are done."""

NO_BETTER = "no better"  # its evaluations show no gain any more: `run.stop`
