"""Inference of names: modules are compiled and run here, on each tested Python."""

from __future__ import annotations

import dataclasses
import importlib
import os
import subprocess
import sys
import textwrap
import types
import typing
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from distsync._client.naming import inference
from distsync._client.naming.inference import Name, PrivateObjectWarning

pytestmark = pytest.mark.usefixtures("unnamed_objects_warn")

FACE_SOURCE = """
from distsync._client.naming import inference as names

class Thing:
    def __init__(self, size=0, *, name=None):
        self.called = names.resolve(self, name)
        self.place = names.call_site()

    def where(self):
        return names.call_site()

class Longer(Thing):
    def __init__(self, size=0, *, name=None):
        super().__init__(size, name=name)
"""
FACE = types.ModuleType("distsync.pretended_face")
exec(FACE_SOURCE, FACE.__dict__)


def run(source: str, name: str = "jobs", **more: object) -> dict[str, object]:
    """Return the globals of a module of that name, run from source."""
    module_names = {"__name__": name, "face": FACE, "Thing": FACE.Thing, "Longer": FACE.Longer, **more}
    exec(compile(textwrap.dedent(source), f"/home/me/{name}.py", "exec"), module_names)
    return module_names


def text(thing: object) -> str:
    called = thing.called  # type: ignore[attr-defined]
    assert not called.fresh
    return str(called.text)


def is_fresh(thing: object) -> bool:
    return bool(thing.called.fresh)  # type: ignore[attr-defined]


def use(things: Iterable[object]) -> None:
    """Tell the program that it uses those of these objects that are private."""
    for thing in things:
        if is_fresh(thing):
            thing.called.place.report_use()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = Thing()", "jobs.x"),
        ("x = Longer(3)", "jobs.x"),
        ("x = face.Thing(size=3)", "jobs.x"),
        ("x = Thing(*[3], **{})", "jobs.x"),
        ("x: Thing = Thing()", "jobs.x"),
        ("x: 'Thing' = Thing(Thing and 3)", "jobs.x"),
        ("x = other or Thing()", "jobs.x"),
        ("x = Thing() if not other else None", "jobs.x"),
        ("x = None if other else Thing()", "jobs.x"),
        ("if not other:\n    x = Thing()\nelse:\n    x = Thing(2)", "jobs.x"),
        ("try:\n    import nothing_of_that_name\nexcept ImportError:\n    x = Thing()", "jobs.x"),
        ("try:\n    x = Thing()\nfinally:\n    y = 3", "jobs.x"),
        ("with open(__import__('os').devnull) as f:\n    x = Thing()", "jobs.x"),
        ("a = x = Thing()", "jobs.x"),
        ("table['k'] = a = table['l'] = x = Thing()", "jobs.x"),
        ("x = table['k'] = Thing()", "jobs.x"),
        ("space.y = x = space.z = Thing()", "jobs.x"),
        ("(x := Thing())", "jobs.x"),
        ("pool.append(x := Thing())", "jobs.x"),
        ("x, y = Thing(), Thing()", "jobs.x"),
        ("y, x = Thing(), face.Thing(size=3)", "jobs.x"),
        ("a, x, b = Thing(), Thing(3), table", "jobs.x"),
        ("a, b, c, x = Thing(), Thing(), face.Thing(), Thing()", "jobs.x"),
        ("a, (b, x) = Thing(), (3, Thing())", "jobs.x"),
        ("global x\nx = Thing()", "jobs.x"),
        ("_x = x = Thing()", "jobs.x"),
    ],
)
def test_an_object_bound_in_a_module_is_named_after_the_last_name_it_is_bound_to(source: str, expected: str) -> None:
    module = run(source, other=None, table={}, pool=[], space=types.SimpleNamespace())
    assert text(module["x"]) == expected


def test_objects_assigned_to_a_tuple_have_the_names_of_its_targets() -> None:
    module = run("a, b, c = Thing(), face.Thing(3), Longer(size=3)\nd, e, f, g = Thing(), Thing(), Thing(), Thing()")
    assert [text(module[name]) for name in "abcdefg"] == [f"jobs.{name}" for name in "abcdefg"]


