//! The times of a cluster. All nodes must have the same: they are part of what makes leases safe.

/// Times in microseconds, and bounds. [`Default`] is for a job's nodes on one network.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// How often a node tells the register that it lives, and asks for the view.
    pub beat_us: u64,
    /// How long an answer of the register lets a host act, from when it asked.
    pub lease_us: u64,
    /// No clock gains or loses more than so many millionths. It must go on while the machine sleeps
    /// (`CLOCK_BOOTTIME`).
    pub drift_ppm_max: u64,
    /// Nobody is suspected for a shorter silence…
    pub silence_us_min: u64,
    /// …and everybody is for a longer one, whatever was learned.
    pub silence_us_max: u64,
    /// How long a node is waited for whose machine answers and refuses connections: its daemon may be started again, and what
    /// it had in shared memory is there. A daemon tells that it lives before it opens its home, however long that takes.
    pub restart_us_max: u64,
    /// A node that was excluded once lately is readmitted after so long; each further exclusion doubles this…
    pub damp_us_min: u64,
    /// …up to this.
    pub damp_us_max: u64,
    /// Exclusions are forgotten after so long.
    pub flap_us_window: u64,
    /// A difference of clocks on the wall that is worth telling.
    pub clock_us_max: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            beat_us: 100_000,
            lease_us: 800_000,
            drift_ppm_max: 1000,
            silence_us_min: 500_000,
            silence_us_max: 5_000_000,
            restart_us_max: 700_000,
            damp_us_min: 2_000_000,
            damp_us_max: 600_000_000,
            flap_us_window: 3_600_000_000,
            clock_us_max: 1_000_000,
        }
    }
}
