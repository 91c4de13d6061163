"""A right-hand side that stays in Python, called by compiled code without a detour.

The kernels call ``fun(t, y, out, parameters)`` through a pointer. Here is such a function whose parameters are
addresses of Python objects: it asks the interpreter to call one of them, and reads the array that comes back where it
lies. A function written in Python that copies, checks and assigns would take as long as many a right-hand side does.

Everything goes through CPython's own functions, but for five fields of an array, whose places NumPy's binary interface
fixes; :func:`reads_arrays` tries them out once, and where they are not found :class:`CallBack` does the work.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from hpfracc.solvers.ode._problem import check_value
from hpfracc.solvers.ode.compiled import kernels

__all__ = ["PythonCall", "reads_arrays"]

Array = np.ndarray[Any, Any]

_FIELDS = 13
(
    _FUNCTION,  # object to be called
    _ARGUMENTS,  # address of its arguments, the first two of which are written here
    _COUNT,  # how many they are
    _COPY,  # object that makes a copy of the point
    _MEND,  # object that takes whatever else the function returned
    _TYPE,  # address of numpy.ndarray
    _DTYPE,  # address of the expected dtype
    _AXES,  # of the state
    _SHAPE,  # address of its shape
    _WORDS,  # of 8 bytes in the state
    _FLAG,  # address of what tells the kernel to end
    _ERROR,  # address of three words for an exception
    _HEAD,  # bytes before the fields of an object
) = range(_FIELDS)

#: NumPy's flags of an array that lies in one piece, in C's order, and is aligned.
_PLAIN = 0x0101

_word = types.intp
_call = types.ExternalFunction("PyObject_Vectorcall", _word(_word, _word, _word, _word))
_call_plain = types.ExternalFunction("PyObject_CallNoArgs", _word(_word))
_call_one = types.ExternalFunction("PyObject_CallOneArg", _word(_word, _word))
_number = types.ExternalFunction("PyFloat_FromDouble", _word(types.float64))
_release = types.ExternalFunction("Py_DecRef", types.void(_word))
_fetch = types.ExternalFunction("PyErr_Fetch", types.void(_word, _word, _word))


@intrinsic
def _load(typing: Any, address: Any) -> Any:
    """The word at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = context.get_value_type(_word)
        return builder.load(builder.inttoptr(arguments[0], word.as_pointer()), align=8)

    return _word(_word), generate


@intrinsic
def _store(typing: Any, address: Any, value: Any) -> Any:
    """Write a word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = context.get_value_type(_word)
        builder.store(arguments[1], builder.inttoptr(arguments[0], word.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(_word, _word), generate


@intrinsic
def _address(typing: Any, pointer: Any) -> Any:
    """Where a pointer points to."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ptrtoint(arguments[0], context.get_value_type(_word))

    return _word(pointer), generate


@numba.njit(cache=True)
def _failed(cells: int) -> None:
    """Take the exception from the interpreter, and tell the kernel."""
    error = _load(cells + 8 * _ERROR)
    _fetch(error, error + 8, error + 16)
    _store(_load(cells + 8 * _FLAG), 1)


@numba.njit(cache=True)
def _is_plain(value: int, cells: int) -> bool:
    """Whether this is an array of the expected shape and dtype, in one piece."""
    head = _load(cells + 8 * _HEAD)
    if _load(value + head - 8) != _load(cells + 8 * _TYPE):
        return False
    if _load(value + head + 40) != _load(cells + 8 * _DTYPE) or _load(value + head + 48) & _PLAIN != _PLAIN:
        return False
    axes = _load(cells + 8 * _AXES)
    if _load(value + head + 8) & 0xFFFFFFFF != axes:
        return False
    shape, expected = _load(value + head + 16), _load(cells + 8 * _SHAPE)
    for axis in range(axes):  # noqa: SIM110 - compiled
        if _load(shape + 8 * axis) != _load(expected + 8 * axis):
            return False
    return True


