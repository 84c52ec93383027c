//! `user`: follows a schema in TOML ([`crate::schema`]); where no rule applies, its fallback decides.
//!
//! New bytes go to the first tier of the first matching rule, as far as that tier has room (and the rule's budget
//! allows); else to its next tier; then by the rule named in `else`; then by the fallback. Plans move ranges up to the
//! tier that their rule wants, move ranges down that were idle for long enough, and apply the life cycle. A tier that
//! is gone is skipped.

use std::sync::Arc;

use super::by_name;
use crate::guard::copy_is_spare;
use crate::place::Refusal;
use crate::schema::{LifecycleAction, Named, Rule, Schema, Subject};
use crate::view::order;
use crate::{Action, Decision, DeviceView, Incoming, Limits, Plan, Planned, Policy, RangeView, Reason};

/// The policy `user`.
pub struct User {
    schema: Arc<Schema>,
    fallback: Arc<dyn Policy>,
}

impl User {
    /// Follows the given schema.
    pub fn new(schema: Arc<Schema>) -> Self {
        let fallback = by_name(&schema.fallback).unwrap_or_else(|| Arc::new(super::FastFirst));
        Self { schema, fallback }
    }
    /// The schema.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }
    fn rule_named(&self, named: &Named) -> Option<&Rule> {
        self.schema.rules.iter().find(|rule| *rule.name == *named.name)
    }
}

impl Policy for User {
    fn name(&self) -> &'static str {
        "user"
    }
    fn about(&self) -> &'static str {
        "rules written by you, in TOML: by label, name, size, age, access pattern and time of day"
    }
    fn place(&self, devices: &[DeviceView], incoming: &Incoming<'_>) -> Result<Decision, Refusal> {
        let of = Subject {
            label: incoming.label,
            name: incoming.name,
            bytes: incoming.bytes,
            age_ms: 0,
            idle_ms: None,
            heat: incoming.heat,
            now_ms: incoming.now_ms,
            now_unix_ms: incoming.now_unix_ms,
        };
        let mut next = self.schema.rule_for(&of);
        // The schema was checked for cycles; the bound costs nothing.
        for _ in 0..=self.schema.rules.len() {
            let Some(rule) = next else { break };
            for (nth, named) in rule.tiers.iter().enumerate() {
                let Some(device) = devices.iter().find(|d| *d.name == *named.name) else { continue };
                let within = match rule.budget {
                    Some((_, share)) if nth == 0 => device.used_bytes + incoming.bytes <= share.bytes_of(device),
                    _ => true,
                };
                if within && incoming.may_use(device) && device.below_high_with(incoming.bytes) {
                    let reason = reason(&rule.name, rule.place.0, device);
                    let (device, bytes) = (device.id, incoming.bytes);
                    return Ok(Decision::Place { device, bytes, reason, past_watermarks: false });
                }
            }
            next = rule.otherwise.as_ref().and_then(|named| self.rule_named(named));
        }
        self.fallback.place(devices, incoming)
    }
    fn place_copy(&self, devices: &[DeviceView], incoming: &Incoming<'_>) -> Result<Decision, Refusal> {
        self.fallback.place_copy(devices, incoming)
    }
    fn plan(&self, devices: &[DeviceView], ranges: &[RangeView<'_>], limits: &Limits<'_>) -> Plan {
        let tiers = order(devices);
        let mut ruling =
            Ruling { schema: &self.schema, tiers: &tiers, devices, limits, plan: Plan::default(), room: Vec::new() };
        ruling.room = tiers.iter().map(|d| if d.is_online() { d.room_bytes() } else { 0 }).collect();
        let mut free = Vec::with_capacity(ranges.len());
        let mut bytes_left = limits.bytes_max;
        for (i, range) in ranges.iter().enumerate() {
            let said = if limits.room_only { Verdict::Nothing } else { ruling.say(range) };
            match said {
                Verdict::Move(action, cost_ns, reason) => {
                    let costs = if cost_ns > 0.0 { range.bytes } else { 0 };
                    if ruling.plan.moves.len() < limits.moves_max && costs <= bytes_left {
                        bytes_left -= costs;
                        ruling.plan.moves.push(Planned { range: i, action, gain_ns: 0.0, cost_ns, reason });
                    }
                }
                Verdict::Stays if ranges_device_is_online(&tiers, range) => {}
                Verdict::Stays | Verdict::Nothing => free.push(i),
            }
        }
        let mut plan = ruling.plan;
        // The fallback moves only ranges without a rule.
        let others: Vec<RangeView<'_>> = free.iter().map(|i| ranges[*i]).collect();
        let left = Limits { bytes_max: bytes_left, moves_max: limits.moves_max - plan.moves.len(), ..*limits };
        let rest = self.fallback.plan(devices, &others, &left);
        plan.reason = plan.moves.first().map_or(rest.reason, |first| first.reason.clone());
        plan.moves.extend(rest.moves.into_iter().map(|planned| Planned { range: free[planned.range], ..planned }));
        plan
    }
}

