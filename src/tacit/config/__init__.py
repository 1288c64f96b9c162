"""The run definition: a TOML file becomes frozen values, and every default stands here once."""

from tacit.config.run_file import RunFile, load, one_line, parse, sections_of

__all__ = ["RunFile", "load", "one_line", "parse", "sections_of"]