@numba.njit(cache=True)
def _evaluate(t: float, out: int, cells: int) -> None:
    arguments = _load(cells + 8 * _ARGUMENTS)
    time = _number(t)
    if time == 0:
        _failed(cells)
        return
    point = _call_plain(_load(cells + 8 * _COPY))  # the function may keep or change what it is given
    if point == 0:
        _release(time)
        _failed(cells)
        return
    _store(arguments, time)
    _store(arguments + 8, point)
    value = _call(_load(cells + 8 * _FUNCTION), arguments, _load(cells + 8 * _COUNT), 0)
    _release(time)
    if value != 0:
        if _is_plain(value, cells):
            data = _load(value + _load(cells + 8 * _HEAD))
            for word in range(_load(cells + 8 * _WORDS)):
                _store(out + 8 * word, _load(data + 8 * word))
        else:
            mended = _call_one(_load(cells + 8 * _MEND), value)
            if mended != 0:
                _release(mended)
            else:
                _failed(cells)
        _release(value)
    else:
        _failed(cells)
    _release(point)


def _enter(t: float, y: Any, out: Any, parameters: Any) -> None:
    _evaluate(t, _address(out), _address(parameters))


@functools.cache
def _pointer(complex_state: bool) -> Any:
    """The function for the kernels."""
    number = types.CPointer(types.complex128 if complex_state else types.float64)
    return numba.cfunc(types.void(types.float64, number, number, types.CPointer(types.float64)), cache=True)(_enter)


class PythonCall:
    """``fun(t, y, *args)`` for the kernels.

    Parameters
    ----------
    fun, args
        What is called.
    point : array
        The state as the function is to see it, which the kernel writes.
    value : array
        Where the kernel looks for what the function returned; both in one piece, of the shape of the state.
    flag : array of one integer
        Set to 1 where the function raised; see :meth:`check`.

    Attributes
    ----------
    pointer, parameters
        For the kernels.
    """

    def __init__(self, fun: Callable[..., Any], args: tuple[Any, ...], point: Array, value: Array, flag: Array) -> None:
        shape, dtype = value.shape, value.dtype

        def mend(given: Any) -> None:
            value[...] = check_value(given, shape, dtype, "fun")

        # Addresses are good for as long as this object lives, which holds what they belong to.
        self._held = (fun, args, point.copy, mend, dtype, value, flag)
        self._arguments = np.array([0, 0, *map(id, args)], np.int64)
        self._shape = np.array(shape, np.int64)
        self._error = np.zeros(3, np.int64)
        cells = np.zeros(_FIELDS, np.int64)
        cells[_FUNCTION], cells[_COPY], cells[_MEND] = id(fun), id(self._held[2]), id(mend)
        cells[_ARGUMENTS], cells[_COUNT] = self._arguments.ctypes.data, len(self._arguments)
        cells[_TYPE], cells[_DTYPE] = id(np.ndarray), id(dtype)
        cells[_AXES], cells[_SHAPE], cells[_WORDS] = len(shape), self._shape.ctypes.data, value.nbytes // 8
        cells[_FLAG], cells[_ERROR] = flag.ctypes.data, self._error.ctypes.data
        cells[_HEAD] = object.__basicsize__
        self.parameters = cells.view(np.float64)
        self.pointer = _pointer(dtype.kind == "c")

    def check(self) -> None:
        """Raise what the function raised."""
        if self._error[0]:
            kind, error, trace = (int(each) or None for each in self._error)
            self._error[:] = 0
            ctypes.pythonapi.PyErr_Restore(ctypes.c_void_p(kind), ctypes.c_void_p(error), ctypes.c_void_p(trace))


@functools.cache
def reads_arrays() -> bool:
    """Whether arrays lie in memory as they are read here: tried with some that are right and some that are not."""
    if ctypes.sizeof(ctypes.c_void_p) != 8 or sys.byteorder != "little":
        return False
    point = np.arange(6.0).reshape(2, 3)
    out = np.zeros((2, 3))
    call = PythonCall(lambda t, y: y + t, (), point, out, np.zeros(1, np.int64))
    cells = call.parameters.view(np.int64).ctypes.data
    strange = (point.T, point.reshape(6), point.astype(np.float32), point + 0.0j, point[:, ::-1], point.view(_Subclass))
    if not _is_plain(id(point), cells) or any(_is_plain(id(each), cells) for each in (*strange, [0.0], 1.0)):
        return False
    kernels.call(call.pointer, 1.0, point.reshape(-1), out.reshape(-1), call.parameters)
    return bool(np.array_equal(out, point + 1.0))


class _Subclass(np.ndarray[Any, Any]):
    """Not quite an array: its operations may do anything."""
