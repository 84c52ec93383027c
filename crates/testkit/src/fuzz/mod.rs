//! Every decoder of untrusted bytes, as a plain function of bytes: content on media (superblock, checkpoint,
//! journal, stamps and segment headers), bytes that other processes write into shared memory or send (rings,
//! frames, messages, client files), and text that people type.
//!
//! The targets use the same entry points as real bytes, mend the checksums on the way (a fuzzer does not guess
//! them), and then use what was accepted. A target fails by a panic; memory and time are watched from outside. Two
//! drivers call them: libFuzzer (`make fuzz`, in `fuzz/`), and a bounded run of seeded mutations in the tests.

mod base;
mod media;
mod mend;
mod mutate;
mod packed;
mod packs;
mod talk;

use crate::rng::Rng;
pub use mutate::mutate;

/// A decoder under test.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is also that of the libFuzzer binary.
    pub name: &'static str,
    /// Decodes the bytes and uses the result. Must not panic.
    pub run: fn(&[u8]),
    /// Valid inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "superblock", run: media::superblock, seeds: media::superblock_seeds },
    Target { name: "stamp", run: media::stamp, seeds: media::stamp_seeds },
    Target { name: "checkpoint", run: media::checkpoint, seeds: media::checkpoint_seeds },
    Target { name: "profile", run: media::profile, seeds: media::profile_seeds },
    Target { name: "journal", run: media::journal, seeds: media::journal_seeds },
    Target { name: "segment", run: media::segment, seeds: media::segment_seeds },
    Target { name: "pack", run: packs::pack, seeds: packs::pack_seeds },
    Target { name: "catalogue", run: packs::catalogue, seeds: packs::catalogue_seeds },
    Target { name: "client_file", run: media::client_file, seeds: media::client_file_seeds },
    Target { name: "ring", run: talk::ring, seeds: talk::ring_seeds },
    Target { name: "frames", run: talk::frames, seeds: talk::frames_seeds },
    Target { name: "request", run: talk::request, seeds: talk::request_seeds },
    Target { name: "response", run: talk::response, seeds: talk::response_seeds },
    Target { name: "greeting", run: talk::greeting, seeds: talk::greeting_seeds },
    Target { name: "between", run: talk::between, seeds: talk::between_seeds },
    Target { name: "engine", run: talk::engine, seeds: talk::engine_seeds },
    Target { name: "packed", run: packed::unpack, seeds: packed::unpack_seeds },
    Target { name: "text", run: talk::text, seeds: talk::text_seeds },
];

/// The target of that name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

impl Target {
    /// Runs the seeds, and then `count` random mutations of them. Stops early when `go_on` returns false.
    pub fn run_mutations(&self, seed: u64, count: u64, mut go_on: impl FnMut(&[u8]) -> bool) -> u64 {
        let seeds = (self.seeds)();
        for input in &seeds {
            if !go_on(input) {
                return 0;
            }
            (self.run)(input);
        }
        let mut rng = Rng::new(seed);
        for done in 0..count {
            let input = mutate(&mut rng, &seeds);
            if !go_on(&input) {
                return done;
            }
            (self.run)(&input);
        }
        count
    }
}
