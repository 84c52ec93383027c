"""Random h5py programs about raw data, run by test_data.py once on native HDF5 and once on Cenote.

A program is a pure function of its seed: it makes a dataset, writes, reads, resizes and reopens, and returns what it
saw in a comparable form. Run as `python data_programs.py MODE FILE OUTPUT SEED...`; the HDF5_* and CENOTE_* environment
variables decide where the data go. MODE is `run` (the whole program) or `look` (read what is there).
"""

import pickle
import sys

import h5py
import numpy as np

KINDS = [
    "int",
    "float",
    "other_endian",
    "bool",
    "enum",
    "string",
    "opaque",
    "array",
    "compound",
    "vlen_str",
    "vlen_int",
    "compound_vlen",
    "nested",
    "half",
]


def pick_dtype(r):
    kind = KINDS[r.integers(len(KINDS))]
    match kind:
        case "int":
            return kind, np.dtype(f"{r.choice(['i', 'u'])}{r.choice([1, 2, 4, 8])}")
        case "float":
            return kind, np.dtype(f"f{r.choice([4, 8])}")
        case "half":
            return kind, np.dtype(r.choice(["f2", "c8", "c16"]))
        case "other_endian":
            return kind, np.dtype(r.choice([">i2", ">i4", ">u8", ">f4", ">f8"]))
        case "bool":
            return kind, np.dtype(bool)
        case "enum":
            return kind, h5py.enum_dtype({"RED": 0, "GREEN": 1, "BLUE": 7}, basetype=r.choice(["i1", "i4"]))
        case "string":
            return kind, np.dtype(f"S{r.integers(1, 9)}")
        case "opaque":
            return kind, h5py.opaque_dtype(np.dtype(f"V{r.integers(1, 9)}"))
        case "array":
            return kind, np.dtype((r.choice(["i2", "f8"]), (2, 3)))
        case "compound":
            return kind, np.dtype([("a", "i4"), ("b", "f8"), ("c", "S3"), ("d", "u1", (2,))])
        case "nested":
            return kind, np.dtype([("x", [("p", "i2"), ("q", ">f4")]), ("y", "f8")])
        case "vlen_str":
            return kind, h5py.string_dtype()
        case "vlen_int":
            return kind, h5py.vlen_dtype(np.dtype("i4"))
        case _:
            return kind, np.dtype([("n", "i4"), ("s", h5py.string_dtype())])


def values(r, kind, dtype, shape):
    """Random content of any shape."""
    n = int(np.prod(shape))
    match kind:
        case "vlen_str":
            out = np.empty(n, object)
            out[:] = ["".join(r.choice(list("abcé x"), r.integers(0, 12))) for _ in range(n)]
        case "vlen_int":
            out = np.empty(n, object)
            for i in range(n):
                out[i] = r.integers(-99, 99, r.integers(0, 6)).astype("i4")
        case "compound_vlen":
            out = np.empty(n, dtype)
            for i in range(n):
                out[i] = (int(r.integers(1000)), "s" * int(r.integers(0, 9)))
        case "string":
            out = np.array(["xyzw"[: r.integers(0, 5)] * 2 for _ in range(n)], "S8").astype(dtype)
        case "bool":
            out = r.integers(0, 2, n).astype(bool)
        case "enum":
            out = r.choice([0, 1, 7], n).astype(dtype)
        case "array":
            base, sub = dtype.subdtype
            return r.integers(0, 100, tuple(shape) + sub).astype(base)
        case "opaque":
            out = np.frombuffer(r.bytes(n * dtype.itemsize), dtype, n).copy()
        case "compound":
            out = np.zeros(n, dtype)
            out["a"], out["b"] = r.integers(-9, 9, n), r.random(n)
            out["c"], out["d"] = b"hi", r.integers(0, 9, (n, 2))
        case "nested":
            out = np.zeros(n, dtype)
            out["x"]["p"], out["x"]["q"], out["y"] = r.integers(-9, 9, n), r.random(n), r.random(n)
        case _:
            out = (r.random(n) * 100).astype(dtype)
    return out.reshape(shape)


