"""The run definition: a TOML file becomes frozen values, and every default stands here once."""

from tacit.config.complaints import one_line, sections_of
from tacit.config.run_file import RunFile, load, parse

__all__ = ["RunFile", "load", "one_line", "parse", "sections_of"]
