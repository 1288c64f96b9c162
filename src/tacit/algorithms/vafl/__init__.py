"""VAFL: parties that hold different features of the same people."""
