//! Large pieces on the file tier, beside fio in the same directory.

use std::hint::black_box;
use std::path::Path;
use std::process::Command;

use cenote::{Durability, Mode, Object, Store};

use crate::Outcome;
use crate::measure::{Beside, Report, rate};
use crate::places::{BenchDir, container, file};

const MIB: usize = 1 << 20;

struct Bench {
    _store: Store,
    object: Object,
    place: BenchDir,
    span: usize,
}

fn bench(report: &Report, name: &str) -> Outcome<Bench> {
    std::fs::create_dir_all(&report.settings.dir)?;
    let span = report.settings.scaled(512) as usize * MIB;
    let mut place = BenchDir::on_disk(&report.settings.dir, name)?;
    let tier = file(place.path().join("tier"), 2 * (span as u64 >> 20) + 256);
    let store = place.store("store", Mode::Daemon, vec![tier])?;
    let object = container(&store, "bench", Durability::Async)?.create_object(None, Some(20))?;
    let piece = vec![3u8; MIB];
    // Write all of the tier's file once, as fio does before it measures: at the first write to a block of a
    // preallocated file, the file system records that the block has data.
    for _ in 0..4 {
        for at in (0..span).step_by(MIB) {
            object.write_at(at as u64, &piece)?;
        }
    }
    Ok(Bench { _store: store, object, place, span })
}

/// MiB/s that fio reports, direct, one request at a time.
fn fio(dir: &Path, rw: &str, span: usize) -> Outcome<f64> {
    let output = Command::new("fio")
        .args(["--name=bench", "--filename=fio.data", "--bs=1M", "--direct=1", "--ioengine=psync", "--iodepth=1"])
        .args(["--output-format=json", "--overwrite=1", "--fallocate=posix"])
        .arg(format!("--rw={rw}"))
        .arg(format!("--size={span}"))
        .current_dir(dir)
        .output()
        .map_err(|e| format!("fio does not run (Debian package fio): {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let section = text.find(&format!("\"{rw}\" : {{")).ok_or("fio gave no figures")?;
    let field = "\"bw_bytes\" : ";
    let at = section + text[section..].find(field).ok_or("fio gave no bandwidth")? + field.len();
    let digits: String = text[at..].chars().take_while(char::is_ascii_digit).collect();
    Ok(digits.parse::<f64>()? / MIB as f64)
}

/// 1 MiB puts.
pub fn file_put_1m(report: &mut Report) -> Outcome {
    let bench = bench(report, "fileput")?;
    let data = vec![5u8; MIB];
    report.pairs(
        "store.file_put_1m",
        "MiB/s",
        &mut || {
            rate((bench.span / MIB) as u64, || {
                for at in (0..bench.span).step_by(MIB) {
                    bench.object.write_at(at as u64, &data)?;
                }
                Ok(())
            })
        },
        &mut [Beside {
            name: "fio, direct, 1 MiB, depth 1",
            wanted: Some(0.9),
            run: &mut || fio(bench.place.path(), "write", bench.span),
        }],
    )
}

/// 1 MiB gets.
pub fn file_get_1m(report: &mut Report) -> Outcome {
    let bench = bench(report, "fileget")?;
    let mut buf = vec![0u8; MIB];
    report.pairs(
        "store.file_get_1m",
        "MiB/s",
        &mut || {
            rate((bench.span / MIB) as u64, || {
                for at in (0..bench.span).step_by(MIB) {
                    bench.object.read_at(at as u64, &mut buf)?;
                    black_box(&mut buf);
                }
                Ok(())
            })
        },
        &mut [Beside {
            name: "fio, direct, 1 MiB, depth 1",
            wanted: Some(0.9),
            run: &mut || fio(bench.place.path(), "read", bench.span),
        }],
    )
}
