//! Life-cycle rules: what happens to objects as they age, in the background, some objects each second.
//!
//! The first rule of the schema that holds for an object decides, in every container whatever its policy. Pinned data
//! are left alone. Ages come from [`crate::times`]: two clocks must agree on them.

use cenote_model::{Arrange, Arrangement, ObjectKey, RuleState, Update};
use cenote_policy::schema::{Lifecycle, LifecycleAction, Subject};

use super::Tiering;
use super::disposition::Disposition;
use super::relocate::Relocation;
use crate::engine::core::Core;
use crate::map::Ext;
use crate::objects::Presence;
use crate::placing::{Action, Placing, Target, identity};
use crate::{Outcome, SessionId};

/// Pause between two passes.
const PAUSE_NS: u64 = 1_000_000_000;
/// Most objects inspected in each pass, and most deletions, bytes and ranges.
const OBJECTS: u32 = 8192;
const DELETES_MAX: usize = 64;
const BYTES_MAX: u64 = 256 << 20;
const RANGES_MAX: u64 = 4096;

/// Position of the pass, and the results by rule.
#[derive(Default)]
pub struct Rules {
    hand: u32,
    next_ns: u64,
    done: Vec<Done>,
}

#[derive(Clone, Default)]
struct Done {
    ranges: u64,
    bytes: u64,
    deleted: u64,
    last_error: String,
}

impl Rules {
    /// Forgets the results: the rules have changed.
    pub fn forget(&mut self) {
        self.done.clear();
    }
    fn of(&mut self, rule: usize) -> &mut Done {
        if self.done.len() <= rule {
            self.done.resize(rule + 1, Done::default());
        }
        &mut self.done[rule]
    }
}

impl Tiering {
    /// Applies the rules to some objects, if it is time.
    pub fn run_rules(&mut self, core: &mut Core) {
        let now = core.state.now.ns;
        let is_idle = self.relocations.is_empty() && core.may_copy(now);
        if self.policies.lifecycle.is_empty() || now < self.rules.next_ns || !is_idle {
            return;
        }
        self.rules.next_ns = now + PAUSE_NS;
        let mut told = Arrangement::default();
        let mut doomed = Vec::new();
        let slots = core.state.objects.slots();
        for _ in 0..OBJECTS.min(slots) {
            let is_enough = told.moved_bytes >= BYTES_MAX || told.ranges >= RANGES_MAX || doomed.len() >= DELETES_MAX;
            if is_enough {
                break;
            }
            let slot = self.rules.hand % slots;
            self.rules.hand = (slot + 1) % slots;
            if let Some((rule, lifecycle, key)) = self.rule_of(core, slot) {
                self.follow(core, rule, &lifecycle, (key, slot), &mut told, Some(&mut doomed));
            }
        }
        self.delete(core, doomed);
    }

    /// Returns what the rules would do now to all objects.
    pub fn rules_try(&mut self, core: &mut Core) -> Arrangement {
        core.update_clock();
        core.look_at_times();
        let mut told = Arrangement::default();
        for slot in 0..core.state.objects.slots() {
            if let Some((rule, lifecycle, key)) = self.rule_of(core, slot) {
                self.follow(core, rule, &lifecycle, (key, slot), &mut told, None);
            }
        }
        told
    }

    /// Returns the first rule that holds for the object in a slot.
    fn rule_of(&self, core: &Core, slot: u32) -> Option<(usize, Lifecycle, ObjectKey)> {
        let object = core.state.objects.get(slot);
        if object.presence != Presence::Live || !core.is_visible(object.container) {
            return None;
        }
        let container = core.state.containers.at(object.container);
        if container.snapshot.is_some() {
            return None;
        }
        let key = core.state.key_of(slot);
        let rules = &self.policies.lifecycle;
        let is_named = rules.iter().any(|rule| rule.when.object.is_some());
        let name = if is_named { key.object.to_string() } else { String::new() };
        let of = rule_subject(core, slot, &container.label, &name);
        let rule = rules.iter().position(|rule| rule.when.holds(&of))?;
        Some((rule, rules[rule].clone(), key))
    }

