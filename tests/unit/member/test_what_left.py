"""What has left, as an owner reads it: every line once, and none that is cut."""

from __future__ import annotations

from pathlib import Path

from tacit_services.member.what_left import LEFT, LeftMessages
from tacit_services.worker.departures import Departures


def test_each_message_is_counted_once_however_often_it_is_asked(tmp_path: Path) -> None:
    times = iter((10.0, 11.0, 12.0))
    departures = Departures(tmp_path / LEFT, lambda: next(times))
    messages = LeftMessages(tmp_path)
    assert messages.document() == {"totals": {}, "latest": []}
    departures.note("presence", 6)
    departures.note("messages", 300)
    assert messages.document() == messages.document()
    departures.note("messages", 500)
    document = messages.document()
    expected = {"messages": 2, "bytes": 800, "first": 11.0, "last": 12.0}
    assert document["totals"]["messages"] == expected
    assert [each["bytes"] for each in document["latest"]] == [6, 300, 500]


def test_a_line_that_is_cut_counts_when_it_is_whole_and_noise_never(tmp_path: Path) -> None:
    path = tmp_path / LEFT
    line = b'{"at": 1.0, "what": "messages", "bytes": 7}\n'
    path.write_bytes(b"noise\n\xff\n" + line[:20])
    messages = LeftMessages(tmp_path)
    assert messages.document()["totals"] == {}
    path.write_bytes(b"noise\n\xff\n" + line)
    assert messages.document()["totals"]["messages"]["bytes"] == 7


def test_a_full_disk_ends_no_worker(tmp_path: Path) -> None:
    Departures(tmp_path / "nowhere" / LEFT).note("messages", 1)
    Departures(None).note("messages", 1)


def test_every_message_is_told_by_its_number_though_the_latest_alone_are_kept(
    tmp_path: Path,
) -> None:
    departures = Departures(tmp_path / LEFT, lambda: 1.0)
    for size in range(1, 251):
        departures.note("messages", size)
    with (tmp_path / LEFT).open("ab") as file:
        file.write(b"noise\n")
    messages = LeftMessages(tmp_path)
    parts = [messages.document()["latest"]]
    while parts[-1][0]["number"] > 1:
        parts.append(messages.earlier(parts[-1][0]["number"]))
    sizes = [each["bytes"] for part in reversed(parts) for each in part]
    numbers = [each["number"] for part in reversed(parts) for each in part]
    assert numbers == sizes == list(range(1, 251))
    assert messages.earlier(1) == []
