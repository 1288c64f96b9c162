"""One lock out of a resolution for each group."""

from __future__ import annotations

import pytest

from tools import lock

A = "a==1 \\\n    --hash=sha256:aa\n    # via tacit\n"
B = "b==2 ; sys_platform != 'x' \\\n    --hash=sha256:bb\n"
C = "c==3 \\\n    --hash=sha256:cc\n    # via\n    #   a\n"
TOP, END = "# By uv.\n", "# torch\n"


def test_a_group_is_all_up_to_its_end_and_each_entry_stands_once() -> None:
    small, large = TOP + B + END, TOP + A + B + C + END
    merged = lock.merged({"small": small, "large": large})
    assert merged == f"{lock.HEAD}{B}# end of small\n{A}{C}# end of large\n"


def test_an_entry_is_as_the_largest_group_has_it() -> None:
    merged = lock.merged({"small": TOP + "b==2 \\\n    --hash=sha256:bb\n", "large": TOP + B})
    assert merged == f"{lock.HEAD}{B}# end of small\n# end of large\n"


@pytest.mark.parametrize("large", [A + C, A + B.replace("2", "4")])
def test_groups_that_do_not_contain_each_other_are_refused(large: str) -> None:
    with pytest.raises(lock.DisagreementError, match="b==2: is not in every larger group"):
        lock.merged({"small": TOP + B, "large": TOP + large})
