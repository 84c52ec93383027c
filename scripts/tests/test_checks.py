"""The checks of `make verify` find what they should."""

from scripts.checks import (
    comments,
    dependencies,
    features,
    format_versions,
    frozen,
    links,
    machine_paths,
    module_paths,
    rooms,
    sizes,
)

TABLE = """
| room | package | holds | must not know | may import |
|---|---|---|---|---|
| `crates/model` | cenote-model | ids | I/O | |
| `crates/store` | cenote-store | engine | sockets | model |
| `crates/testkit` | cenote-testkit | suites | | all above |
| `views/hdf5` | cenote-hdf5 | connector | engine | model |
"""


def package(name: str, path: str, *dependencies: tuple[str, str | None]) -> dict:
    """A package as `cargo metadata` describes it."""
    found = [{"name": dep, "kind": kind, "path": f"/tree/{dep}"} for dep, kind in dependencies]
    return {"name": name, "manifest_path": f"/tree/{path}/Cargo.toml", "dependencies": found}


def violations(*packages: dict) -> list[str]:
    table, findings = rooms.parse_table(TABLE)
    assert not findings
    return rooms.check(table, list(packages), "/tree")


def test_allowed_imports_pass():
    assert not violations(
        package("cenote-model", "crates/model"),
        package("cenote-store", "crates/store", ("cenote-model", None), ("cenote-testkit", "dev")),
        package("cenote-testkit", "crates/testkit", ("cenote-store", None)),
    )


def test_a_forbidden_import_is_found():
    (finding,) = violations(package("cenote-hdf5", "views/hdf5", ("cenote-store", None)))
    assert "views/hdf5" in finding and "cenote-store" in finding


def test_an_import_upwards_is_found_even_for_tests():
    (finding,) = violations(package("cenote-model", "crates/model", ("cenote-store", "dev")))
    assert "crates/model" in finding


def test_a_crate_that_is_not_in_the_table_is_found():
    (finding,) = violations(package("cenote-new", "crates/new"))
    assert "not in the rooms table" in finding


def test_a_crate_in_another_place_is_found():
    (finding,) = violations(package("cenote-model", "crates/other"))
    assert "crates/model" in finding


def test_a_table_that_allows_what_is_below_is_found():
    _, (finding,) = rooms.parse_table(TABLE.replace("| I/O | |", "| I/O | store |"))
    assert "store" in finding