    /// Applies a rule to an object; without `doomed` only lists what it would do.
    fn follow(
        &mut self,
        core: &mut Core,
        rule: usize,
        lifecycle: &Lifecycle,
        (key, slot): (ObjectKey, u32),
        told: &mut Arrangement,
        doomed: Option<&mut Vec<(usize, ObjectKey)>>,
    ) {
        let words = format!("rule `{}` (line {})", lifecycle.name, lifecycle.place.0);
        let extents: Vec<(u64, Ext)> =
            core.state.objects.get(slot).map.iter().map(|(at, ext)| (at, ext.clone())).collect();
        told.objects += 1;
        let is_pinned = core.pinned_bytes_of(key, slot) > 0;
        let why_not = if is_pinned { "it is pinned".to_owned() } else { core.state.times.held_why() };
        let what = match &lifecycle.action {
            LifecycleAction::Delete if !is_pinned && why_not.is_empty() => {
                match doomed {
                    Some(doomed) => doomed.push((rule, key)),
                    None => tell_deletion(core, key, slot, &words, told),
                }
                return;
            }
            LifecycleAction::Demote(to) => Arrange::Demote { to: Some(to.name.clone()) },
            LifecycleAction::Archive(to) => Arrange::Archive { to: to.as_ref().map(|to| to.name.clone()) },
            LifecycleAction::Release(to) => Arrange::Release { to: to.as_ref().map(|to| to.name.clone()) },
            LifecycleAction::Delete => {
                self.stays(rule, &extents, &format!("{words}: {why_not}"), told);
                return;
            }
            LifecycleAction::DeleteCopy => {
                self.drop_copies(core, rule, key, extents, told, doomed.is_none().then_some(words.as_str()));
                return;
            }
        };
        let listed_why = doomed.is_none().then_some(words.as_str());
        if let Err(error) = super::disposition::check_arrange(core, &what) {
            self.stays(rule, &extents, &format!("{words}: {error}"), told);
            return;
        }
        self.follow_moves(core, (rule, &what), key, extents, told, listed_why);
    }

    /// Moves extents as a rule says; with `listed_why` only lists what it would do.
    fn follow_moves(
        &mut self,
        core: &mut Core,
        (rule, what): (usize, &Arrange),
        key: ObjectKey,
        extents: Vec<(u64, Ext)>,
        told: &mut Arrangement,
        listed_why: Option<&str>,
    ) {
        let mut evictions = Vec::new();
        for (offset, ext) in extents {
            let disposition = match super::disposition::disposition_with_twins(core, key, offset, &ext, what) {
                // It is there, or on a slower tier.
                Disposition::Stay(_) if matches!(what, Arrange::Demote { .. }) && is_at_or_below(core, &ext, what) => {
                    Disposition::Already
                }
                // Extents that are not archived yet are archived now, and leave in a later pass.
                Disposition::Stay(_) if matches!(what, Arrange::Release { .. }) => {
                    let Arrange::Release { to } = what else { continue };
                    super::disposition::disposition(core, key, offset, &ext, &Arrange::Archive { to: to.clone() })
                }
                disposition => disposition,
            };
            super::disposition::tell(core, told, (key, offset), &ext, &disposition, listed_why);
            if listed_why.is_some() {
                continue;
            }
            let target = Target::Live { key, offset };
            match disposition {
                Disposition::Go(how, dev) => {
                    let relocation = Relocation { target, dev, how, waiter: None, ahead: false, short_since_ns: None };
                    if self.relocations.push(relocation) {
                        self.note_rule(rule, &ext);
                    }
                }
                Disposition::Leave if !self.relocations.is_known(&target) => {
                    let placing = Placing { target, was: identity(&ext), action: core.state.space.eviction(&ext) };
                    if ext.has_copy() && !core.is_held(&placing) {
                        evictions.push(placing);
                        self.note_rule(rule, &ext);
                    }
                }
                Disposition::Stay(why) => self.rules.of(rule).last_error = format!("object {key}: {why}"),
                Disposition::Leave | Disposition::Already | Disposition::Spare => {}
            }
        }
        let mut twins = std::collections::HashSet::new();
        evictions.retain(|placing: &Placing| twins.insert(placing.was));
        if !evictions.is_empty()
            && let Err(error) = core.place_all(&evictions)
        {
            self.rules.of(rule).last_error = error.to_string();
        }
    }

    /// Drops copies that nobody needs.
    fn drop_copies(
        &mut self,
        core: &mut Core,
        rule: usize,
        key: ObjectKey,
        extents: Vec<(u64, Ext)>,
        told: &mut Arrangement,
        listed_why: Option<&str>,
    ) {
        let mut placings = Vec::new();
        for (offset, ext) in extents {
            let target = Target::Live { key, offset };
            let placing = Placing { target, was: identity(&ext), action: Action::DropCopy { copy: 0 } };
            if !ext.has_copy() || !core.state.can_place(&placing) || self.relocations.is_known(&target) {
                continue;
            }
            super::disposition::tell(core, told, (key, offset), &ext, &Disposition::Spare, listed_why);
            if listed_why.is_none() {
                self.note_rule(rule, &ext);
                placings.push(placing);
            }
        }
        let mut twins = std::collections::HashSet::new();
        placings.retain(|placing: &Placing| twins.insert(placing.was));
        if !placings.is_empty()
            && let Err(error) = core.place_all(&placings)
        {
            self.rules.of(rule).last_error = error.to_string();
        }
    }

