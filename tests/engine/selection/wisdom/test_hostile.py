"""Whatever lies in a wisdom folder, calls go on and the commands answer or refuse in words."""

from __future__ import annotations

import ctypes
import json
import os
import random
import socket
import subprocess
import sys
import warnings

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.cli import main
from hpfracc.engine.backends import registry
from hpfracc.engine.execution import state
from hpfracc.engine.selection import wisdom_records as files
from hpfracc.engine.selection.wisdom import Wisdom, WisdomLayout, reset_warnings
from hpfracc.engine.selection.wisdom_records import JOURNAL_HEAD
from hpfracc.errors import WisdomWarning
from tests.helpers.measured import ids, sample, samples
from tests.helpers.processes import start_python


@pytest.fixture
def place(tmp_path):
    """The folder that calls and commands of this test use."""
    folder = tmp_path / "wisdom"  # as tests/conftest.py sets it
    folder.mkdir()
    reset_warnings()
    return folder


def call():
    """An ordinary call of a user, decided again with what is known."""
    state.reset()
    with hf.config(never={"causal_convolution": ["torch", "jax", "cupy"]}):
        assert hf.causal_convolution(np.ones(8), np.ones(8))[-1] == pytest.approx(8.0)
        hf.explain("causal_convolution", shape=(8,))


def facts(rng=None, **changes):
    """A record of an arm of this machine, as plain data."""
    arms = [arm for arm in registry.arms("causal_convolution") if arm.backend in ("numpy", "numba")]
    arm = arms[0] if rng is None else rng.choice(arms)
    fingerprint = registry.fingerprint("causal_convolution", arm)
    record = sample(operation="causal_convolution", arm=arm.name, fingerprint=fingerprint, bucket=(0, 3), x=8.0)
    return record.to_dict() | changes


def journal(folder, *lines):
    path = WisdomLayout(folder).new_journal()
    path.write_bytes(JOURNAL_HEAD + b"".join(line + b"\n" for line in lines))
    return path


def dump(value):
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    "lines",
    [
        [b'{"a":' * depth + b"1" + b"}" * depth for depth in range(900, 1000)],
        [b"[" * 30_000 + b"]" * 30_000],
        [
            dump(sample(id="x").to_dict() | {"x": 7.5}).replace(b"7.5", b"[" * depth + b"]" * depth)
            for depth in range(700, 1000)
        ],
        [dump({"kind": "later", "deep": None}).replace(b"null", b"[" * 500 + b"]" * 500)],
        [b'["]",' * 5000],
        [b"x" * (1 << 20), b"\xff\xfe", b"\x00" * 100],
    ],
    ids=["objects", "lists", "a field", "a later kind", "brackets in strings", "no JSON"],
)
def test_deep_and_long_lines_are_set_aside(place, lines):
    """Neither reading nor complaining about a line takes stack for its depth; the good line beside it counts."""
    good = sample()
    path = journal(place, *lines, good.to_line().encode())
    with pytest.warns(WisdomWarning, match="set aside") as caught:
        call()
    assert len(caught) == 1
    assert len(str(caught[0].message)) < 1000
    assert not path.exists()
    assert ids(Wisdom(place).load()) >= {good.id}


@pytest.mark.parametrize("field", ["seconds", "x", "time", "bucket", "nbytes"])
def test_numbers_out_of_range_reach_no_estimate(place, field):
    """1e308 seconds, whole numbers that no float holds: the lines are set aside, and the call goes on."""
    huge = (1e308, 10**400, -1, float("nan"))
    values = [[0, value] if field == "bucket" else value for value in huge * 10]
    journal(place, *(dump(facts(**{field: value})) for value in values))
    with pytest.warns(WisdomWarning, match="40 of its entries are not records"):
        call()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
