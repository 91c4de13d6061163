"""Files of results that nobody wrote by ``save()``: none blocks, takes memory, or ends with a raw error."""

from __future__ import annotations

import copy
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import control
from hpfracc.errors import InvalidInputError

T = np.linspace(0.0, 2.0, 9)
S = control.s


def entry(array: np.ndarray, claims: tuple[int, ...] | None = None) -> bytes:
    """An array as NumPy writes it, or one that claims another shape."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"shape": claims or array.shape, "fortran_order": False, "descr": array.dtype.str}
    )
    return file.getvalue() + array.tobytes()


def archive(header: Any, path: Path, compression: int = zipfile.ZIP_STORED, **arrays: bytes) -> Path:
    """A file with this header, and these entries."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("header.npy", entry(np.frombuffer(text, np.uint8)))
        for name, content in arrays.items():
            file.writestr(f"{name}.npy", content)
    return path


FIELDS: dict[str, Any] = {
    "t": {"array": "array_0"}, "y": {"array": "array_0"}, "success": True, "message": "", "nfev": 3,
}  # fmt: skip
#: Fields of a solution with one that is wrong.
WRONG_FIELDS: dict[str, Any] = {
    "none": None,
    "no dict": [1, 2],
    "missing": {name: FIELDS[name] for name in ("t", "y", "success")},
    "unknown": {**FIELDS, "more": 1},
    "text for an array": {**FIELDS, "t": "0, 1"},
    "number for text": {**FIELDS, "message": 3},
    "list for a dict": {**FIELDS, "stats": {"list": [1]}},
    "unknown array": {**FIELDS, "t": {"array": "array_7"}},
    "unhashable array": {**FIELDS, "t": {"array": [1]}},
    "unknown part": {**FIELDS, "decision": {"part": "Popen", "fields": {}}},
    "incomplete part": {**FIELDS, "decision": {"part": "SolveDecision", "fields": {}}},
    "unhashable key": {**FIELDS, "stats": {"dict": [[{"list": []}, 1]]}},
    "no pair": {**FIELDS, "stats": {"dict": [1]}},
    "no shape": {**FIELDS, "y": {"objects": [1, 2], "shape": [3]}},
    "two words": {**FIELDS, "y": {"a": 1, "b": 2}},
    "no number": {**FIELDS, "error_estimate": {"float": "one"}},
}


@pytest.mark.parametrize("fields", WRONG_FIELDS.values(), ids=list(WRONG_FIELDS))
def test_a_damaged_header_is_refused(fields: Any, tmp_path: Path):
    """Fields that are missing, unknown or of another type."""
    right = archive({"format": 1, "kind": "FODEResult", "fields": FIELDS}, tmp_path / "b.npz", array_0=entry(T))
    np.testing.assert_array_equal(hf.FODEResult.load(right).t, T)
    path = archive({"format": 1, "kind": "FODEResult", "fields": fields}, tmp_path / "a.npz", array_0=entry(T))
    with pytest.raises(InvalidInputError, match="not the file of a result"):
        hf.FODEResult.load(path)


NESTED = b'{"format": 1, "kind": "FODEResult", "fields": {"t": ' + b'{"list": [' * 400 + b"]}" * 400 + b"}}"


@pytest.mark.parametrize(
    "header", [NESTED, b"[" * 100_000, b"[" * 900 + b"]" * 900, b"{}", b"3", b"\xff", b'{"format": NaN}']
)
def test_a_header_of_something_else_is_refused(header: bytes, tmp_path: Path):
    """Other JSON, deep JSON, and what is none."""
    with pytest.raises(InvalidInputError, match="not the file of a result"):
        hf.FODEResult.load(archive(header, tmp_path / "a.npz"))


def test_a_file_cannot_take_more_memory_than_it_has(tmp_path: Path):
    """Compressed and overlapping entries, and a claim of 8 TB, are refused before memory is taken."""
    header = {"format": 1, "kind": "FODEResult", "fields": FIELDS}
    zeros = np.zeros(1_000_000)
    for number, compression in enumerate((zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)):
        bomb = archive(header, tmp_path / f"{number}.npz", compression, array_0=entry(zeros))
        assert bomb.stat().st_size < 0.01 * zeros.nbytes
        with pytest.raises(InvalidInputError, match="compressed"):
            hf.FODEResult.load(bomb)
    path = archive(header, tmp_path / "claim.npz", array_0=entry(T, (10**12,)))
    with pytest.raises(InvalidInputError, match="does not hold"):
        hf.FODEResult.load(path)
    data = bytearray(archive(header, tmp_path / "encrypted.npz", array_0=entry(T)).read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(InvalidInputError, match="encrypted"):
        hf.FODEResult.load(path)
    with zipfile.ZipFile(tmp_path / "overlap.npz", "w") as file:
        file.writestr("header.npy", entry(zeros))
        for number in range(20):
            again = copy.copy(file.infolist()[0])
            again.filename = f"array_{number}.npy"
            file.filelist.append(again)
    with pytest.raises(InvalidInputError, match="overlap"):
        hf.FODEResult.load(tmp_path / "overlap.npz")


def test_a_fifo_does_not_block(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInputError, match="a FIFO"):
        hf.FODEResult.load(tmp_path / "pipe")


@pytest.mark.parametrize("wrong", [None, 3, b"bytes", []])
def test_a_path_is_one(wrong: Any):
    result = control.step_response(1 / (S + 1), T)
    for call in (lambda: result.save(wrong), lambda: control.Response.load(wrong)):
        with pytest.raises(InvalidInputError, match="is not a path|path of bytes"):
            call()


@pytest.mark.parametrize("name", ["a.csv", "a.nc", "a.parquet", "a.CSV"])
def test_a_name_of_another_format_is_refused(name: str, tmp_path: Path):
    """A file under that name would be of no use to what reads that format."""
    with pytest.raises(InvalidInputError, match=r"to_dataframe\(\)\.to_csv"):
        control.step_response(1 / (S + 1), T).save(tmp_path / name)
    assert not list(tmp_path.iterdir())