    fn note_rule(&mut self, rule: usize, ext: &Ext) {
        let done = self.rules.of(rule);
        done.ranges += 1;
        done.bytes += u64::from(ext.len);
    }

    fn stays(&mut self, rule: usize, extents: &[(u64, Ext)], why: &str, told: &mut Arrangement) {
        told.staying_bytes += extents.iter().map(|(_, ext)| u64::from(ext.len)).sum::<u64>();
        if told.staying_why.is_empty() {
            why.clone_into(&mut told.staying_why);
        }
        why.clone_into(&mut self.rules.of(rule).last_error);
    }

    fn delete(&mut self, core: &mut Core, doomed: Vec<(usize, ObjectKey)>) {
        for (rule, key) in doomed {
            let update = Update::ObjectDelete { key };
            let outcome = core.apply(SessionId(0), 0, &[], vec![update], true);
            let done = self.rules.of(rule);
            match outcome {
                Outcome::Ready(cenote_model::Response::Failed(error)) => done.last_error = error.to_string(),
                Outcome::Ready(_) | Outcome::Wait(_) => done.deleted += 1,
            }
        }
    }

    /// Returns the rules and their results.
    pub fn rule_states(&self) -> Vec<RuleState> {
        let done = |rule: usize| self.rules.done.get(rule).cloned().unwrap_or_default();
        let state = |(rule, lifecycle): (usize, &Lifecycle)| {
            let Done { ranges, bytes, deleted, last_error } = done(rule);
            RuleState {
                name: lifecycle.name.to_string(),
                line: lifecycle.place.0,
                what: action_words(&lifecycle.action),
                ranges,
                bytes,
                deleted,
                last_error,
            }
        };
        self.policies.lifecycle.iter().enumerate().map(state).collect()
    }
}

/// Returns an object as rules see it.
pub fn rule_subject<'a>(core: &'a Core, slot: u32, label: &'a str, name: &'a str) -> Subject<'a> {
    let object = core.state.objects.get(slot);
    Subject {
        label,
        name: Some(name),
        bytes: object.size,
        age_ms: core.state.times.age_ms(object.epoch),
        idle_ms: Some(super::walk::idle_ms(core, slot)),
        heat: None,
        now_ms: core.now_ms(),
        now_unix_ms: core.seams.clock.unix_ms(),
    }
}

fn is_at_or_below(core: &Core, ext: &Ext, what: &Arrange) -> bool {
    let Arrange::Demote { to: Some(name) } = what else { return false };
    let Ok(to) = core.named(name) else { return false };
    let (here, to) = (core.state.space.get(ext.dev).view(), core.state.space.get(to).view());
    cenote_policy::tier_order(&here, &to).is_ge()
}

fn tell_deletion(core: &Core, key: ObjectKey, slot: u32, words: &str, told: &mut Arrangement) {
    let object = core.state.objects.get(slot);
    let (offset, bytes) = (0, object.map.mapped_bytes());
    let from = object.map.iter().next().map(|(_, ext)| core.state.space.get(ext.dev).spec.name.clone());
    told.ranges += 1;
    told.bytes += bytes;
    told.moves.push(cenote_model::ArrangeMove {
        key,
        offset,
        bytes,
        from: from.unwrap_or_default(),
        to: String::new(),
        cost_ns: 0,
        why: format!("{words}: it is deleted"),
    });
}

/// Returns what a rule does, as text.
pub fn action_words(action: &LifecycleAction) -> String {
    let to = |to: &Option<cenote_policy::schema::Named>| {
        to.as_ref().map_or("the lowest tier".to_owned(), |to| format!("`{}`", to.name))
    };
    match action {
        LifecycleAction::Demote(named) => format!("demote to `{}`", named.name),
        LifecycleAction::Archive(named) => format!("archive to {}", to(named)),
        LifecycleAction::Release(named) => format!("release what is archived on {}", to(named)),
        LifecycleAction::DeleteCopy => "give up copies that durability does not need".to_owned(),
        LifecycleAction::Delete => "delete".to_owned(),
    }
}
