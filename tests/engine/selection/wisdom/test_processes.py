"""Real processes at once: sixteen writers, mergers between them, and ``kill -9`` without warning."""

from __future__ import annotations

import random
import subprocess
import time

import pytest

from hpfracc.engine.selection import wisdom as wisdom_module
from hpfracc.engine.selection.wisdom import Wisdom, WisdomLayout, list_files
from hpfracc.engine.selection.wisdom_records import Record
from hpfracc.engine.selection.wisdom_sharing import summarize
from tests.helpers.processes import start_python

#: Writes until it has written what it was told to, or is killed; every id is printed once flush() acknowledged it.
WRITER = """
import sys
from pathlib import Path
from hpfracc.engine.selection.wisdom_records import Record
from hpfracc.engine.selection.wisdom import Wisdom
folder, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
wisdom = Wisdom(folder)
for step in range(count):
    records = [
        Record(kind="sample", operation="fft" * (1 + step % 20), arm=f"{name}:x@cpu", fingerprint="f", start="host",
               dtype="float64", bucket=(part, step // 16), x=1.0, seconds=1.0)
        for part in range(2)
    ]
    wisdom.append(records)
    assert wisdom.flush()
    print(*(record.id for record in records), flush=True)
    if step % 50 == 49:
        wisdom.merge()
"""

MERGER = """
import sys
from pathlib import Path
from hpfracc.engine.selection.wisdom import Wisdom
while True:
    Wisdom(Path(sys.argv[1])).merge()
"""


def acknowledged(process: subprocess.Popen[str]) -> set[str]:
    """Every id that a writer printed with its line's end: flush() had returned for those."""
    assert process.stdout is not None
    text = process.stdout.read()
    return set(text[: text.rfind("\n") + 1].split())


def found(folder):
    return {record.id for record in Wisdom(folder).load()}


@pytest.mark.parametrize("attempt", range(4))
def test_killed_while_writing(tmp_path, attempt):
    """Whatever flush() acknowledged before ``kill -9`` is there afterwards, and the rest of the file can be read."""
    with start_python(WRITER, tmp_path, "numpy", 10**6, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        begun = [writer.stdout.readline() for _ in range(5)]
        time.sleep(0.05 * attempt)
        writer.kill()
        known = set("".join(begun).split()) | acknowledged(writer)
    assert len(known) >= 10
    everything = found(tmp_path)
    assert known <= everything
    assert summarize(Wisdom(tmp_path))["skipped"] == 0
    assert Wisdom(tmp_path).merge() == len(everything)
    assert found(tmp_path) == everything
    assert {kind for _, kind in list_files(WisdomLayout(tmp_path))} <= {"generation", "merged", "leftover"}


def test_journals_that_are_taken_at_once(tmp_path, monkeypatch):
    """A merge may take a new journal before its first lines are in it, several times in a row: nothing is lost."""
    append, calls = wisdom_module.append_to_journal, []

    def taken(path, lines):
        calls.append(path)
        if len(calls) > 3:
            return append(path, lines)
        raise FileNotFoundError(path)

    monkeypatch.setattr(wisdom_module, "append_to_journal", taken)
    one = Record(
        kind="sample", operation="fft", arm="numpy:x@cpu", fingerprint="f", start="host", dtype="float64",
        bucket=(1, 1), x=1.0, seconds=1.0,
    )  # fmt: skip
    wisdom = Wisdom(tmp_path)
    wisdom.append([one])
    assert wisdom.flush()
    assert len(calls) == len(set(calls)) == 4
    assert found(tmp_path) == {one.id}


def test_sixteen_writers_and_three_mergers(tmp_path):
    """Sixteen processes write 80 records each while three merge without end; some of each are killed."""
    chance = random.Random(7)
    steps = 40
    mergers = [start_python(MERGER, tmp_path) for _ in range(3)]
    writers = [start_python(WRITER, tmp_path, f"w{number}", steps, stdout=subprocess.PIPE) for number in range(16)]
    try:
        for victim in writers[:4]:
            assert victim.stdout is not None
            victim.stdout.readline()  # it has begun
        for victim in writers[:4]:
            time.sleep(0.05 * chance.random())
            victim.kill()
        for number in range(3):
            time.sleep(0.3 * chance.random())
            mergers[number].kill()
            mergers[number].wait()
            mergers[number] = start_python(MERGER, tmp_path)
        known = [acknowledged(writer) for writer in writers]
        codes = [writer.wait() for writer in writers]
    finally:
        for process in (*mergers, *writers):
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
    assert codes[4:] == [0] * 12
    assert [len(each) for each in known[4:]] == [2 * steps] * 12
    everything = found(tmp_path)
    assert set().union(*known) <= everything
    assert Wisdom(tmp_path).merge() == len(everything)
    assert found(tmp_path) == everything
    assert {kind for _, kind in list_files(WisdomLayout(tmp_path))} <= {"generation", "merged", "leftover"}
