//! A file tier with compression beside one without, for numbers, text and noise; and reading from it beside the codecs
//! alone, on one core each.

use std::hint::black_box;
use std::path::Path;

use cenote::{Arrange, ArrangeTarget, Durability, Mode, Object, Store};

use crate::Outcome;
use crate::measure::{Beside, Report, rate};
use crate::places::{BenchDir, container, file, memory};

const MIB: usize = 1 << 20;
/// Bytes that a codec gets at once, as from the store.
const UNIT: usize = 64 << 10;
const SPAN: usize = 64 * MIB;

/// A slowly changing field, in numbers of 4 bytes whose lowest bits are noise.
fn floats() -> Vec<u8> {
    let mut random = 1u64;
    let mut noise = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as f32 / (1u64 << 31) as f32
    };
    let mut value = |i: usize| 273.0 + (i as f32 * 1e-3).sin() * 20.0 + noise() * 0.01;
    (0..SPAN / 4).flat_map(|i| value(i).to_le_bytes()).collect()
}

/// The documentation of this repository, repeated.
fn text() -> Outcome<Vec<u8>> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let mut pages: Vec<_> = std::fs::read_dir(docs)?.flatten().map(|entry| entry.path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    let all: Vec<u8> = pages.iter().map(std::fs::read).collect::<Result<Vec<_>, _>>()?.concat();
    Ok(all.iter().copied().cycle().take(SPAN).collect())
}

fn noise() -> Vec<u8> {
    let mut random = 88_172_645_463_325_252u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    (0..SPAN / 8).flat_map(|_| next().to_le_bytes()).collect()
}

/// A store with an object in memory and on a file tier.
struct Bench {
    store: Store,
    object: Object,
    _place: BenchDir,
}

impl Bench {
    fn new(report: &Report, name: &str, compress: &str) -> Outcome<Self> {
        std::fs::create_dir_all(&report.settings.dir)?;
        let mut place = BenchDir::on_disk(&report.settings.dir, name)?;
        let mut tier = file(place.path().join("tier"), 4 * (SPAN as u64 >> 20));
        tier.options.set("compress", compress);
        let store = place.store("store", Mode::InProcess, vec![memory(4 * (SPAN as u64 >> 20)), tier])?;
        let object = container(&store, "bench", Durability::Async)?.create_object(None, Some(20))?;
        Ok(Self { store, object, _place: place })
    }
    /// Writes until durable; returns MiB/s.
    fn write(&self, data: &[u8]) -> Outcome<f64> {
        rate((SPAN / MIB) as u64, || {
            for (n, piece) in data.chunks(MIB).enumerate() {
                self.object.write_at((n * MIB) as u64, piece)?;
            }
            Ok(self.store.flush()?)
        })
    }
    /// Reads from the file tier; returns MiB/s.
    fn read(&self, buf: &mut [u8]) -> Outcome<f64> {
        self.store.arrange(&ArrangeTarget::Object(self.object.key()), &Arrange::Evict, false)?;
        rate((SPAN / MIB) as u64, || {
            for at in (0..SPAN).step_by(MIB) {
                black_box(self.object.read_at(at as u64, buf)?);
            }
            Ok(())
        })
    }
    /// Bytes in use on the tier.
    fn used(&self) -> Outcome<f64> {
        let tiers = self.store.devices()?;
        Ok(tiers.iter().find(|tier| tier.spec.name == "file").map_or(0.0, |tier| tier.used_bytes as f64))
    }
}

/// Decompresses what a codec alone made of units, without shuffle or checks; returns MiB/s.
fn bare(compress: &str, data: &[u8]) -> Outcome<f64> {
    let is_lz4 = compress == "lz4";
    let pack = |unit: &[u8]| {
        if is_lz4 { lz4_flex::block::compress(unit) } else { zstd::bulk::compress(unit, 1).unwrap_or_default() }
    };
    let packed: Vec<Vec<u8>> = data.chunks(UNIT).take(SPAN / UNIT / 4).map(pack).collect();
    let mut context = zstd::bulk::Decompressor::new()?;
    let mut out = vec![0; UNIT];
    rate((packed.len() * UNIT / MIB) as u64, || {
        for unit in &packed {
            let len = if is_lz4 {
                lz4_flex::block::decompress_into(unit, &mut out)?
            } else {
                context.decompress_to_buffer(unit, &mut out[..])?
            };
            black_box(len);
        }
        Ok(())
    })
}

/// Runs all cases.
pub fn packing(report: &mut Report) -> Outcome {
    let mut buf = vec![0; MIB];
    for (what, data) in [("floats", floats()), ("text", text()?), ("noise", noise())] {
        for compress in ["lz4", "zstd", "auto"] {
            let plain = Bench::new(report, &format!("{what}-plain-{compress}"), "none")?;
            let packed = Bench::new(report, &format!("{what}-{compress}"), compress)?;
            report.pairs(
                &format!("packed.put.{what}.{compress}"),
                "MiB/s",
                &mut || packed.write(&data),
                &mut [Beside { name: "not compressed", wanted: None, run: &mut || plain.write(&data) }],
            )?;
            let (used, whole) = (packed.used()?, plain.used()?);
            report.note(
                &format!("packed.space.{what}.{compress}"),
                "MiB",
                used / MIB as f64,
                "MiB, not compressed",
                whole / MIB as f64,
            );
            let mut other = vec![0; MIB];
            report.pairs(
                &format!("packed.get.{what}.{compress}"),
                "MiB/s",
                &mut || packed.read(&mut buf),
                &mut [
                    Beside { name: "not compressed", wanted: None, run: &mut || plain.read(&mut other) },
                    Beside { name: "the codec alone, in memory", wanted: None, run: &mut || bare(compress, &data) },
                ],
            )?;
        }
    }
    Ok(())
}
