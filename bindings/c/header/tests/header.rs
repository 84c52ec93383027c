//! The committed header matches the source. `CENOTE_BLESS=1` writes it instead (`check-header.sh --fix`).

use std::path::{Path, PathBuf};

/// In the order for readers of the header.
const SOURCES: [&str; 11] =
    ["version", "error", "types", "store", "container", "object", "op", "index", "transaction", "range", "inspect"];

/// The directory of `cenote-c`.
fn c_interface() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn generated(root: &Path) -> String {
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in SOURCES {
        builder = builder.with_src(root.join("src").join(name).with_extension("rs"));
    }
    let mut bytes = Vec::new();
    builder.generate().expect("the source parses").write(&mut bytes);
    String::from_utf8(bytes).expect("the header is UTF-8")
}

#[test]
fn the_header_is_what_the_source_says() {
    let root = c_interface();
    let file = root.join("include/cenote.h");
    let wanted = generated(&root);
    if std::env::var_os("CENOTE_BLESS").is_some() {
        std::fs::write(&file, &wanted).expect("the header can be written");
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = wanted.lines().zip(found.lines()).position(|(wanted, found)| wanted != found);
    assert!(
        wanted == found,
        "include/cenote.h is not what the source says (first at line {}): run bindings/c/check-header.sh --fix",
        differs.unwrap_or_else(|| wanted.lines().count().min(found.lines().count())) + 1
    );
}

#[test]
fn every_function_and_type_has_a_comment() {
    let header = generated(&c_interface());
    let lines: Vec<&str> = header.lines().collect();
    let mut functions = 0;
    for (at, line) in lines.iter().enumerate() {
        let starts = (line.contains("cenote_") && line.contains('(') && !line.starts_with([' ', '/', '*', '#']))
            || line.starts_with("#define CENOTE_") && *line != "#define CENOTE_H"
            || line.starts_with("typedef struct");
        if starts {
            functions += usize::from(line.contains('('));
            assert!(lines[at - 1].trim_end().ends_with("*/"), "no comment above: {line}");
        }
    }
    assert!(functions > 60, "only {functions} functions found");
}