fn ranges_device_is_online(tiers: &[&DeviceView], range: &RangeView<'_>) -> bool {
    tiers.iter().any(|tier| tier.id == range.device && tier.is_online())
}

fn reason(rule: &Arc<str>, line: u32, device: &DeviceView) -> Reason {
    Reason::Rule { rule: Arc::clone(rule), line, tier: Arc::clone(&device.name) }
}

/// What the rules say about a range.
enum Verdict {
    /// Nothing: the fallback decides.
    Nothing,
    /// It is in the right place and stays.
    Stays,
    Move(Action, f64, Reason),
}

struct Ruling<'a> {
    schema: &'a Schema,
    tiers: &'a [&'a DeviceView],
    devices: &'a [DeviceView],
    limits: &'a Limits<'a>,
    plan: Plan,
    room: Vec<u64>,
}

impl Ruling<'_> {
    fn say(&mut self, range: &RangeView<'_>) -> Verdict {
        let Some(at) = self.tiers.iter().position(|tier| tier.id == range.device) else { return Verdict::Nothing };
        if range.is_pinned {
            return Verdict::Nothing;
        }
        let of = Subject {
            label: range.label,
            name: range.name,
            bytes: range.object_bytes,
            age_ms: range.age_ms,
            idle_ms: None,
            heat: Some(&range.heat),
            now_ms: self.limits.now_ms,
            now_unix_ms: self.limits.now_unix_ms,
        };
        if let Some(said) = self.lifecycle(range, at, &of) {
            return said;
        }
        let Some(rule) = self.schema.rule_for(&of) else { return Verdict::Nothing };
        let idle_ms = range.heat.idle_ms(self.limits.now_ms).unwrap_or(range.age_ms);
        if rule.demote_after_ms.is_some_and(|after| idle_ms >= after) {
            let to = rule.demote_to.as_ref().map_or(Some(at + 1), |named| self.tier(&named.name));
            return self.down(range, at, to, &rule.name, rule.place.0).unwrap_or(Verdict::Nothing);
        }
        let wanted: Vec<usize> = rule.tiers.iter().filter_map(|named| self.tier(&named.name)).collect();
        if wanted.contains(&at) {
            return if rule.pin { Verdict::Stays } else { Verdict::Nothing };
        }
        // Up to the first of its tiers with room, if that is higher.
        let Some(to) = wanted.into_iter().find(|to| *to < at && self.room[*to] >= range.bytes) else {
            return Verdict::Nothing;
        };
        let budget = rule.budget.map_or(u64::MAX, |(_, share)| share.bytes_of(self.tiers[to]));
        if self.tiers[to].used_bytes.saturating_add(range.bytes) > budget {
            return Verdict::Nothing;
        }
        self.room[to] -= range.bytes;
        let cost_ns = self.tiers[at].speed.read_ns(range.bytes) + self.tiers[to].speed.write_ns(range.bytes);
        let reason = reason(&rule.name, rule.place.0, self.tiers[to]);
        Verdict::Move(Action::Promote(self.tiers[to].id), cost_ns, reason)
    }

    fn tier(&self, name: &str) -> Option<usize> {
        self.tiers.iter().position(|tier| *tier.name == *name && tier.is_online())
    }

    fn lifecycle(&mut self, range: &RangeView<'_>, at: usize, of: &Subject<'_>) -> Option<Verdict> {
        for rule in self.schema.lifecycle.iter().filter(|rule| rule.when.holds(of)) {
            let to = match &rule.action {
                LifecycleAction::Demote(to) | LifecycleAction::Archive(Some(to)) => self.tier(&to.name),
                // The engine carries these out.
                LifecycleAction::Release(_) | LifecycleAction::Delete => continue,
                LifecycleAction::Archive(None) => self.tiers.iter().rposition(|tier| tier.takes(true)),
                LifecycleAction::DeleteCopy => {
                    let spare = range.copy.is_some() && copy_is_spare(range, self.devices);
                    if spare {
                        let reason = reason(&rule.name, rule.place.0, self.tiers[at]);
                        return Some(Verdict::Move(Action::DropCopy, 0.0, reason));
                    }
                    continue;
                }
            };
            if let Some(said) = self.down(range, at, to, &rule.name, rule.place.0) {
                return Some(said);
            }
            if to == Some(at) {
                return Some(Verdict::Stays);
            }
        }
        None
    }

    /// Moves to a lower tier; without I/O if a copy is there already.
    fn down(
        &mut self,
        range: &RangeView<'_>,
        at: usize,
        to: Option<usize>,
        rule: &Arc<str>,
        line: u32,
    ) -> Option<Verdict> {
        let to = to.filter(|to| *to > at && *to < self.tiers.len())?;
        let device = self.tiers[to];
        let reason = reason(rule, line, device);
        if range.copy == Some(device.id) {
            return Some(Verdict::Move(Action::Evict, 0.0, reason));
        }
        let persistent_only = range.durability != cenote_model::Durability::Scratch;
        if !device.takes(persistent_only) || self.room[to] < range.bytes {
            return None;
        }
        self.room[to] -= range.bytes;
        let cost_ns = self.tiers[at].speed.read_ns(range.bytes) + device.speed.write_ns(range.bytes);
        Some(Verdict::Move(Action::Demote(device.id), cost_ns, reason))
    }
}