@pytest.mark.parametrize("kind", ["merged", "generation", "journal"])
@pytest.mark.parametrize("thing", ["fifo", "folder", "socket", "link to a fifo", "endless"])
def test_only_plain_files_are_opened(place, kind, thing, monkeypatch):
    """What is no plain file, or far too large, is put aside unopened with a warning; wisdom is kept all the same."""
    layout = WisdomLayout(place)
    path = {"merged": layout.merged, "generation": layout.new_generation(), "journal": layout.new_journal()}[kind]
    if thing == "fifo":
        os.mkfifo(path)
    elif thing == "folder":
        path.mkdir()
    elif thing == "socket":
        monkeypatch.chdir(path.parent)  # a socket's path must be short
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    elif thing == "link to a fifo":
        os.mkfifo(place / "pipe")
        path.symlink_to(place / "pipe")
    else:
        path.touch()
        os.truncate(path, files.MAX_BYTES + 1)
    with pytest.warns(WisdomWarning, match="set aside") as caught:
        call()
    assert len(caught) == 1
    assert kind == "merged" or not os.path.lexists(path)
    wisdom = Wisdom(place)
    wisdom.append(samples(2))
    assert wisdom.merge() >= 2
    assert layout.merged.is_file()
    assert not layout.merged.is_symlink()


# Folders that cannot be read or written. The tests often run as root, to whom every folder is open: a child gives that
# up (CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH leave the bounding set before it starts Python).

_PR_CAPBSET_DROP, _OVERRIDES = 24, (1, 2)


def bound_by_permissions():
    libc = ctypes.CDLL(None)
    for capability in _OVERRIDES if os.geteuid() == 0 else ():
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def run_bound(code, folder, *arguments):
    """What the code prints, stderr too, run by a process to which the folder's permissions apply."""
    environment = {"HPFRACC_WISDOM": str(folder), "HPFRACC_DISABLE_JAX": "1", "HPFRACC_DISABLE_TORCH": "1"}
    code = f"import os, sys\nif os.access({str(folder)!r}, os.W_OK): sys.exit(77)\n{code}"
    with start_python(
        code, *arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        preexec_fn=bound_by_permissions,
    ) as process:  # fmt: skip
        out = process.communicate(timeout=500)[0]
    if process.returncode == 77:
        pytest.skip("permissions do not apply to this user")
    assert process.returncode == 0, out
    return out


@pytest.mark.skipif(sys.platform != "linux", reason="gives up root's rights the way of Linux")
def test_an_unreadable_folder(tmp_path):
    """A call warns once and goes on, nothing is said at exit, and the commands answer or refuse in a line."""
    folder = tmp_path / "w"
    folder.mkdir(mode=0o700)
    Wisdom(folder).append(samples(1))
    folder.chmod(0o000)
    out = run_bound(
        """
import warnings
import numpy as np
import hpfracc as hf
from hpfracc.cli import main
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(300):
        hf.causal_convolution(np.ones(8), np.ones(8))
print("warned", len([w for w in caught if "wisdom" in str(w.message)]))
for command in (["info"], ["wisdom", "show"], ["wisdom", "clear", "--yes"], ["wisdom", "export", sys.argv[1]]):
    print("status", main([*command, "--json"]))
""",
        folder,
        tmp_path / "out.json",
    )
    assert "Traceback" not in out
    assert "warned 1" in out or "warned 2" in out  # that it cannot be read, and that it cannot be written
    assert [line for line in out.splitlines() if line.startswith("status")] == [f"status {n}" for n in (0, 0, 2, 2)]
    assert '"state": "unreadable"' in out


# A fuzz test: folders full of anything.

_VALUES = (
    None, True, 0, -1, 3, 10**30, 10**400, 0.0, -0.0, 5e-324, 1e-300, 1e8, 1e36, 1e308, -1e308, float("nan"),
    float("inf"), "", "x", "x" * 300,
    "\x1b[31mred\x07", "[/red]", ":bug:", "\ud800", "\u202e", "two\nlines", "numpy:direct@cpu", [], [1],
    [0, 3], [0, 10**30], {}, {"a": [{}]},
)  # fmt: skip
_FIELDS = ("kind", "operation", "arm", "fingerprint", "start", "dtype", "seconds", "bucket", "x", "nbytes", "route",
           "time", "id", "later")  # fmt: skip
_KINDS = ("knot", "sample", "compile", "transfer", "energy")


