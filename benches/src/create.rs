//! Creation of objects.

use std::fs::OpenOptions;

use cenote::{Durability, Mode, ObjectId};

use crate::Outcome;
use crate::measure::{Beside, Report, rate};
use crate::places::{BenchDir, container, memory};
use crate::reference::LoggedMap;

/// Objects with random-looking ids, many to a call, beside a map with a log and beside files on tmpfs.
pub fn create(report: &mut Report) -> Outcome {
    std::fs::create_dir_all(&report.settings.dir)?;
    let mut disk = BenchDir::on_disk(&report.settings.dir, "create")?;
    let tmpfs = BenchDir::in_memory("create")?;
    let store = disk.store("store", Mode::Daemon, vec![memory(64)])?;
    let count = report.settings.scaled(100_000);
    let ids = |round: u64| -> Vec<u128> {
        let spread = |n: u64| u128::from(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)) << 64 | u128::from(n);
        (0..count).map(|n| spread(round * count + n)).collect()
    };
    let container = container(&store, "bench", Durability::Async)?;
    let (mut round, mut other_round, mut file_round) = (0, 0, 0);
    let mut map = LoggedMap::new(&disk.path().join("log"), 256 << 20)?;
    report.pairs(
        "store.create",
        "1/s",
        &mut || {
            let ids: Vec<ObjectId> = ids(round).into_iter().map(ObjectId).collect();
            round += 1;
            rate(count, || {
                for chunk in ids.chunks(1024) {
                    container.create_objects(chunk, None)?;
                }
                Ok(())
            })
        },
        &mut [
            Beside {
                name: "BTreeMap + group-commit log",
                wanted: Some(0.4),
                run: &mut || {
                    let ids = ids(other_round);
                    other_round += 1;
                    rate(count, || map.add(&ids))
                },
            },
            Beside {
                name: "tmpfs file creation",
                wanted: Some(1.0),
                run: &mut || {
                    let dir = tmpfs.path().join(format!("round{file_round}"));
                    file_round += 1;
                    std::fs::create_dir_all(&dir)?;
                    let names: Vec<_> =
                        ids(0).iter().take(count as usize / 4).map(|id| dir.join(format!("{id:032x}"))).collect();
                    let made = rate(names.len() as u64, || {
                        for name in &names {
                            OpenOptions::new().write(true).create_new(true).open(name)?;
                        }
                        Ok(())
                    })?;
                    std::fs::remove_dir_all(&dir)?;
                    Ok(made)
                },
            },
        ],
    )
}
