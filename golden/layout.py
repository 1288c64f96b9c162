"""The names of the tree that this process works in.

For checkers it is the newest layout; inside/__main__.py puts its own.
"""

from golden.adapters.fifth import *  # noqa: F403
