"""Filters of objects, in the language of MongoDB's queries.

A filter is compiled to one function, which is called for each object. The function never raises:
values of different types do not match, and none is converted. A regular expression is searched for
in time that is linear in the length of the text.

A path such as `address.city` leads into nested objects. Where it meets an array, it goes on in each
object of the array, and a number is also the position of an item: `guests.0.name`. A condition
holds for an array if it holds for the array or for one of its items.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Final, TypeAlias, TypeGuard

from component.features.objects.stored import ObjectError
from component.skills.errors import DeclarationError
from component.skills.validation import TextPattern

Test: TypeAlias = Callable[[Any], bool]
"""Returns whether a value fits: the data of an object, or a part of it."""

MOST_CONDITIONS: Final = 100
MOST_VALUES: Final = 1_000
"""The maximum number of values of `$in` and `$nin`."""
MOST_DEPTH: Final = 20
"""The maximum number of operators that are inside each other."""
_LONGEST_PATH: Final = 500
_LONGEST_PATTERN: Final = 500
_SHOWN: Final = 80


class _OperandError(Exception):
    """An operator cannot use its value. The message continues a sentence after the operator."""


class _Missing:
    """Stands for a member that an object does not have."""


MISSING: Final = _Missing()


def filter_of(wanted: Mapping[str, Any]) -> Test:
    """Return a function that says whether the data of an object fits a filter. Raises ObjectError:
    an operator is unknown, or has a value that it cannot use.
    """
    return _Compiler().of_object(wanted, 0)


def path_of(text: str, param: str = "filter") -> tuple[str, ...]:
    """Return the names in a path such as `address.city`. Raises ObjectError about the parameter."""
    names = tuple(text.split("."))
    if len(text) > _LONGEST_PATH or not all(names):
        raise ObjectError(
            f"{quoted(text)} is not a path: write names with dots between them, such as"
            " address.city.",
            param,
        )
    return names


def quoted(text: str) -> str:
    """Return a text as it is quoted in a sentence."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def values_at(value: Any, path: Sequence[str]) -> list[Any]:
    """Return the values to which a path leads; `MISSING` is one of them for each object without the
    member.
    """
    for at, name in enumerate(path):
        if type(value) is list:
            found: list[Any] = []
            if name.isascii() and name.isdecimal() and int(name) < len(value):
                found += values_at(value[int(name)], path[at + 1 :])
            for each in value:
                if type(each) is dict:
                    found += values_at(each, path[at:])
            return found
        value = value.get(name, MISSING) if type(value) is dict else MISSING
    return [value]


def same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal. Unlike in Python, 1 is not true."""
    if type(one) is dict and type(other) is dict:
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if type(one) is list and type(other) is list:
        return len(one) == len(other) and all(map(same, one, other))
    if type(one) is bool or type(other) is bool:
        return one is other
    return bool(one == other)


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a JSON value is a number."""
    return type(value) is int or type(value) is float


# -- what one value has to be ----------------------------------------------------------------------


def _equal(operand: Any) -> Test:
    if operand is None:
        return lambda value: value is None or value is MISSING
    if type(operand) is str:
        return lambda value: bool(value == operand)
    if is_number(operand):
        return lambda value: is_number(value) and value == operand
    return lambda value: same(value, operand)


def _compared(compare: Callable[[Any, Any], bool]) -> Callable[[Any], Test]:
    def make(operand: Any) -> Test:
        if type(operand) is str:
            return lambda value: type(value) is str and compare(value, operand)
        if is_number(operand):
            return lambda value: is_number(value) and compare(value, operand)
        raise _OperandError("needs a number or a text to compare with")

    return make


def _among(operand: Any) -> Test:
    if type(operand) is not list:
        raise _OperandError("needs an array of values")
    if len(operand) > MOST_VALUES:
        raise _OperandError(f"has more than {MOST_VALUES} values")
    texts = {each for each in operand if type(each) is str}
    others = [_equal(each) for each in operand if type(each) is not str]

    def test(value: Any) -> bool:
        if type(value) is str:
            return value in texts
        return any(other(value) for other in others)

    return test


def _contains(operand: Any) -> Test:
    part = operand.casefold() if type(operand) is str else None

    def test(value: Any) -> bool:
        if type(value) is str:
            return part is not None and part in value.casefold()
        return type(value) is list and any(same(each, operand) for each in value)

    return test


def _pattern(operand: Any, options: Any = "") -> Test:
    if type(operand) is not str or len(operand) > _LONGEST_PATTERN:
        raise _OperandError(f"needs a regular expression of at most {_LONGEST_PATTERN} characters")
    if options not in ("", "i"):
        raise _OperandError('has $options that are not known: write "i" to ignore case, or none')
    try:
        found_in = TextPattern(f"(?i){operand}" if options else operand).found_in
    except DeclarationError as error:
        raise _OperandError(f"has {quoted(operand)}, which cannot be used: {error}") from None
    return lambda value: type(value) is str and found_in(value)