def test_an_object_bound_in_a_class_has_the_class_in_its_name() -> None:
    source = """
    class Worker:
        lock = Thing()
        typed: Thing = Longer()
        __private = Thing()
        class Inner:
            lock, other = Thing(), Thing()
        global outside
        outside = Thing()
    """
    module = run(source)
    worker = module["Worker"]
    assert text(worker.lock) == "jobs.Worker.lock"  # type: ignore[attr-defined]
    assert text(worker.typed) == "jobs.Worker.typed"  # type: ignore[attr-defined]
    assert text(worker._Worker__private) == "jobs.Worker._Worker__private"  # type: ignore[attr-defined]
    assert text(worker.Inner.lock) == "jobs.Worker.Inner.lock"  # type: ignore[attr-defined]
    assert text(worker.Inner.other) == "jobs.Worker.Inner.other"  # type: ignore[attr-defined]
    assert text(module["outside"]) == "jobs.outside"


def test_a_name_far_into_a_long_module_is_found() -> None:
    source = "\n".join(f"v{i} = {i}.5 + other" for i in range(700)) + "\nx = y = Thing()"
    assert text(run(source, other=1)["y"]) == "jobs.y"


def test_init_of_a_users_subclass_is_not_the_assignment() -> None:
    source = """
    class Mine(Longer):
        def __init__(self, *args):
            super().__init__(*args)
            keep = lambda: self
            self.inner = Thing()

    class Ours(Mine):
        def __init__(this):
            Mine.__init__(this, 3)

    x = Ours()
    """
    thing = run(source)["x"]
    assert text(thing) == "jobs.x"
    assert is_fresh(thing.inner)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    x = Thing()\n    return x\nmade = [f()]",
        "def f():\n    global x\n    x = Thing()\n    return x\nmade = [f()]",
        "def f():\n    class C:\n        x = Thing()\n    return C.x\nmade = [f()]",
        "def f():\n    return [Thing() for _ in range(2)]\nmade = f()",
        "def f():\n    return list(Thing() for _ in range(2))\nmade = f()",
        "made = [(lambda: Thing())()]",
        "class C:\n    def __init__(self):\n        self.x = Thing()\nmade = [C().x]",
        "space = {}\nexec('x = Thing()', globals(), space)\nmade = [space['x']]",
    ],
)
def test_object_created_in_a_function_is_fresh_and_warns_at_its_use(source: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = run(source)["made"]
    assert all(is_fresh(thing) for thing in made)  # type: ignore[attr-defined]
    assert len({thing.called.text for thing in made}) == len(made)  # type: ignore
    with pytest.warns(PrivateObjectWarning, match=r"\.Thing created at \S+:\d+ .*created in a function"):
        use(made)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "source",
    [
        "pool.append(Thing())",
        "pool[:] = [Thing()]",
        "pool += [Thing() for _ in range(2)]",
        "pool.extend(Thing() for _ in range(2))",
        "pool.extend({0: Thing()}.values())",
        "pool.append((Thing(), 3)[0])",
        "x = [Thing()]; pool.extend(x)",
        "x = identity(Thing()); pool.append(x)",
        "x = Thing().itself; pool.append(x)",
        "x = Thing()[0]; pool.append(x)",
        "table['k'] = Thing(); pool.append(table['k'])",
        "space.x = Thing(); pool.append(space.x)",
        "x = -Thing(); pool.append(x)",
        "x = missing['k']; pool.append(x)",
        "class C:\n    pool.append(Thing())",
    ],
)
def test_a_module_level_object_bound_to_no_name_is_fresh_and_warns_at_its_use(source: str) -> None:
    import collections

    class Odd(FACE.Thing):  # type: ignore[name-defined,misc]
        itself = property(lambda self: self)

        def __getitem__(self, index: int) -> object:
            return self

        def __neg__(self) -> object:
            return self

    pool: list[object] = []
    given = {"table": {}, "space": types.SimpleNamespace(), "identity": lambda thing: thing}
    run(source, pool=pool, Thing=Odd, missing=collections.defaultdict(Odd), **given)
    assert pool
    assert all(is_fresh(thing) for thing in pool)
    with pytest.warns(PrivateObjectWarning, match="assigned to no name.*name="):
        use(pool)


def test_warning_is_issued_once_per_place_and_names_it() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        use(run("for _ in range(3):\n    pool.append(Thing())\npool.append(Thing())", pool=[])["pool"])  # type: ignore
    assert [(w.filename, w.lineno) for w in caught] == [("/home/me/jobs.py", 2), ("/home/me/jobs.py", 3)]


