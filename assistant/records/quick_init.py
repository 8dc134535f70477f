"""Make frozen records quickly: a look makes hundreds of thousands of them.

A frozen dataclass sets each of its fields by a call of `object.__setattr__`, which takes five times as long as an assignment. Here
its `__init__` lends the new object to a subclass that is not frozen, assigns, and takes it back. Nobody else has the object then.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from functools import wraps
from typing import Any, TypeVar

Record = TypeVar("Record")


def quick_init(record: type[Record]) -> type[Record]:
    """Give a frozen dataclass with slots an `__init__` with the same parameters that assigns its fields.

    Raises:
        TypeError: It has a field that is made by a function, is no parameter or must be named, or something follows its `__init__`.
    """
    own = fields(record)  # type: ignore[arg-type]
    if hasattr(record, "__post_init__") or any(f.default_factory is not MISSING or not f.init or f.kw_only for f in own):
        raise TypeError(f"{record.__name__} has more to its __init__ than fields with values")
    open_record = type(
        f"_Open{record.__name__}",
        (record,),
        {"__slots__": (), "__setattr__": object.__setattr__, "__delattr__": object.__delattr__, "__module__": record.__module__},
    )
    names: dict[str, Any] = {"_set": object.__setattr__, "_open": open_record, "_record": record}
    names |= {f"_default_{f.name}": f.default for f in own}
    parameters = ", ".join(f.name if f.default is MISSING else f"{f.name}=_default_{f.name}" for f in own)
    assignments = "".join(f"    self.{f.name} = {f.name}\n" for f in own)
    source = f"def __init__(self, {parameters}):\n    _set(self, '__class__', _open)\n{assignments}    self.__class__ = _record\n"
    exec(source, names)  # as `dataclass` does it: of the names of fields alone
    record.__init__ = wraps(record.__init__)(names["__init__"])  # type: ignore[method-assign]
    return record