#[cfg(test)]
mod tests {
    use cenote_model::Durability;

    use super::*;
    use crate::testing::{devices, range};

    const SCHEMA: &str = r#"
version = 1
[[rule]]
name = "index"
object = "*.idx"
tier = ["memory", "nvme"]
pin = true
budget = "50%"
[[rule]]
name = "night"
hours = "22:00-06:00"
label = "batch"
tier = "ssd"
[[rule]]
name = "checkpoints"
label = "ckpt*"
tier = "nvme"
demote-after = "1m"
else = "spill"
[[rule]]
name = "spill"
label = "nobody"
tier = "ssd"
[[lifecycle]]
name = "old"
age = "> 1d"
action = "archive"
"#;

    fn user() -> User {
        let schema = Schema::parse(SCHEMA).unwrap();
        assert_eq!(schema.check(&devices()), []);
        User::new(Arc::new(schema))
    }

    #[test]
    fn the_first_rule_that_holds_decides_while_there_is_room() {
        let mut devices = devices();
        let place = |devices: &[DeviceView], label, name, hour: u64| {
            let now_unix_ms = hour * 3_600_000;
            let incoming = Incoming { label, name, now_unix_ms, ..Incoming::new(Durability::Async, 1 << 20) };
            let decision = user().place(devices, &incoming).unwrap();
            crate::check_decision(&decision, devices, &incoming).unwrap();
            (
                devices.iter().find(|d| d.id == decision.device()).unwrap().name.to_string(),
                decision.reason().to_string(),
            )
        };
        assert_eq!(place(&devices, "x", Some("a.idx"), 12).0, "memory");
        assert_eq!(place(&devices, "batch", None, 23).0, "ssd");
        assert_eq!(place(&devices, "batch", None, 12).0, "memory", "by day the fallback decides");
        assert_eq!(
            place(&devices, "ckpt1", None, 12),
            ("nvme".into(), "rule `checkpoints` (line 15) says `nvme`".into())
        );
        devices[0].used_bytes = 16 << 20;
        assert_eq!(place(&devices, "x", Some("a.idx"), 12).0, "nvme", "beyond its budget");
        devices[1].used_bytes = devices[1].capacity_bytes;
        assert_eq!(place(&devices, "ckpt1", None, 12).0, "ssd", "as the other rule says");
        devices.remove(2);
        assert_eq!(place(&devices, "ckpt1", None, 12).0, "memory", "a tier that has gone is passed over");
    }

    #[test]
    fn plans_follow_the_rules_and_the_life_cycle() {
        let mut devices = devices();
        let mib = 1 << 20;
        let mut ranges: Vec<_> = (0..5).map(|i| range(i, mib, devices[1].id)).collect();
        ranges[0].device = devices[2].id;
        ranges[0].name = Some("a.idx");
        ranges[1].label = "ckpt1";
        ranges[2].label = "ckpt1";
        ranges[1].heat.write(0, mib);
        ranges[2].heat.write(100_000, mib);
        ranges[3].age_ms = 2 * 86_400_000;
        let limits = Limits { now_ms: 110_000, ..Limits::default() };
        let plan = user().plan(&devices, &ranges, &limits);
        crate::check_plan(&plan, &devices, &ranges).unwrap();
        let did = |i: usize| plan.moves.iter().find(|m| m.range == i).map(|m| m.action);
        assert_eq!(did(0), Some(Action::Promote(devices[0].id)));
        assert_eq!(did(1), Some(Action::Demote(devices[2].id)), "idle for more than a minute");
        assert_eq!(did(2), None);
        assert_eq!(did(3), Some(Action::Demote(devices[3].id)), "a day old");
        // Ranges that a rule pins stay when their tier is too full; the others leave.
        devices[0].used_bytes = devices[0].capacity_bytes;
        for range in &mut ranges {
            range.device = devices[0].id;
        }
        let plan = user().plan(&devices, &ranges, &limits);
        assert!(plan.moves.iter().all(|m| m.range != 0) && plan.moves.iter().any(|m| m.range == 4));
    }
}