def pick_selection(r, shape):
    """An index for h5py, in bounds."""
    if not shape:
        return ()
    what = r.integers(10)
    if what == 0:
        return Ellipsis
    if what == 1:
        mask = r.random(shape) < r.choice([0.1, 0.5, 0.95])
        return mask
    index = []
    fancy = False
    for n in shape:
        way = r.integers(6)
        if n == 0 or way == 0:
            index.append(slice(None))
        elif way == 1:
            index.append(int(r.integers(n)))
        elif way == 2 and not fancy:
            fancy = True
            index.append(sorted({int(x) for x in r.integers(0, n, r.integers(1, 5))}))
        else:
            a, b = sorted(int(x) for x in r.integers(0, n + 1, 2))
            index.append(slice(a, b, int(r.integers(1, 4))))
    return tuple(index)


def norm(value):
    """A value in a form that compares exactly, bit for bit."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            if value.dtype.names:
                return ("rec", value.shape, [tuple(norm(x) for x in row) for row in value.ravel().tolist()])
            return ("obj", value.shape, [norm(x) for x in value.ravel().tolist()])
        return (str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, np.void) and value.dtype.hasobject:
        return ("void", [norm(x) for x in value.tolist()])
    if isinstance(value, np.generic):
        return (str(value.dtype), value.tobytes())
    return (type(value).__name__, value)


class Log(list):
    """What the program saw, with errors by type."""

    def see(self, label, call):
        try:
            self.append((label, norm(call())))
        except Exception as error:  # the kind of failure is compared too
            self.append((label, "error", type(error).__name__))

    def do(self, label, call):
        self.see(label, lambda: (call(), 0)[1])


def make(r, f, log):
    kind, dtype = pick_dtype(r)
    rank = int(r.choice([0, 1, 1, 2, 2, 3, 4]))
    shape = tuple(int(x) for x in r.integers(0 if r.random() < 0.1 else 1, [0, 300, 40, 13, 7][rank] + 1, rank))
    options = {}
    if rank and r.random() < 0.65:
        top = [max(1, min(n, 40)) for n in shape]
        options["chunks"] = tuple(int(r.integers(1, n + 1)) for n in top)
        if r.random() < 0.6:
            options["maxshape"] = tuple(None if r.random() < 0.5 else n + int(r.integers(0, 9)) for n in shape)
        for name, value in [("compression", "gzip"), ("shuffle", True), ("fletcher32", True)]:
            if r.random() < 0.4 and not ("vlen" in kind and name == "fletcher32"):
                options[name] = value
        if "compression" in options and r.random() < 0.3:
            options["compression"] = "lzf"
        elif "compression" in options:
            options["compression_opts"] = int(r.integers(0, 10))
    if r.random() < 0.4 and kind in ("int", "float", "half", "other_endian", "string", "compound", "nested"):
        options["fillvalue"] = values(r, kind, dtype, (1,))[0]
    log.append(("made", kind, str(dtype), shape, sorted(options)))
    if kind in ("array", "enum", "opaque") or r.random() < 0.5:
        ds = f.create_dataset("d", shape, dtype, **options)
    else:
        ds = f.create_dataset("d", data=values(r, kind, dtype, shape), dtype=dtype, **options)
        ds.attrs["written"] = True
    return kind, dtype, ds


def step(r, kind, dtype, ds, log):
    shape = ds.shape
    what = r.integers(9)
    if what <= 2:
        sel = pick_selection(r, shape)
        target = np.empty(shape, np.int8)[sel].shape
        data = values(r, kind, dtype, target)
        log.do(f"write {sel!r}"[:200], lambda: ds.__setitem__(sel, data))
    elif what <= 5:
        sel = pick_selection(r, shape)
        log.see(f"read {sel!r}"[:200], lambda: ds[sel])
    elif what == 6 and ds.chunks and shape:
        new = tuple(
            n if m is not None and m == n and r.random() < 0.5 else int(r.integers(0, (n + 12 if m is None else m) + 1))
            for n, m in zip(shape, ds.maxshape, strict=True)
        )
        log.do(f"resize {new}", lambda: ds.resize(new))
        log.see("shape", lambda: np.array(ds.shape))
    elif what == 7 and shape and kind in ("int", "float", "other_endian", "string", "compound", "bool"):
        # Memory of another shape and, for numbers, another type.
        n = shape[0]
        a, b = sorted(int(x) for x in r.integers(0, n + 1, 2))
        number = kind in ("int", "float", "other_endian")
        out = np.zeros((3 + n * 2, *shape[1:]), "f8" if number else dtype)
        if a < b:
            log.do("read_direct", lambda: ds.read_direct(out, np.s_[a:b], np.s_[2 : 2 + 2 * (b - a) : 2]))
            log.append(("direct", norm(out)))
            if not number:
                log.do("write_direct", lambda: ds.write_direct(out, np.s_[2 : 2 + 2 * (b - a) : 2], np.s_[a:b]))
    elif what == 8:
        if kind == "compound" and shape:
            log.see("field", lambda: ds["b"])
            log.see("fields", lambda: ds.fields(["c", "a"])[...])
            # Other fields must keep their values. (HDF5 forgets fill values if this is the first write.)
            if ds.attrs.get("written"):
                data = r.random(shape)
                log.do("write field", lambda: ds.__setitem__((Ellipsis, "b"), data))
        elif kind == "int":
            log.see("astype", lambda: ds.astype("f4")[...])
    return ds


def look(f):
    """All that another process should see of the dataset."""
    log = Log()
    ds = f["d"]
    log.see("shape", lambda: np.array(ds.shape))
    log.see("maxshape", lambda: np.array([-1 if m is None else m for m in ds.maxshape]))
    log.append(("dtype", str(ds.dtype), str(ds.chunks), ds.compression, ds.compression_opts, ds.shuffle, ds.fletcher32))
    log.see("fill", lambda: ds.fillvalue)
    log.see("all", lambda: ds[()])
    if ds.chunks:
        found = set()
        for n in range(ds.id.get_num_chunks()):
            info = ds.id.get_chunk_info(n)
            if ds.dtype.hasobject:
                # HDF5 does not apply shuffle to these, and stored bytes contain addresses.
                found.add(info.chunk_offset)
                continue
            mask, stored = ds.id.read_direct_chunk(info.chunk_offset)
            assert (mask, len(stored)) == (info.filter_mask, info.size)
            # Without compression, stored chunks must equal HDF5's byte for byte. Whether lzf makes a chunk smaller, or
            # is left out, depends on the compressor.
            mask = None if ds.compression == "lzf" else mask
            found.add((info.chunk_offset, mask, stored if ds.compression is None else b""))
        log.append(("chunks", found))
    return log


def run(seed, path):
    r = np.random.default_rng(seed)
    log = Log()
    f = h5py.File(path, "w")
    kind, dtype, ds = make(r, f, log)
    for _ in range(int(r.integers(1, 12))):
        ds = step(r, kind, dtype, ds, log)
        if r.random() < 0.15:
            f.close()
            f = h5py.File(path, "r+")
            ds = f["d"]
        elif r.random() < 0.1:
            f.flush()
    log.extend(look(f))
    f.close()
    with h5py.File(path, "r") as f:
        log.extend(look(f))
    return log


def main():
    mode, path, output, *seeds = sys.argv[1:]
    results = {}
    for seed in map(int, seeds):
        name = f"{path}.{seed}.h5"
        try:
            if mode == "run":
                results[seed] = list(run(seed, name))
            else:
                with h5py.File(name, "r") as f:
                    results[seed] = list(look(f))
        except Exception as error:  # the test reports it with its seed
            import traceback

            results[seed] = [("program failed", repr(error), traceback.format_exc())]
    with open(output, "wb") as out:
        pickle.dump(results, out)


if __name__ == "__main__":
    main()