@pytest.mark.parametrize(
    "source",
    ["for _ in range(3):\n    x = Thing()\n    pool.append(x)", "pool = list(map(Thing, (1, 2, 3)))"],
)
def test_one_place_names_one_object_only(source: str) -> None:
    pool = run(source, pool=[])["pool"]
    with pytest.warns(
        PrivateObjectWarning, match=r"name jobs\.\w+ is taken by the object created at /home/me/jobs.py:"
    ):
        use(pool)  # type: ignore[arg-type]
    assert [is_fresh(thing) for thing in pool] == [False, True, True]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("x = Thing()\npool.append(x)\nx = Longer(3)\npool.append(x)", 1),
        ("x = Thing()\npool.append(x)\ndel x\nfor _ in [1]:\n    x = Thing()\n    pool.append(x)", 1),
        ("(x := Thing(),\npool.append(x),\nx := Thing(),\npool.append(x))", 1),
        ("class C:\n    x = Thing()\n    pool.append(x)\nclass C:\n    x = Thing()\n    pool.append(x)", 2),
        ("class C:\n    global x\n    x = Thing()\n    pool.append(x)\nx = Thing()\npool.append(x)", 3),
        ("x = Thing()\npool.append(x)\nexec('x = Thing()')\npool.append(x)", 1),
    ],
)
def test_only_the_first_object_that_is_assigned_to_a_variable_has_its_name(source: str, line: int) -> None:
    """A second statement made another object of the same name, so both were one."""
    pool: Any = run(source, pool=[])["pool"]
    assert [is_fresh(thing) for thing in pool] == [False, True]
    with pytest.warns(PrivateObjectWarning, match=rf"taken by the object created at /home/me/jobs.py:{line}\)"):
        use(pool)


def test_object_of_a_generic_class_is_named_after_its_variable() -> None:
    source = "T = typing.TypeVar('T')\nclass Box(Thing, typing.Generic[T]):\n    pass\nx = Box[int]()"
    assert text(run(source, typing=typing)["x"]) == "jobs.x"


def test_object_of_a_dataclass_field_is_created_where_the_dataclass_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jobs", types.ModuleType("jobs"))
    source = """
    @dataclasses.dataclass
    class Job:
        x: Thing = dataclasses.field(default_factory=Thing)

    job = Job()
    """
    thing = run(source, dataclasses=dataclasses)["job"].x  # type: ignore[attr-defined]
    assert is_fresh(thing)
    with pytest.warns(PrivateObjectWarning, match=r"created at /home/me/jobs.py:6 "):
        use([thing])