def test_an_unargued_dependency_is_found():
    dep = {"name": "left-pad", "kind": None}
    crate = {"name": "x", "dependencies": [dep]}
    (finding,) = dependencies.missing("| `numpy` | arrays |", [crate], ["numpy"])
    assert "left-pad" in finding
    assert not dependencies.missing("`left-pad 1.0` and `NumPy`", [crate], ["numpy"])


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One thing\n[a](gone.md) [b](page.md#one-thing) [c](#nowhere) [d](https://example.org/x)\n")
    found = links.broken_links(page, page.read_text())
    assert len(found) == 2 and "gone.md" in found[0] and "#nowhere" in found[1]


def test_a_machine_path_is_found():
    private = "/ho" + "me/someone/x"
    assert machine_paths.findings_in("f", f"see {private}")
    assert not machine_paths.findings_in("f", "see target/work/x, $HOME/x and example.org/root/x")


PAGE = """
### Journal (`src/journal/`, version 3; version 1 is read too)
| 8 | 4 | version: 3 |
### Identity (`crates/server/src/identity.rs`, version 1)
"""
SOURCES = {
    "crates/store/src/journal/mod.rs": "const VERSION: u32 = 3;\nconst VERSION_MIN: u32 = 1;",
    "crates/server/src/identity.rs": 'const MAGIC: &str = "cenote-identity 1";',
}


def test_versions_as_stated_pass():
    assert not format_versions.check(PAGE, SOURCES)


def test_a_version_that_was_raised_is_found():
    raised = SOURCES | {"crates/store/src/journal/mod.rs": "const VERSION: u32 = 4;"}
    (finding,) = format_versions.check(PAGE, raised)
    assert "crates/store/src/journal" in finding and "4" in finding
    (finding,) = format_versions.check(PAGE, SOURCES | {"crates/server/src/identity.rs": '"cenote-identity 2"'})
    assert "identity" in finding


def test_a_table_that_says_otherwise_than_its_heading_is_found():
    (finding,) = format_versions.check(PAGE.replace("version: 3", "version: 2"), SOURCES)
    assert "its table 2" in finding


def test_an_encoding_that_is_not_described_is_found():
    (finding,) = format_versions.check(PAGE, SOURCES | {"crates/store/src/new.rs": "const NEW_VERSION: u32 = 1;"})
    assert "crates/store/src/new.rs" in finding


def function(lines: int, head: str = "fn long() {") -> str:
    """A function of so many lines."""
    return "\n".join([head, *["    work();"] * (lines - 2), "}"]) + "\n"


def test_functions_are_measured_from_their_head_to_their_end():
    text = """
impl Thing {
    pub(super) const unsafe fn first(
        &self,
    ) -> u64
    where
        u64: Copy,
    {
        fn inner() {
            work();
        }
        match self {
            _ => 1,
        }
    }
    fn short(&self) {}
    fn bodiless(
        &self,
    );
}
"""
    assert sizes.functions(text) == [("inner", 3), ("first", 13), ("bodiless", 3)]


def test_long_functions_are_counted_and_the_longest_refused():
    files, counts, findings = sizes.scan({"crates/store/src/x.rs": function(71) + function(111, "async fn most() {")})
    assert not files and counts == {"crates/store": 2}
    (finding,) = findings
    assert "`most` has 111 lines" in finding


def test_a_long_file_is_found():
    files, _, _ = sizes.scan({"crates/store/src/x.rs": "x\n" * 501, "crates/store/src/y.rs": "x\n" * 500})
    assert files == {"crates/store/src/x.rs": 501}


def test_frozen_numbers_may_only_fall():
    assert not frozen.compare("lines", {"x": 5}, {"x": 5})
    worse, new, better, gone = frozen.compare("lines", {"a": 6, "b": 1, "c": 4}, {"a": 5, "c": 5, "d": 1})
    assert "6, 5 before" in worse and new == "b: lines: 1"
    assert "`make fix` lowers it" in better and "d: lines: 0" in gone
    assert frozen.lowered({"a": 6, "b": 1, "c": 4}, {"a": 5, "c": 5, "d": 1}) == {"a": 5, "c": 4}


def test_a_wide_comment_is_found():
    text = f'// {"x" * 150}\nlet a = b; // {"x" * 150}\nlet url = "http://{"x" * 150}";\n'
    (finding,) = comments.wide("f.rs", text)
    assert finding.startswith("f.rs:2: 164 columns")


def test_a_module_without_a_head_is_found():
    sources = {
        "crates/x/src/a.rs": "use b;\n",
        "crates/x/src/b.rs": "//! What it is.\n",
        "crates/x/tests/c.rs": "use b;",
    }
    assert comments.silent(sources) == {"crates/x/src/a.rs": 1}


def test_a_room_without_absences_is_found():
    (finding,) = comments.without_absences("crates/x/src/lib.rs", "//! What it is.\nmod must_not_know;\n")
    assert "must not know" in finding
    assert not comments.without_absences("crates/x/src/lib.rs", "//! It must\n//! not know media.\n")
    assert not comments.without_absences("crates/x/src/other.rs", "//! What it is.\n")


def test_a_module_of_another_crate_is_found():
    here, there = '#[path = "../common/mod.rs"]\n', '    #[path = "../../../views/fuse/src/abi.rs"]\n'
    sources = {"crates/x/tests/a/main.rs": here, "crates/x/src/main.rs": there}
    assert module_paths.foreign(sources) == {"crates/x/src/main.rs": 1}


def test_a_library_has_the_same_features_in_all_release_builds():
    together = {"rustix v1": {"fs,termios"}, "tokio v1": {"net"}, "winnow v1": {"", "std"}, "tabled v1": {"std"}}
    assert not features.differences(together, {"tokio v1": {"net"}, "winnow v1": {""}, "pyo3 v1": {""}})
    (said,) = features.differences(together, {"rustix v1": {"fs"}, "tokio v1": {"net"}})
    assert said.startswith("rustix v1: built with `fs` and with `fs,termios`")
