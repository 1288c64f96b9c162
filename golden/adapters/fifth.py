"""The layout since the laboratory, and with it the figures, is a package of its own."""

from golden.adapters.fourth import *  # noqa: F403
