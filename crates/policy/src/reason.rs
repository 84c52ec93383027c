//! Reasons of decisions: values that become sentences only when somebody reads them.

use std::fmt;
use std::sync::Arc;

use crate::view::{DeviceView, bytes_words, ns_words};

/// The reason of a decision. `Display` formats the sentence.
#[derive(Clone, PartialEq, Debug)]
pub enum Reason {
    /// Nothing had to be decided.
    Nothing,
    /// The first tier in order, with room.
    First {
        /// The tier.
        tier: Arc<str>,
    },
    /// The first tier below its high watermark.
    Spill {
        /// The tier.
        tier: Arc<str>,
        /// The previous tier in order.
        above: Arc<str>,
        /// Use of the previous tier.
        above_percent: u8,
    },
    /// Every tier is above its high watermark.
    PastWatermarks {
        /// The first tier with room.
        tier: Arc<str>,
    },
    /// Data that leave fast tiers to others.
    Bypass {
        /// The tier.
        tier: Arc<str>,
    },
    /// As much as fits goes here; the rest asks again.
    Split {
        /// The tier.
        tier: Arc<str>,
        /// Bytes that go there.
        bytes: u64,
        /// Expected time of all.
        expected_ns: f64,
        /// Expected time of the next best choice.
        instead_ns: f64,
    },
    /// A higher tier is skipped.
    Skip {
        /// The tier chosen.
        tier: Arc<str>,
        /// The skipped tier.
        skipped: Arc<str>,
        /// Expected time.
        expected_ns: f64,
        /// Expected time of the next best choice.
        instead_ns: f64,
    },
    /// Room is made first.
    FlushFirst {
        /// The tier where room is made.
        tier: Arc<str>,
        /// Expected time.
        expected_ns: f64,
        /// Expected time of the next best choice.
        instead_ns: f64,
    },
    /// The rest of the dispersion unit is there, or its share is smallest there.
    Unit {
        /// The tier.
        tier: Arc<str>,
        /// Thousandths of the unit that are there.
        held_permille: u16,
        /// Thousandths of the unit that should be there.
        wanted_permille: u16,
    },
    /// The score belongs on that tier.
    Heat {
        /// The tier.
        tier: Arc<str>,
        /// The score.
        score: f32,
        /// The lowest score that belongs there.
        from_score: f32,
    },
    /// A rule of the user's schema.
    Rule {
        /// The rule's name.
        rule: Arc<str>,
        /// Its line in the schema.
        line: u32,
        /// The tier.
        tier: Arc<str>,
    },
    /// The least expected time.
    Expected {
        /// The tier.
        tier: Arc<str>,
        /// Expected time.
        expected_ns: f64,
        /// The second-best tier.
        instead: Arc<str>,
        /// Expected time of the second-best tier.
        instead_ns: f64,
    },
    /// Room is kept for an expected burst.
    Reserve {
        /// The tier.
        tier: Arc<str>,
        /// Bytes of the burst.
        bytes: u64,
        /// Milliseconds until it is expected.
        in_ms: u64,
    },
    /// It will be read soon.
    ReadSoon {
        /// The tier where it should be.
        tier: Arc<str>,
        /// Reads expected in the horizon.
        reads: f32,
        /// Milliseconds until the next one, if known.
        in_ms: Option<u64>,
    },
    /// Other ranges make better use of its place.
    LessUse {
        /// The tier that it leaves.
        tier: Arc<str>,
        /// Reads expected in the horizon.
        reads: f32,
        /// Milliseconds since its last use.
        idle_ms: u64,
    },
    /// Its tier is above the high watermark.
    AboveHigh {
        /// The tier that it leaves.
        tier: Arc<str>,
        /// Use of that tier.
        percent: u8,
        /// Milliseconds since its last use.
        idle_ms: u64,
        /// True if a copy exists below.
        copied: bool,
    },
    /// Its tier is being emptied.
    Draining {
        /// The tier that it leaves.
        tier: Arc<str>,
    },
    /// The selected policy failed.
    Fallback {
        /// Its name.
        policy: Arc<str>,
        /// The failure.
        because: Arc<str>,
        /// The decision made instead.
        then: Box<Reason>,
    },
    /// A sentence from elsewhere.
    Text(Arc<str>),
}

