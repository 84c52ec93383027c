//! Predicts what happens to an object next: its policy's plan, queued moves, and rules that will apply.

use cenote_model::ObjectKey;
use cenote_policy::schema::{Lifecycle, Subject};
use cenote_policy::{Action, Limits};

use super::Tiering;
use super::rules::action_words;
use crate::engine::core::Core;
use crate::placing::Target;

/// Most ranges that the policy is asked about, and most moves described one by one.
const RANGES_MAX: usize = 1024;
const TOLD_MAX: usize = 8;

impl Tiering {
    /// Describes what happens to an object next.
    pub fn what_next(&mut self, core: &mut Core, key: ObjectKey, slot: u32) -> Vec<String> {
        let mut notes = self.planned_next(core, key, slot);
        let extents: Vec<u64> = core.state.objects.get(slot).map.iter().map(|(at, _)| at).take(RANGES_MAX).collect();
        let is_queued = |offset: &&u64| self.relocations.is_known(&Target::Live { key, offset: **offset });
        let queued = extents.iter().filter(is_queued).count();
        if queued > 0 {
            notes.push(format!("next: {queued} of its ranges are queued to move, or are being moved"));
        }
        notes.extend(self.rules_next(core, key, slot));
        if notes.is_empty() {
            notes.push("next: nothing, until it is used or its tier passes its high watermark".to_owned());
        }
        notes
    }

    /// Describes what the container's policy would do with it now, without doing it.
    fn planned_next(&mut self, core: &mut Core, key: ObjectKey, slot: u32) -> Vec<String> {
        let Some(policy) = self.tracking_policy(core, key.container) else { return Vec::new() };
        let object = core.state.objects.get(slot);
        let sampled: Vec<_> = object
            .map
            .iter()
            .take(RANGES_MAX)
            .map(|(at, ext)| super::view::sampled(core, slot, at, ext, None))
            .collect();
        let views = super::view::tier_views(core);
        let limits = Limits { idle: super::plan::idle_share(core), ..super::plan::limits(core) };
        let plan = policy.plan(&views, &super::fetch::views_of(core, &sampled), &limits);
        let name = |id| views.iter().find(|view| view.id == id).map_or("a tier", |view| &*view.name);
        let mut notes = Vec::new();
        for planned in plan.moves.iter().take(TOLD_MAX) {
            let Some(range) = sampled.get(planned.range) else { continue };
            let what = match planned.action {
                Action::Promote(to) => format!("comes to `{}`", name(to)),
                Action::Demote(to) => format!("goes to `{}`", name(to)),
                Action::Evict => format!("leaves for its copy on `{}`", range.copy.map_or("another tier", name)),
                Action::Copy(to) => format!("gets a copy on `{}`", name(to)),
                Action::DropCopy => "gives up its copy".to_owned(),
            };
            notes.push(format!(
                "next, as its policy wants: {} bytes at {} {what}: {}",
                range.was.len, range.offset, planned.reason
            ));
        }
        if plan.moves.len() > TOLD_MAX {
            notes.push(format!("and {} more of its ranges move", plan.moves.len() - TOLD_MAX));
        }
        notes
    }

    /// Describes the life-cycle rules that apply to it now or later.
    fn rules_next(&self, core: &Core, key: ObjectKey, slot: u32) -> Vec<String> {
        let container = core.state.containers.at(core.state.objects.get(slot).container);
        if container.snapshot.is_some() {
            return Vec::new();
        }
        let name = key.object.to_string();
        let of = super::rules::rule_subject(core, slot, &container.label, &name);
        let mut notes = Vec::new();
        for rule in &self.policies.lifecycle {
            let words = format!("rule `{}` (line {}) says: {}", rule.name, rule.place.0, action_words(&rule.action));
            match due_ms(rule, &of) {
                Some(0) => {
                    let but =
                        if core.pinned_bytes_of(key, slot) > 0 { ", but it is pinned, which goes before" } else { "" };
                    notes.push(format!("next: {words}, now{but}"));
                    break; // the first rule that holds decides
                }
                Some(ms) => notes.push(format!("in {}, if nothing changes: {words}", time_words(ms))),
                None => {}
            }
        }
        notes
    }
}

/// Returns the milliseconds until a rule holds, if time alone makes it hold; 0: it holds.
fn due_ms(rule: &Lifecycle, of: &Subject<'_>) -> Option<u64> {
    if rule.when.holds(of) {
        return Some(0);
    }
    let age_ms = rule.when.age.map_or(0, |age| age.least().saturating_sub(of.age_ms));
    let idle_ms = rule.when.idle.map_or(0, |idle| idle.least().saturating_sub(of.idle_ms.unwrap_or(0)));
    let ms = age_ms.max(idle_ms);
    let then = Subject {
        age_ms: of.age_ms.saturating_add(ms),
        idle_ms: of.idle_ms.map(|idle| idle.saturating_add(ms)),
        ..*of
    };
    (ms > 0 && rule.when.holds(&then)).then_some(ms)
}

fn time_words(ms: u64) -> String {
    let s = ms.div_ceil(1000);
    match s {
        0..=119 => format!("{s} s"),
        120..=7199 => format!("{} min", s / 60),
        7200..=172_799 => format!("{} h", s / 3600),
        _ => format!("{} days", s / 86_400),
    }
}
