//! Memory budget of an engine for values that can also be on a tier.

use cenote_model::{Error, ErrorKind, Result, size};
use cenote_store::Tuning;

/// Environment variable with the bytes of record values that stay in memory: a size, such as `512MiB`.
pub const VALUES_VARIABLE: &str = "CENOTE_VALUES_MEMORY";

/// Default: this part of the machine's memory, within bounds.
const PART: u64 = 16;
const BYTES_MIN: u64 = 64 << 20;
const BYTES_MAX: u64 = 4 << 30;

/// The engine's settings for this machine.
pub(crate) fn tuning() -> Result<Tuning> {
    let named = std::env::var(VALUES_VARIABLE).ok().filter(|text| !text.is_empty());
    let value_bytes = match named {
        Some(text) => size::parse(&text).map_err(|why| {
            Error::new(ErrorKind::InvalidInput, format!("{VALUES_VARIABLE}={text}"))
                .because(why)
                .try_next("give a size, as `512MiB`, or unset it")
        })?,
        None => (machine_bytes() / PART).clamp(BYTES_MIN, BYTES_MAX),
    };
    Ok(Tuning { value_bytes, ..Tuning::default() })
}

/// Memory of the machine, or this process's limit.
fn machine_bytes() -> u64 {
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
    crate::host::memory_bytes().min(limit.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_budget_is_a_part_of_memory() {
        assert!(super::machine_bytes() > 1 << 20, "this machine has memory");
        let bytes = super::tuning().unwrap().value_bytes;
        assert!((super::BYTES_MIN..=super::BYTES_MAX).contains(&bytes), "{bytes}");
    }
}
