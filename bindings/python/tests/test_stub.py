"""The type stubs match the module: every class, method and argument, and nothing else."""

import ast
import inspect
from pathlib import Path

import cenote
import cenote._native as native
import pytest

STUB = ast.parse((Path(cenote.__file__).parent / "_native.pyi").read_text())
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
FUNCTIONS = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}


def parameters(node: ast.FunctionDef) -> list[str]:
    args = node.args
    return [arg.arg for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs]]


def test_classes_and_functions() -> None:
    there = {name for name in dir(native) if not name.startswith("_")}
    assert set(CLASSES) | set(FUNCTIONS) == there
    assert there <= set(cenote.__all__) | {"Records", "Objects"}


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_members(name: str) -> None:
    real = getattr(native, name)
    public = {member for member in vars(real) if not member.startswith("_")}
    said = {node.name: node for node in CLASSES[name].body if isinstance(node, ast.FunctionDef)}
    fields = {node.target.id for node in CLASSES[name].body if isinstance(node, ast.AnnAssign)}  # type: ignore[union-attr]
    assert {member for member in said if not member.startswith("_")} | fields == public
    for member, node in said.items():
        # Before Python 3.12 classes have no names for the buffer protocol (PEP 688).
        assert hasattr(real, member) or member in {"__buffer__", "__release_buffer__"}, member
        if member in public and not node.decorator_list:
            assert parameters(node) == list(inspect.signature(getattr(real, member)).parameters), member
            assert getattr(real, member).__doc__, member
    assert real.__doc__


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions(name: str) -> None:
    real = getattr(native, name)
    assert parameters(FUNCTIONS[name]) == list(inspect.signature(real).parameters)
    assert real.__doc__


def test_everything_public_is_exported() -> None:
    assert all(hasattr(cenote, name) for name in cenote.__all__)
