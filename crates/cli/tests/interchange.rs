//! `import` and `export` without a source: refused before anything is created. Tests with HDF5 are in `views/hdf5/tests`.

mod common;

use std::ffi::OsString;

use common::TestDir;

fn names(place: &TestDir) -> Vec<OsString> {
    let mut names: Vec<_> = std::fs::read_dir(&place.dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn what_cannot_begin_changes_nothing() {
    let place = TestDir::served();
    place.file("there", 10);
    let before = names(&place);
    for (args, word) in [
        (&["import", "none.h5", "x.h5"][..], "none.h5"),
        (&["import", "there"], "-f"),
        (&["import", "there", "there"], "-f"),
        (&["import", "--hdf5", "there", "there", "x.h5"], "1.14"),
        (&["export", "there"], "another path"),
        (&["export", "--hdf5", "there", "there", "x.h5"], "1.14"),
    ] {
        let said = place.run(args.iter());
        assert_eq!(said.code, 1, "{args:?}: {said:?}");
        assert!(said.err.contains(word), "{args:?}: {said:?}");
    }
    assert_eq!(names(&place), before);
}
