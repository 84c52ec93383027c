"""A file as seen by h5py: everything in HDF5, down to types on media, filters and links."""

from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5t

from .table import Table, to_bytes

LAYOUTS = {h5d.COMPACT: "compact", h5d.CONTIGUOUS: "contiguous", h5d.CHUNKED: "chunked", h5d.VIRTUAL: "virtual"}
CLASSES = {
    getattr(h5t, name): name.lower()
    for name in ["INTEGER", "FLOAT", "STRING", "BITFIELD", "OPAQUE", "COMPOUND", "REFERENCE", "ENUM", "VLEN", "ARRAY"]
}


def table_of(path: str) -> Table:
    """The table of a file."""
    table = Table()
    with h5py.File(path, "r") as file:
        _group(table, Names(file), file["/"])
    return table


class Names:
    """The alphabetically first name of each object: an object with several hard links has one name in the table."""

    def __init__(self, file: h5py.File) -> None:
        self.file = file
        self._names: dict[h5py.h5g.GroupID | h5d.DatasetID | h5t.TypeID, str] = {}
        self._walk(file["/"])

    def _walk(self, group: h5py.Group) -> None:
        self._names.setdefault(group.id, group.name)
        for name in sorted(group):
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                continue
            found = group[name]
            known = found.id in self._names
            self._names.setdefault(found.id, f"{group.name.rstrip('/')}/{name}")
            if isinstance(found, h5py.Group) and not known:
                self._walk(found)

    def of(self, found: h5py.HLObject | h5py.Reference) -> str:
        """The name of an object, or of a reference's target."""
        return self._names[(self.file[found] if isinstance(found, h5py.Reference) else found).id]


def _group(table: Table, names: Names, group: h5py.Group) -> None:
    base = group.name.rstrip("/")
    table.put(f"{base}/:links", _link_order(group))
    _attributes(table, names, group)
    for name in sorted(group):
        path = f"{base}/{name}"
        link = group.get(name, getlink=True)
        if isinstance(link, h5py.SoftLink):
            table.put(f"{path}:link", f"soft to {link.path}")
            continue
        if isinstance(link, h5py.ExternalLink):
            table.put(f"{path}:link", f"external to {link.filename} {link.path}")
            continue
        found = group[name]
        if names.of(found) != path:
            table.put(f"{path}:link", f"hard to {names.of(found)}")
        elif isinstance(found, h5py.Group):
            _group(table, names, found)
        elif isinstance(found, h5py.Dataset):
            _dataset(table, names, path, found)
        else:
            table.put(f"{path}:type", describe_type(found.id))
            _attributes(table, names, found)


def _link_order(group: h5py.Group) -> str:
    """Names in order of creation, if the group tracks it."""
    tracked = group.id.get_create_plist().get_link_creation_order()
    names: list[str] = []
    index = h5py.h5.INDEX_CRT_ORDER if tracked else h5py.h5.INDEX_NAME
    group.id.links.iterate(lambda name: names.append(name.decode()), idx_type=index)
    return f"{'created' if tracked else 'named'} {names}"


def _dataset(table: Table, names: Names, path: str, dataset: h5py.Dataset) -> None:
    made = dataset.id.get_create_plist()
    table.put(f"{path}:type", describe_type(dataset.id.get_type()))
    table.put(f"{path}:shape", f"{dataset.shape} of at most {dataset.maxshape}")
    table.put(f"{path}:layout", f"{LAYOUTS[made.get_layout()]} {dataset.chunks or ''}".strip())
    table.put(f"{path}:filters", [_filter(made.get_filter(i)) for i in range(made.get_nfilters())])
    table.put(f"{path}:fill", _fill_value(dataset, made))
    _attributes(table, names, dataset)
    if dataset.shape is not None:
        table.put_values(f"{path}:values", _resolved(names, dataset[()]))


def _filter(found: tuple) -> tuple:
    code, _flags, values, _name = found
    # The requested values; the library derives the rest (shuffle's type size, but not deflate's level).
    return code, values[:1] if code == h5py.h5z.FILTER_DEFLATE else ()


def _fill_value(dataset: h5py.Dataset, made: h5py.h5p.PropDCID) -> str:
    if made.fill_value_defined() != h5d.FILL_VALUE_USER_DEFINED or dataset.dtype.hasobject:
        return "default"
    value = np.zeros((), dataset.dtype)
    made.get_fill_value(value)
    return value.tobytes().hex()


def _attributes(table: Table, names: Names, owner: h5py.Group | h5py.Dataset | h5py.Datatype) -> None:
    for name in sorted(owner.attrs):
        attribute = h5a.open(owner.id, name.encode())
        table.put(f"{owner.name}@{name}:type", f"{describe_type(attribute.get_type())} {attribute.shape}")
        value = owner.attrs[name]
        if isinstance(value, h5py.Empty):
            table.put(f"{owner.name}@{name}", "empty")
        else:
            table.put_values(f"{owner.name}@{name}", _resolved(names, value))


def _resolved(names: Names, values: Any) -> Any:
    """The values, with each reference replaced by the name of its target, since addresses may differ."""
    if isinstance(values, h5py.Reference):
        return names.of(values) if values else "null"
    if isinstance(values, np.ndarray):
        if values.dtype.kind == "O":
            flat = [_resolved(names, item) for item in values.reshape(-1)]
            found = np.empty(len(flat), dtype=object)
            found[:] = [to_bytes(item) if isinstance(item, np.ndarray) else item for item in flat]
            return found.reshape(values.shape)
        if values.dtype.names and values.dtype.hasobject:
            columns = [_resolved(names, values[name]) for name in values.dtype.names]
            return np.array(
                [b"".join(to_bytes(column[i]) for column in columns) for i in np.ndindex(values.shape)], "O"
            )
    return values


def describe_type(found: h5t.TypeID) -> str:
    """A type as stored on media."""
    kind, size = found.get_class(), found.get_size()
    text = f"{CLASSES.get(kind, kind)}{size}"
    if kind == h5t.COMPOUND:
        members = [
            f"{found.get_member_name(i).decode()}@{found.get_member_offset(i)}:{describe_type(found.get_member_type(i))}"
            for i in range(found.get_nmembers())
        ]
        text += "{" + ", ".join(members) + "}"
    elif kind == h5t.ENUM:
        members = [
            f"{found.get_member_name(i).decode()}={found.get_member_value(i)}" for i in range(found.get_nmembers())
        ]
        text += f"({describe_type(found.get_super())})" + "{" + ", ".join(members) + "}"
    elif kind == h5t.ARRAY:
        text += f"{found.get_array_dims()}({describe_type(found.get_super())})"
    elif kind == h5t.VLEN:
        text += f"({describe_type(found.get_super())})"
    elif kind == h5t.STRING:
        text = f"string{'*' if found.is_variable_str() else size} charset {found.get_cset()} pad {found.get_strpad()}"
    elif kind == h5t.OPAQUE:
        text += f" {found.get_tag()!r}"
    elif kind in (h5t.INTEGER, h5t.FLOAT):
        text += f" order {found.get_order()} precision {found.get_precision()} offset {found.get_offset()}"
        text += f" sign {found.get_sign()}" if kind == h5t.INTEGER else f" fields {found.get_fields()}"
    return text + (" named" if found.committed() else "")
