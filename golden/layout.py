"""The names of the tree that this process works in. For checkers the newest layout;

inside/__main__.py puts its own.
"""

from golden.adapters.second import *  # noqa: F403
