//! Policies written by users: rules in TOML, checked before they apply. `docs/policies.md` has the language.

mod check;
mod read;
mod text;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use cenote_model::Durability;

use crate::{DeviceView, Heat};

pub(crate) use text::duration_ms;
pub use text::{Bound, Glob, Hours};

/// A fault in a schema, and its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// The fault.
    pub what: String,
}

impl Fault {
    fn at(text: &str, span: &Range<usize>, what: String) -> Self {
        let (line, column) = Self::place(text, span);
        Self { line, column, what }
    }
    fn place(text: &str, span: &Range<usize>) -> (u32, u32) {
        let before = text.get(..span.start.min(text.len())).unwrap_or(text);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        (line as u32, column as u32)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.what)
    }
}

/// A name in a schema with its line and column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// Line and column.
    pub place: (u32, u32),
    /// The name.
    pub name: String,
}

/// Access pattern of a range, from its heat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Mostly one piece after the other.
    Sequential,
    /// Not sequential.
    Random,
    /// Written and never read.
    WriteOnly,
    /// Read more than written.
    ReadMostly,
}

impl Pattern {
    fn parse(word: &str) -> Result<Self, String> {
        match word {
            "sequential" => Ok(Self::Sequential),
            "random" => Ok(Self::Random),
            "write-only" => Ok(Self::WriteOnly),
            "read-mostly" => Ok(Self::ReadMostly),
            _ => Err(format!("pattern `{word}` is not one of sequential, random, write-only, read-mostly")),
        }
    }
    fn is_of(self, heat: &Heat) -> bool {
        match self {
            Self::Sequential => heat.is_sequential(),
            Self::Random => heat.was_read() && !heat.is_sequential(),
            Self::WriteOnly => !heat.was_read(),
            Self::ReadMostly => heat.read_bytes() > heat.written_bytes(),
        }
    }
}

/// The conditions of a rule, all of which must hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct When {
    /// Pattern of the container's label.
    pub label: Option<Glob>,
    /// Pattern of the object's name; an object without a name matches none.
    pub object: Option<Glob>,
    /// Bytes of the object, or of a new write.
    pub size: Option<Bound>,
    /// Milliseconds since the object was last written.
    pub age: Option<Bound>,
    /// Milliseconds since it was last read or written.
    pub idle: Option<Bound>,
    /// Access pattern.
    pub pattern: Option<Pattern>,
    /// Hours of the day.
    pub hours: Option<Hours>,
}

/// The object or range that a rule is evaluated on.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The container's label.
    pub label: &'a str,
    /// The object's name.
    pub name: Option<&'a str>,
    /// Bytes of the object.
    pub bytes: u64,
    /// Milliseconds since it was last written.
    pub age_ms: u64,
    /// Milliseconds since its last use, if known from another source than its heat.
    pub idle_ms: Option<u64>,
    /// Its usage.
    pub heat: Option<&'a Heat>,
    /// Milliseconds of the clock of heat.
    pub now_ms: u64,
    /// Milliseconds since 1970.
    pub now_unix_ms: u64,
}

impl When {
    /// Returns true if all conditions hold.
    pub fn holds(&self, of: &Subject<'_>) -> bool {
        let idle_ms = || of.idle_ms.or_else(|| of.heat?.idle_ms(of.now_ms)).unwrap_or(0);
        self.label.as_ref().is_none_or(|glob| glob.matches(of.label))
            && self.object.as_ref().is_none_or(|glob| of.name.is_some_and(|name| glob.matches(name)))
            && self.size.is_none_or(|bound| bound.holds(of.bytes))
            && self.age.is_none_or(|bound| bound.holds(of.age_ms))
            && self.idle.is_none_or(|bound| bound.holds(idle_ms()))
            && self.pattern.is_none_or(|pattern| of.heat.is_some_and(|heat| pattern.is_of(heat)))
            && self.hours.is_none_or(|hours| hours.holds(of.now_unix_ms))
    }
}

/// Prefetch depth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefetch {
    /// No prefetching.
    Off,
    /// As far as predictions come true.
    Auto,
    /// At most this many ranges.
    Depth(u32),
}

/// A part of a tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Budget {
    /// Number of bytes.
    Bytes(u64),
    /// Thousandths of the tier's capacity.
    Permille(u64),
}

impl Budget {
    /// Its bytes on that tier.
    pub fn bytes_of(self, device: &DeviceView) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Permille(part) => (u128::from(device.capacity_bytes) * u128::from(part) / 1000) as u64,
        }
    }
}

/// A placement rule; the first matching one decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Line and column of its name.
    pub place: (u32, u32),
    /// Its name.
    pub name: Arc<str>,
    /// Its conditions.
    pub when: When,
    /// Tiers, in order of preference; empty: the fallback decides.
    pub tiers: Vec<Named>,
    /// True if ranges stay there.
    pub pin: bool,
    /// Durability of updates.
    pub mode: Option<Durability>,
    /// Prefetch depth.
    pub prefetch: Option<Prefetch>,
    /// Ranges move down after this time without use.
    pub demote_after_ms: Option<u64>,
    /// The tier that they move down to; `None`: the next lower one.
    pub demote_to: Option<Named>,
    /// Upper bound of the rule's ranges on its first tier.
    pub budget: Option<((u32, u32), Budget)>,
    /// The rule to follow if none of its tiers has room.
    pub otherwise: Option<Named>,
}

/// The action of a life-cycle rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LifecycleAction {
    /// Demotes to that tier.
    Demote(Named),
    /// Archives on that tier, or the lowest.
    Archive(Option<Named>),
    /// Drops a copy that durability does not need.
    DeleteCopy,
    /// Removes ranges with a copy on that tier, or the lowest, from the faster tiers.
    Release(Option<Named>),
    /// Deletes the object.
    Delete,
}

/// A life-cycle rule: its action on ageing data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lifecycle {
    /// Line and column of its name.
    pub place: (u32, u32),
    /// Its name.
    pub name: Arc<str>,
    /// Its conditions.
    pub when: When,
    /// Its action.
    pub action: LifecycleAction,
}

/// A policy written by a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schema {
    /// Name of the policy for data without a rule.
    pub fallback: String,
    /// The placement rules, in order.
    pub rules: Vec<Rule>,
    /// The life-cycle rules, in order.
    pub lifecycle: Vec<Lifecycle>,
}

impl Schema {
    /// Parses a schema.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let schema = read::read(text)?;
        check::cycles(&schema)?;
        Ok(schema)
    }
    /// All faults of the schema for these tiers: unknown tiers, budgets beyond capacity, demotion upwards, bytes that
    /// must be persistent on a volatile tier. Empty if the schema is valid.
    pub fn check(&self, devices: &[DeviceView]) -> Vec<Fault> {
        check::against(self, devices)
    }
    /// The first matching rule.
    pub fn rule_for(&self, of: &Subject<'_>) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.when.holds(of))
    }
    /// Durability of new objects of that kind, if a rule sets it.
    pub fn mode_for(&self, of: &Subject<'_>) -> Option<Durability> {
        self.rules.iter().filter(|rule| rule.when.holds(of)).find_map(|rule| rule.mode)
    }
    /// Prefetch depth for such objects, if a rule sets it.
    pub fn prefetch_for(&self, of: &Subject<'_>) -> Option<Prefetch> {
        self.rules.iter().filter(|rule| rule.when.holds(of)).find_map(|rule| rule.prefetch)
    }
}