SITES = """
class App:
    def __init__(self, other=None):
        self.lock = Thing()
        self.x, self.y = other or Thing(), Longer(size=3)
        made.extend((self.lock, self.x, self.y))

def main(self):
    a = Thing()
    b, c = Thing(), Thing()
    d = self.e = Thing()
    self.f = f = Thing()
    def inner():
        return f
    class Local:
        g = Thing()
    made.extend((a, b, c, d, f, Local.g))
    made.extend([Thing() for _ in range(2)])
    made.append(Thing())

App()
App()
main(App)
for _ in range(2):
    z = Thing()
    made.append(z)
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code knows its class since Python 3.11")
def test_in_site_mode_objects_are_named_after_function_variable_and_number(set_unnamed: Callable[[str], None]) -> None:
    set_unnamed("site")
    made = run(SITES, "sites", made=[])["made"]
    assert [text(thing) for thing in made] == [  # type: ignore[attr-defined]
        *(f"sites.App.__init__.{name}#{number}" for number in (1, 2) for name in ("lock", "x", "y")),
        *("sites.main.a#1", "sites.main.b#1", "sites.main.c#1", "sites.main.e#1", "sites.main.f#1"),
        *("sites.main.<locals>.Local.g#1", "sites.main#1", "sites.main#2", "sites.main#3", "sites.z", "sites.z#1"),
    ]


def test_in_site_mode_each_process_of_a_program_gives_the_same_names_and_none_twice(
    set_unnamed: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_unnamed("site")
    runs = []
    for _ in range(2):
        monkeypatch.setattr(inference, "_ordinals", {})  # as in a new process
        runs.append([text(thing) for thing in run(SITES, made=[])["made"]])  # type: ignore[attr-defined]
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == len(runs[0])


def test_in_site_mode_an_object_at_a_prompt_is_fresh_and_warns(set_unnamed: Callable[[str], None]) -> None:
    set_unnamed("site")
    thing = run("def f():\n    return Thing()\nx = f()", "__main__", __spec__=None)["x"]
    with pytest.warns(PrivateObjectWarning, match="private"):
        use([thing])


def test_a_reloaded_module_gives_its_objects_the_same_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "reloaded_jobs.py"
    source = "import sys\nThing = sys.modules['distsync.pretended_face'].Thing\nx = Thing()\ny = x\nx = Thing()\n"
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "distsync.pretended_face", FACE)
    file.write_text(source)
    module = importlib.import_module("reloaded_jobs")
    for edited in (source, f"# moved by an edit\n{source}"):
        file.write_text(edited)
        module = importlib.reload(module)
        assert text(module.y) == "reloaded_jobs.x"
        assert is_fresh(module.x)


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        ({"__file__": "/home/me/my-job.py", "__spec__": None}, "my-job.x"),
        ({"__file__": "/home/me/app/__main__.py", "__spec__": types.SimpleNamespace(name="__main__")}, "app.x"),
        ({"__file__": "/home/me/app.pyz/__main__.py", "__spec__": None}, "app.x"),
        ({"__file__": "/home/me/pkg/jobs.py", "__spec__": types.SimpleNamespace(name="pkg.jobs")}, "pkg.jobs.x"),
    ],
)
@pytest.mark.parametrize("name", ["__main__", "__mp_main__"])
def test_main_module_has_its_real_name(main: dict[str, object], expected: str, name: str) -> None:
    assert text(run("x = Thing()", name, **main)["x"]) == expected


def test_at_a_prompt_an_object_is_fresh_and_warns_at_its_use() -> None:
    thing = run("x = Thing()", "__main__", __spec__=None)["x"]
    assert is_fresh(thing)
    with pytest.warns(PrivateObjectWarning, match="prompt"):
        use([thing])


def test_a_script_and_a_module_run_with_m_name_their_objects_alike_in_every_process(tmp_path: object) -> None:
    os.mkdir(f"{tmp_path}/pkg")
    source = f"""
import types
face = types.ModuleType("distsync.pretended_face")
exec({FACE_SOURCE!r}, face.__dict__)
x = face.Thing()
print(x.called.text, x.place)
"""
    with open(f"{tmp_path}/pkg/jobs.py", "w") as file:
        file.write(source)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(inference.__file__))))
    for arguments, expected in ((["pkg/jobs.py"], "jobs.x"), (["-m", "pkg.jobs"], "pkg.jobs.x")):
        answer = subprocess.run(
            [sys.executable, *arguments],
            cwd=f"{tmp_path}",
            env={**os.environ, "PYTHONPATH": root},
            capture_output=True,
            text=True,
            check=True,
        )
        assert answer.stdout == f"{expected} pkg/jobs.py:5 in <module>\n"


def test_explicit_name_is_used_unchanged() -> None:
    assert inference.resolve(object(), "orders") == Name("orders", False)
    assert inference.resolve(object(), "") == Name("", False)


def test_a_name_that_is_no_str_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="int"):
        inference.resolve(object(), 3)  # type: ignore[arg-type]


def test_the_place_is_where_the_program_calls() -> None:
    source = """
    class Mine(Longer):
        def __init__(self):
            super().__init__()

    def work(thing):
        return thing.where()

    x = Mine()
    y = work(x)
    """
    module = run(source)
    name = "Mine.__init__" if sys.version_info >= (3, 11) else "__init__"
    assert module["x"].place == f"me/jobs.py:4 in {name}"  # type: ignore[attr-defined]
    assert module["y"] == "me/jobs.py:7 in work"


def test_parts_of_distsync_that_use_its_public_api_count_as_places() -> None:
    assert text(run("x = Thing()", "distsync.cli.demo")["x"]) == "distsync.cli.demo.x"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters came with Python 3.12")
def test_a_generic_class_is_a_class() -> None:
    assert text(run("class Worker[T]:\n    lock = Thing()")["Worker"].lock) == "jobs.Worker.lock"  # type: ignore
