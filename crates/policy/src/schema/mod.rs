//! Policies written by users: rules in TOML, checked before anything follows them. `docs/policies.md` has the language.

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

/// What is wrong with a schema, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The line, from 1 on.
    pub line: u32,
    /// The column in characters, from 1 on.
    pub column: u32,
    /// What is wrong.
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

/// How ranges are used, as heat shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Mostly one piece after the other.
    Sequential,
    /// Not so.
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

/// When a rule speaks of something: all that is said must hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct When {
    /// Pattern of the container's label.
    pub label: Option<Glob>,
    /// Pattern of the object's name; an object without a name is none of any.
    pub object: Option<Glob>,
    /// Bytes of the object; of bytes that are just written, of these.
    pub size: Option<Bound>,
    /// Milliseconds since the object was last written.
    pub age: Option<Bound>,
    /// Milliseconds since it was last read or written.
    pub idle: Option<Bound>,
    /// How it is used.
    pub pattern: Option<Pattern>,
    /// Hours of the day.
    pub hours: Option<Hours>,
}

/// What a rule is asked about.
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
    /// Milliseconds since it was last used, if that is known otherwise than by its heat.
    pub idle_ms: Option<u64>,
    /// How it has been used.
    pub heat: Option<&'a Heat>,
    /// Milliseconds of the clock of heat.
    pub now_ms: u64,
    /// Milliseconds since 1970.
    pub now_unix_ms: u64,
}

impl When {
    /// True if all that is said holds.
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

/// How far ahead is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefetch {
    /// Not at all.
    Off,
    /// As far as it proves right.
    Auto,
    /// At most so many ranges.
    Depth(u32),
}

/// A part of a tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// So many bytes.
    Bytes(u64),
    /// Thousandths of its capacity.
    Permille(u64),
}

impl Share {
    /// The bytes of it on that tier.
    pub fn bytes_of(self, device: &DeviceView) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Permille(part) => (u128::from(device.capacity_bytes) * u128::from(part) / 1000) as u64,
        }
    }
}

/// A rule of placement; the first that holds decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Line and column of its name.
    pub place: (u32, u32),
    /// Its name.
    pub name: Arc<str>,
    /// When it holds.
    pub when: When,
    /// Tiers, in order of preference; none: where the fallback puts it.
    pub tiers: Vec<Named>,
    /// It stays there.
    pub pin: bool,
    /// When updates are acknowledged.
    pub mode: Option<Durability>,
    /// How far ahead is read.
    pub prefetch: Option<Prefetch>,
    /// It leaves after so long without use…
    pub demote_after_ms: Option<u64>,
    /// …to that tier, or to the next below.
    pub demote_to: Option<Named>,
    /// Most of its first tier that what the rule speaks of may take.
    pub budget: Option<((u32, u32), Share)>,
    /// The rule to follow if none of its tiers has room.
    pub otherwise: Option<Named>,
}

/// What a life-cycle rule does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LifecycleAction {
    /// To that tier.
    Demote(Named),
    /// To that tier, or the lowest.
    Archive(Option<Named>),
    /// A copy that durability does not need is given up.
    DeleteCopy,
    /// What has its copy on that tier, or the lowest, leaves the faster ones.
    Release(Option<Named>),
    /// The object is deleted.
    Delete,
}

/// A rule of the life cycle: what happens as things age.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lifecycle {
    /// Line and column of its name.
    pub place: (u32, u32),
    /// Its name.
    pub name: Arc<str>,
    /// When it holds.
    pub when: When,
    /// What it does.
    pub action: LifecycleAction,
}

/// A policy written by a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schema {
    /// Name of the policy for what no rule speaks of.
    pub fallback: String,
    /// The rules, in order.
    pub rules: Vec<Rule>,
    /// The life cycle, in order.
    pub lifecycle: Vec<Lifecycle>,
}

impl Schema {
    /// Reads a schema.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let schema = read::read(text)?;
        check::cycles(&schema)?;
        Ok(schema)
    }
    /// Everything that is wrong with it for these tiers: unknown ones, budgets beyond capacity, demotion upwards, bytes that
    /// must be persistent on a tier that is not. Empty: it can be followed.
    pub fn check(&self, devices: &[DeviceView]) -> Vec<Fault> {
        check::against(self, devices)
    }
    /// The first rule that holds.
    pub fn rule_for(&self, of: &Subject<'_>) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.when.holds(of))
    }
    /// What new objects of that kind are to be acknowledged by, if a rule says so.
    pub fn mode_for(&self, of: &Subject<'_>) -> Option<Durability> {
        self.rules.iter().filter(|rule| rule.when.holds(of)).find_map(|rule| rule.mode)
    }
    /// How far ahead such objects are read, if a rule says so.
    pub fn prefetch_for(&self, of: &Subject<'_>) -> Option<Prefetch> {
        self.rules.iter().filter(|rule| rule.when.holds(of)).find_map(|rule| rule.prefetch)
    }
}
