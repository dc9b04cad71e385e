"""Find the variable or attribute to which a call's result is assigned, from the bytecode of the calling code.

At module and class level these are variables, in a function local variables and attributes as well.

A few instructions of CPython 3.10 to 3.13 are supported. At any other instruction the search ends
without a result.
"""

from __future__ import annotations

import dis
import inspect
import sys
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple


class Target(NamedTuple):
    name: str
    is_global: bool


def target_of_call(code: CodeType, offset: int) -> Target | None:
    """Return the name that the result of the call at ``offset`` is stored under.

    Return None if there is none, or if the instruction at ``offset`` is not a call.
    """
    instructions = list(dis.get_instructions(code))
    index = max(i for i, instruction in enumerate(instructions) if instruction.offset <= offset)
    if instructions[index].opname not in (*CALLS, "CALL_FUNCTION_EX"):
        return None
    followed = _StackTracker(bool(code.co_flags & inspect.CO_OPTIMIZED))
    after = {instruction.offset: i for i, instruction in enumerate(instructions)}
    while followed.alive and index + 1 < len(instructions):
        index += 1
        if instructions[index].opname == "JUMP_FORWARD":
            index = after[instructions[index].argval] - 1
        else:
            followed.step(instructions[index])
    return followed.target


#: The same for code that runs often. It keeps code alive.
cached_target_of_call = lru_cache(target_of_call)

TRACKED_VALUE = object()
NO_STACK_EFFECT = frozenset(("NOP", "RESUME", "CACHE", "EXTENDED_ARG", "PRECALL", "KW_NAMES", "SETUP_ANNOTATIONS"))
LOADS = frozenset(("LOAD_NAME", "LOAD_GLOBAL", "LOAD_CONST", "LOAD_BUILD_CLASS", "PUSH_NULL"))
POPS = {"STORE_ATTR": 2, "STORE_SUBSCR": 3, "POP_TOP": 1, "STORE_NAME": 1, "STORE_GLOBAL": 1}
# Stack entries that a call takes, apart from its arguments.
CALLS = {"CALL": 2, "CALL_KW": 3, "CALL_FUNCTION": 1, "CALL_FUNCTION_KW": 2, "CALL_METHOD": 2}
# What an instruction does with each of its local variables.
LOCALS = {
    **dict.fromkeys(("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_CLOSURE"), ("load",)),
    **dict.fromkeys(("STORE_FAST", "STORE_DEREF"), ("store",)),
    "LOAD_FAST_LOAD_FAST": ("load", "load"),
    "STORE_FAST_LOAD_FAST": ("store", "load"),
    "STORE_FAST_STORE_FAST": ("store", "store"),
}
# From this Python version on, an odd argument pushes a second entry, for a call.
PAIRS = {"LOAD_GLOBAL": (3, 11), "LOAD_ATTR": (3, 12)}


class _StackTracker:
    """A simulated value stack that tracks one object until it is stored or consumed.

    An entry is TRACKED_VALUE, None for any other value, or a tuple of entries. An unsupported
    instruction ends the tracking.
    """

    def __init__(self, in_function: bool) -> None:
        self.in_function = in_function
        self.stack: list[Any] = [TRACKED_VALUE]
        self.target: Target | None = None
        self.alive = True

    def step(self, instruction: dis.Instruction) -> None:
        name, arg = instruction.opname, instruction.arg or 0
        if name in ("STORE_NAME", "STORE_GLOBAL") and self._top() is TRACKED_VALUE:
            self.target = Target(instruction.argval, name == "STORE_GLOBAL")
        if name == "STORE_ATTR" and self.in_function and self._peek(2) is TRACKED_VALUE:
            self.target = Target(instruction.argval, False)
        if name in POPS:
            self._take(POPS[name])
        elif name in LOADS:
            self._push(*[None] * _pushed(instruction))
        elif name in ("LOAD_ATTR", "LOAD_METHOD", "BINARY_SUBSCR"):
            self._use(2 if name == "BINARY_SUBSCR" else 1, _pushed(instruction))
        elif name in CALLS:
            self._use(CALLS[name] + arg, 1)
        elif not self.in_function or not self._step_in_function(instruction):
            self._shuffle(name, arg)
        self.alive = self.alive and any(_holds(entry) for entry in self.stack)

    def _step_in_function(self, instruction: dis.Instruction) -> bool:
        """Simulate an instruction on local variables. Return False if it is another one."""
        actions = LOCALS.get(instruction.opname)
        if actions is None:
            return False
        names = instruction.argval if len(actions) > 1 else (instruction.argval,)
        for action, name in zip(actions, names, strict=True):
            if action == "load":
                self._push(None)
            elif self._take(1)[0] is TRACKED_VALUE:
                self.target = Target(name, False)
        return True

    def _shuffle(self, name: str, arg: int) -> None:
        """Simulate an instruction that only rearranges entries."""
        if name in ("DUP_TOP", "COPY"):
            self._push(self._peek(arg or 1))
        elif name in ("SWAP", "ROT_TWO", "ROT_THREE"):
            self._move(name, arg or 2)
        elif name == "BUILD_TUPLE":
            self._push(tuple(reversed(self._take(arg))))
        elif name == "UNPACK_SEQUENCE":
            packed = self._take(1)[0]
            self._push(*reversed(packed if isinstance(packed, tuple) else [None] * arg))
        elif name not in NO_STACK_EFFECT:
            self.alive = False

    def _move(self, name: str, depth: int) -> None:
        """Simulate SWAP, which exchanges the top with the entry at ``depth``, or a ROT."""
        self._peek(3 if name == "ROT_THREE" else depth)
        if name == "ROT_THREE":
            self.stack.insert(-2, self.stack.pop())
        else:
            self.stack[-1], self.stack[-depth] = self.stack[-depth], self.stack[-1]

    def _push(self, *entries: Any) -> None:
        self.stack.extend(entries)

    def _top(self) -> Any:
        return self._peek(1)

    def _peek(self, depth: int) -> Any:
        """Return the entry at ``depth`` (1 is the top). Entries below the known ones are None."""
        self.stack[:0] = [None] * (depth - len(self.stack))
        return self.stack[-depth]

    def _take(self, count: int) -> list[Any]:
        """Pop ``count`` entries, the top first."""
        self._peek(count)
        return [self.stack.pop() for _ in range(count)]

    def _use(self, count: int, results: int) -> None:
        """Replace ``count`` entries by results. A tracked object among them is lost."""
        self._take(count)
        self._push(*[None] * results)


def _pushed(instruction: dis.Instruction) -> int:
    """Return how many entries a load pushes; a load for a call may push two."""
    name, arg = instruction.opname, instruction.arg or 0
    if name == "LOAD_METHOD":
        return 2
    return 1 + (arg & 1 if name in PAIRS and sys.version_info >= PAIRS[name] else 0)


def _holds(entry: Any) -> bool:
    return any(_holds(part) for part in entry) if isinstance(entry, tuple) else entry is TRACKED_VALUE