impl Reason {
    /// The tier is above its high watermark, or being emptied.
    pub fn leaves(device: &DeviceView, idle_ms: u64, copied: bool) -> Self {
        let tier = Arc::clone(&device.name);
        if device.is_online() {
            Self::AboveHigh { tier, percent: device.use_percent(), idle_ms, copied }
        } else {
            Self::Draining { tier }
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => write!(f, "nothing has to be done"),
            Self::First { tier } => write!(f, "`{tier}` is the first tier in order and below its high watermark"),
            Self::Spill { tier, above, above_percent } => {
                write!(f, "`{tier}` is the first tier below its high watermark; before it: `{above}` {above_percent}%")
            }
            Self::PastWatermarks { tier } => {
                write!(f, "every tier is above its high watermark; `{tier}` is the first that still has room")
            }
            Self::Bypass { tier } => write!(f, "`{tier}` is the slowest persistent tier with room, as bypass asks"),
            Self::Split { tier, bytes, expected_ns, instead_ns } => write!(
                f,
                "`{tier}` takes {} of it and the rest goes below: {} expected, else {}",
                bytes_words(*bytes),
                ns_words(*expected_ns),
                ns_words(*instead_ns)
            ),
            Self::Skip { tier, skipped, expected_ns, instead_ns } => write!(
                f,
                "`{tier}` instead of `{skipped}`, which has no room: {} expected, else {}",
                ns_words(*expected_ns),
                ns_words(*instead_ns)
            ),
            Self::FlushFirst { tier, expected_ns, instead_ns } => write!(
                f,
                "waits until `{tier}` has room: {} expected, else {}",
                ns_words(*expected_ns),
                ns_words(*instead_ns)
            ),
            Self::Unit { tier, held_permille, wanted_permille } => write!(
                f,
                "`{tier}` has {}% of its unit and should have {}%",
                f64::from(*held_permille) / 10.0,
                f64::from(*wanted_permille) / 10.0
            ),
            Self::Heat { tier, score, from_score } => {
                write!(f, "a heat of {score:.2} belongs on `{tier}`, which holds what has {from_score:.2} or more")
            }
            Self::Rule { rule, line, tier } => write!(f, "rule `{rule}` (line {line}) says `{tier}`"),
            Self::Expected { tier, expected_ns, instead, instead_ns } => write!(
                f,
                "`{tier}` has it soonest: {} expected, on `{instead}` {}",
                ns_words(*expected_ns),
                ns_words(*instead_ns)
            ),
            Self::Reserve { tier, bytes, in_ms } => {
                write!(f, "room on `{tier}` for {} expected in {in_ms} ms", bytes_words(*bytes))
            }
            Self::ReadSoon { tier, reads, in_ms } => {
                write!(f, "{reads:.2} reads expected")?;
                if let Some(in_ms) = in_ms {
                    write!(f, ", the next in {in_ms} ms")?;
                }
                write!(f, ": `{tier}` serves them sooner")
            }
            Self::LessUse { tier, reads, idle_ms } => {
                write!(
                    f,
                    "{reads:.2} reads expected, idle for {idle_ms} ms: others have more use for its place on `{tier}`"
                )
            }
            Self::AboveHigh { tier, percent, idle_ms, copied } => {
                let copied = if *copied { ", with a copy below" } else { "" };
                write!(f, "`{tier}` is above its high watermark with {percent}%; idle for {idle_ms} ms{copied}")
            }
            Self::Draining { tier } => write!(f, "`{tier}` is being emptied"),
            Self::Fallback { policy, because, then } => write!(f, "policy `{policy}` {because}; instead: {then}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_sentences() {
        let tier: Arc<str> = "ssd".into();
        let split = Reason::Split { tier: Arc::clone(&tier), bytes: 3 << 20, expected_ns: 1.5e6, instead_ns: 2.5e9 };
        assert_eq!(split.to_string(), "`ssd` takes 3 MiB of it and the rest goes below: 1.5 ms expected, else 2.5 s");
        let fallback = Reason::Fallback {
            policy: "mine".into(),
            because: "panicked".into(),
            then: Box::new(Reason::First { tier }),
        };
        assert!(fallback.to_string().starts_with("policy `mine` panicked; instead: `ssd`"), "{fallback}");
    }
}
