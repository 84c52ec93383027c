//! Two Python processes with h5py and one shared file in the store, beside a native file for each on tmpfs.

use std::path::PathBuf;
use std::process::Command;

use crate::Outcome;
use crate::measure::{Beside, Report};
use crate::places::Place;

fn connector() -> Outcome<PathBuf> {
    let given = std::env::var_os("HDF5_PLUGIN_PATH").map(PathBuf::from);
    let built = [PathBuf::from("build/hdf5"), PathBuf::from("target/release")];
    for dir in given.into_iter().chain(built) {
        if dir.join("libcenote_hdf5.so").exists() {
            return Ok(dir.canonicalize()?);
        }
    }
    Err("the connector is not built (make build)".into())
}

fn python() -> PathBuf {
    let own = PathBuf::from(".venv/bin/python");
    if own.exists() { own } else { PathBuf::from("python3") }
}

/// Runs the pair of processes; MiB/s of write and of read.
fn run(words: &[&str], settings: &[(&str, String)]) -> Outcome<(f64, f64)> {
    let script = PathBuf::from("benches/hdf5_pair.py");
    let mut command = Command::new(python());
    command.arg(script).args(words);
    command.env_remove("HDF5_VOL_CONNECTOR");
    for (name, value) in settings {
        command.env(name, value);
    }
    let output = command.output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(text.lines().last().unwrap_or("the Python processes failed").to_owned().into());
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let figures: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [write, read] = figures[..] else { return Err(format!("unexpected: {text}").into()) };
    Ok((write, read))
}

/// Writes and reads, 1 MiB pieces, two processes.
pub fn both(report: &mut Report) -> Outcome {
    let plugins = connector()?;
    let mib = report.settings.scaled(512).max(64).to_string();
    let place = Place::in_memory("hdf5")?;
    let store_dir = place.path().join("store");
    std::fs::create_dir_all(&store_dir)?;
    let ours_env = [
        ("HDF5_PLUGIN_PATH", plugins.to_string_lossy().into_owned()),
        ("HDF5_VOL_CONNECTOR", "cenote".to_owned()),
        ("CENOTE_STORE", store_dir.to_string_lossy().into_owned()),
    ];
    let native = place.path().join("native");
    std::fs::create_dir_all(&native)?;
    let (shared, native) = (store_dir.join("shared.h5"), native);
    let (shared, native) = (shared.to_string_lossy().into_owned(), native.to_string_lossy().into_owned());
    // Each run gives both figures; the second bar measures again, so that its pairs alternate too.
    for (bar, wanted, pick) in [("hdf5.write_1m", 1.5, 0), ("hdf5.read_1m", 1.0, 1)] {
        let choose = |figures: (f64, f64)| if pick == 0 { figures.0 } else { figures.1 };
        report.pairs(
            bar,
            "MiB/s",
            &mut || run(&["shared", &shared, &mib], &ours_env).map(choose),
            &mut [Beside {
                name: "native HDF5 on tmpfs, file per process",
                wanted: Some(wanted),
                run: &mut || run(&["own", &native, &mib], &[]).map(choose),
            }],
        )?;
    }
    Ok(())
}