_TESTS: Final[Mapping[str, Callable[[Any], Test]]] = {
    "$eq": _equal,
    "$gt": _compared(operator.gt),
    "$gte": _compared(operator.ge),
    "$lt": _compared(operator.lt),
    "$lte": _compared(operator.le),
    "$in": _among,
    "$contains": _contains,
}
"""Operators that are tested for a value and for each item of an array."""
_OPPOSITES: Final = {"$ne": "$eq", "$nin": "$in"}
_ABOUT_MEMBERS: Final = (
    *("$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin"),
    *("$exists", "$regex", "$options", "$contains", "$not"),
)
_ABOUT_OBJECTS: Final = ("$and", "$or", "$nor", "$not")


# -- what an object has to be ----------------------------------------------------------------------


def _at(path: tuple[str, ...], test: Test) -> Test:
    """Return whether a test holds for a value at a path, or for an item of an array there."""
    if len(path) > 1:
        return lambda data: any(_holds(test, value) for value in values_at(data, path))
    (name,) = path

    def of_member(data: dict[str, Any]) -> bool:
        value = data.get(name, MISSING)
        return test(value) or (type(value) is list and any(map(test, value)))

    return of_member


def _holds(test: Test, value: Any) -> bool:
    return test(value) or (type(value) is list and any(map(test, value)))


def _not(test: Test) -> Test:
    return lambda data: not test(data)


def _both(one: Test, other: Test) -> Test:
    return lambda data: one(data) and other(data)


def _either(one: Test, other: Test) -> Test:
    return lambda data: one(data) or other(data)


class _Compiler:
    """Compiles one filter, and counts its conditions."""

    def __init__(self) -> None:
        self._conditions = 0

    def of_object(self, wanted: Any, depth: int) -> Test:
        """Return the test of an object of conditions, which all must hold."""
        if not isinstance(wanted, Mapping):
            raise _refused('A filter is a JSON object of conditions, such as {"status": "open"}.')
        if depth > MOST_DEPTH:
            raise _refused(f"The filter has more than {MOST_DEPTH} operators inside each other.")
        if not wanted:
            return lambda _: True
        return reduce(_both, [self._of_pair(*pair, depth) for pair in wanted.items()])

    def _of_pair(self, key: str, operand: Any, depth: int) -> Test:
        if not key.startswith("$"):
            return self._of_member(key, operand, depth)
        if key not in _ABOUT_OBJECTS:
            if key in _ABOUT_MEMBERS:
                raise _refused(
                    f'{key} is about a member: write {{"member": {{"{key}": …}}}}, with the name of'
                    " the member."
                )
            raise _unknown(key, _ABOUT_OBJECTS)
        if key == "$not":
            return _not(self.of_object(operand, depth + 1))
        if type(operand) is not list or not operand:
            raise _refused(f"{key} needs an array of filters, and has none.")
        tests = [self.of_object(each, depth + 1) for each in operand]
        found = reduce(_both if key == "$and" else _either, tests)
        return _not(found) if key == "$nor" else found

    def _of_member(self, name: str, operand: Any, depth: int) -> Test:
        path = path_of(name)
        if type(operand) is not dict or not any(key.startswith("$") for key in operand):
            return self._tested(name, path, "$eq", operand)
        if depth > MOST_DEPTH:
            raise _refused(f"The filter has more than {MOST_DEPTH} operators inside each other.")
        tests: list[Test] = []
        for key, value in operand.items():
            if key not in _ABOUT_MEMBERS:
                raise _unknown(key, _ABOUT_MEMBERS, name)
            if key == "$not":
                if type(value) is not dict or not any(one.startswith("$") for one in value):
                    raise _refused(f'$not of {quoted(name)} needs operators: {{"$gt": 5}}.')
                tests.append(_not(self._of_member(name, value, depth + 1)))
            elif key == "$regex":
                tests.append(self._tested(name, path, key, (value, operand.get("$options", ""))))
            elif key != "$options":
                tests.append(self._tested(name, path, key, value))
            elif "$regex" not in operand:
                raise _refused(f"$options of {quoted(name)} needs a $regex beside it.")
        return reduce(_both, tests)

    def _tested(self, name: str, path: tuple[str, ...], key: str, operand: Any) -> Test:
        self._conditions += 1
        if self._conditions > MOST_CONDITIONS:
            raise _refused(f"The filter has more than {MOST_CONDITIONS} conditions.")
        if key == "$exists":
            if type(operand) is not bool:
                raise _refused(f"$exists of {quoted(name)} needs true or false.")
            return lambda data: (
                any(value is not MISSING for value in values_at(data, path)) is operand
            )
        try:
            if key == "$regex":
                return _at(path, _pattern(*operand))
            found = _at(path, _TESTS[_OPPOSITES.get(key, key)](operand))
        except _OperandError as error:
            raise _refused(f"{key} of {quoted(name)} {error}.") from None
        return _not(found) if key in _OPPOSITES else found


def _refused(sentence: str) -> ObjectError:
    return ObjectError(sentence, "filter")


def _unknown(key: str, known: Sequence[str], name: str = "") -> ObjectError:
    where = f" of {quoted(name)}" if name else ""
    return _refused(
        f"There is no operator {quoted(key)}{where}. The operators there are {', '.join(known)}."
    )