def entry(rng):
    """A record with some of its fields replaced, missing or added."""
    found = facts(rng, kind=rng.choice(_KINDS), id=f"{rng.random()}", nbytes=rng.choice((0, 1, 10**6, 2**62)))
    found |= {"route": rng.choice(("host->cuda:0", "cuda:0->host", "", "->")), "seconds": 10 ** rng.uniform(-12, 8)}
    for _ in range(rng.choice((0, 0, 1, 1, 2, 5))):
        name = rng.choice(_FIELDS)
        if rng.random() < 0.2:
            found.pop(name, None)
        else:
            found[name] = rng.choice(_VALUES)
    return found


def mangled(rng, data):
    """The bytes, cut or changed here and there."""
    found = bytearray(data)
    for _ in range(rng.choice((0, 0, 0, 1, 3, 20))):
        if found:
            found[rng.randrange(len(found))] = rng.randrange(256)
    return bytes(found[: rng.randrange(len(found) + 1)] if rng.random() < 0.2 else found)


def line(rng):
    choice = rng.random()
    if choice < 0.7:
        return dump(entry(rng))
    if choice < 0.8:
        depth = rng.choice((3, 31, 33, 500, 985, 5000))
        opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'["]",', b"]")))
        return opening * depth + b"1" + closing * depth
    return rng.randbytes(rng.choice((0, 1, 50, 70_000))).replace(b"\n", b" ")


def litter(rng, folder):
    """Put a few hostile files of ours into the folder."""
    layout = WisdomLayout(folder)
    for _ in range(rng.randint(1, 4)):
        path = rng.choice((layout.merged, layout.new_generation(), layout.new_journal(), layout.new_journal()))
        if os.path.lexists(path):
            continue
        kind = rng.random()
        if kind < 0.05:
            os.mkfifo(path)
        elif kind < 0.1:
            path.symlink_to(rng.choice((path, folder / "nowhere", folder, "/dev/zero", "/dev/null")))
        elif path.suffix == ".jsonl":
            path.write_bytes(mangled(rng, JOURNAL_HEAD + b"".join(line(rng) + b"\n" for _ in range(8))))
        else:
            head = {"hpfracc": "wisdom", "schema": rng.choice((1, 1, 1, 1, 2, None, "1", 10**400))}
            body = head | {"records": [entry(rng) for _ in range(8)]}
            own = b'{"hpfracc":"wisdom","schema":1,"records":[\n' + b",\n".join(line(rng) for _ in range(8)) + b"\n]}\n"
            path.write_bytes(mangled(rng, rng.choice((dump(body), own))))


def attack(seed, tmp_path, capsys):
    """One folder; every command of wisdom and an ordinary call. Raises where any of them does."""
    rng = random.Random(seed)
    place, export = tmp_path / "wisdom", tmp_path / f"export{seed}.json"
    if place.exists():
        for path in place.iterdir():
            path.unlink()
    place.mkdir(exist_ok=True)
    litter(rng, place)
    commands = [["wisdom", "show"], ["wisdom", "export", str(export)], ["wisdom", "import", str(export)]]
    commands += [["wisdom", "import", str(path)] for path in sorted(place.iterdir())[:2]]
    commands += [["info"]] * (seed % 10 == 0)
    if rng.random() < 0.5:
        call()
    for command in commands:
        state.reset()
        assert main(command) in (0, 2), command
    call()
    out, err = capsys.readouterr()
    shown = (out + err).replace("\n", "")
    assert shown.isprintable(), [character for character in shown if not character.isprintable()]
    assert "Traceback" not in shown


def campaign(seeds, tmp_path, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WisdomWarning)
        warnings.filterwarnings("error", ".*please report.*")  # nothing of this may come as a surprise
        for seed in seeds:
            reset_warnings()
            try:
                attack(seed, tmp_path, capsys)
            except Exception as error:
                raise AssertionError(f"seed {seed}") from error


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_no_folder_breaks_a_call_or_a_command(tmp_path, capsys):
    """No exception reaches a call or a command, and nothing but printable text a terminal."""
    campaign(range(20), tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_no_folder_breaks_a_call_or_a_command_at_length(tmp_path, capsys):
    """The same, 3,000 folders."""
    campaign(range(1000, 4000), tmp_path, capsys)
