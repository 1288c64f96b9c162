"""The run definition: a TOML file becomes frozen values, and every default stands here once."""

from tacit.config.complaints import one_line, sections_of
from tacit.config.run_file import RunFile, as_tree, load, parse, read

__all__ = ["RunFile", "as_tree", "load", "one_line", "parse", "read", "sections_of"]
