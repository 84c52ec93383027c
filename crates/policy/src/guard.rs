//! Guards the engine against a faulty plugin policy.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::place::Refusal;
use crate::policies::FastFirst;
use crate::{Action, Decision, DeviceView, Incoming, Limits, Plan, Policy, RangeView, Reason};

/// A policy is no longer asked after this many failures.
const FAILURES_MAX: u32 = 8;

/// A wrapper of a foreign policy: catches panics, rejects invalid answers, and records late ones. In each such case
/// `fast-first` decides instead; after some failures the policy is no longer asked. The cause of the last failure is
/// kept.
///
/// The wrapper cannot interrupt a policy (in an endless loop): for that the caller must provide a thread.
pub struct Guard {
    inner: Arc<dyn Policy>,
    bound_ns: u64,
    clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    failures: AtomicU32,
    last: Mutex<Option<Arc<str>>>,
}

impl Guard {
    /// Guards a policy. `clock` returns nanoseconds; a decision or plan that takes longer than `bound_ns` is a failure.
    pub fn new(inner: Arc<dyn Policy>, bound_ns: u64, clock: Arc<dyn Fn() -> u64 + Send + Sync>) -> Self {
        Self { inner, bound_ns, clock, failures: AtomicU32::new(0), last: Mutex::new(None) }
    }
    /// The last failure; `None` if there was none.
    pub fn failure(&self) -> Option<Arc<str>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Returns true if the policy is no longer asked.
    pub fn is_given_up(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= FAILURES_MAX
    }
    /// Lets the policy be asked again.
    pub fn forgive(&self) {
        self.failures.store(0, Ordering::Relaxed);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Calls the policy; returns its answer only if it came in time, without a panic, and is valid.
    fn ask<T>(&self, call: impl FnOnce() -> T, check: impl FnOnce(&T) -> Result<(), String>) -> Result<T, Arc<str>> {
        if self.is_given_up() {
            let last = self.failure().unwrap_or_else(|| "failed".into());
            return Err(format!("is not asked any more: it {last}").into());
        }
        let began = (self.clock)();
        let answer = catch_unwind(AssertUnwindSafe(call));
        let took = (self.clock)().saturating_sub(began);
        let wrong = match &answer {
            Err(panic) => Some(format!("panicked: {}", panic_words(panic.as_ref()))),
            Ok(_) if took > self.bound_ns => Some(format!("took {took} ns, more than {} ns", self.bound_ns)),
            Ok(answer) => check(answer).err().map(|what| format!("answered nonsense: {what}")),
        };
        match (wrong, answer) {
            (None, Ok(answer)) => Ok(answer),
            (wrong, _) => {
                let wrong: Arc<str> = wrong.unwrap_or_default().into();
                self.failures.fetch_add(1, Ordering::Relaxed);
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&wrong));
                Err(wrong)
            }
        }
    }
    fn instead(&self, because: Arc<str>, then: Reason) -> Reason {
        Reason::Fallback { policy: self.inner_name(), because, then: Box::new(then) }
    }
    fn inner_name(&self) -> Arc<str> {
        catch_unwind(AssertUnwindSafe(|| Arc::from(self.inner.name()))).unwrap_or_else(|_| "?".into())
    }
}

impl Policy for Guard {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn about(&self) -> &str {
        self.inner.about()
    }
    fn failure(&self) -> Option<Arc<str>> {
        Guard::failure(self)
    }
    fn place(&self, devices: &[DeviceView], incoming: &Incoming<'_>) -> Result<Decision, Refusal> {
        let check = |answer: &Result<Decision, Refusal>| match answer {
            Ok(decision) => check_decision(decision, devices, incoming),
            Err(_) => Ok(()),
        };
        match self.ask(|| self.inner.place(devices, incoming), check) {
            // A foreign policy's refusal does not count: it must not fail a write that has room.
            Ok(Err(_)) => FastFirst.place(devices, incoming),
            Ok(answer) => answer,
            Err(because) => FastFirst.place(devices, incoming).map(|mut decision| {
                match &mut decision {
                    Decision::Place { reason, .. } | Decision::Wait { reason, .. } => {
                        *reason = self.instead(because, std::mem::replace(reason, Reason::Nothing));
                    }
                }
                decision
            }),
        }
    }
    fn plan(&self, devices: &[DeviceView], ranges: &[RangeView<'_>], limits: &Limits<'_>) -> Plan {
        let check = |plan: &Plan| check_plan(plan, devices, ranges);
        self.ask(|| self.inner.plan(devices, ranges, limits), check).unwrap_or_else(|because| {
            let mut plan = FastFirst.plan(devices, ranges, limits);
            plan.reason = self.instead(because, std::mem::replace(&mut plan.reason, Reason::Nothing));
            plan
        })
    }
}

/// Returns true if the range does not need its copy: it is scratch, or its place of reading is persistent.
pub(crate) fn copy_is_spare(range: &RangeView<'_>, devices: &[DeviceView]) -> bool {
    let persistent = || devices.iter().any(|d| d.id == range.device && d.kind.is_persistent());
    range.durability == cenote_model::Durability::Scratch || persistent()
}

fn panic_words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without words")
}

/// Checks a decision: a known device that may be used, and no more bytes than it has room for.
pub fn check_decision(decision: &Decision, devices: &[DeviceView], incoming: &Incoming<'_>) -> Result<(), String> {
    let id = decision.device();
    let device = devices.iter().find(|d| d.id == id).ok_or_else(|| format!("there is no device {id}"))?;
    if !incoming.may_use(device) {
        return Err(format!("`{}` may not take these bytes", device.name));
    }
    match decision {
        Decision::Place { bytes, .. } if *bytes < incoming.least_bytes() || *bytes > incoming.bytes => {
            Err(format!("{bytes} bytes of {}, of which {} is the least", incoming.bytes, incoming.least_bytes()))
        }
        Decision::Place { bytes, .. } if *bytes > device.free_bytes() => {
            Err(format!("`{}` has {} bytes free, not {bytes}", device.name, device.free_bytes()))
        }
        _ => Ok(()),
    }
}

/// Checks a plan: known ranges and devices, eviction only of ranges with a copy, no range moved twice.
pub fn check_plan(plan: &Plan, devices: &[DeviceView], ranges: &[RangeView<'_>]) -> Result<(), String> {
    let mut seen = vec![false; ranges.len()];
    for planned in &plan.moves {
        let range = ranges.get(planned.range).ok_or_else(|| format!("there is no range {}", planned.range))?;
        if std::mem::replace(&mut seen[planned.range], true) {
            return Err(format!("range {} is moved twice", planned.range));
        }
        let target = match planned.action {
            Action::Evict if range.copy.is_none() => return Err("something without a copy is to be evicted".into()),
            Action::DropCopy if range.copy.is_none() => return Err("a copy that there is not is to be given up".into()),
            Action::DropCopy if !copy_is_spare(range, devices) => {
                return Err(format!("the copy of range {} is what its durability promises", planned.range));
            }
            Action::Evict | Action::DropCopy => continue,
            Action::Promote(to) | Action::Demote(to) | Action::Copy(to) => to,
        };
        let device = devices.iter().find(|d| d.id == target).ok_or_else(|| format!("there is no device {target}"))?;
        if !device.is_online() || target == range.device {
            return Err(format!("range {} cannot go to `{}`", planned.range, device.name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use cenote_model::{DeviceId, Durability};

    use super::*;
    use crate::testing::devices;

    struct Bad(&'static str, Arc<AtomicU64>);
    impl Policy for Bad {
        fn name(&self) -> &'static str {
            "bad"
        }
        fn about(&self) -> &'static str {
            "misbehaves"
        }
        fn place(&self, devices: &[DeviceView], incoming: &Incoming<'_>) -> Result<Decision, Refusal> {
            assert_ne!(self.0, "panic", "on purpose");
            if self.0 == "dawdle" {
                self.1.fetch_add(1_000_000_000, Ordering::Relaxed);
            }
            if self.0 == "refuse" {
                return Err(Refusal { reason: "no".into() });
            }
            let device = if self.0 == "nonsense" { DeviceId(99) } else { devices[3].id };
            Ok(Decision::Place { device, bytes: incoming.bytes, reason: Reason::Nothing, past_watermarks: false })
        }
        fn plan(&self, _: &[DeviceView], _: &[RangeView<'_>], _: &Limits<'_>) -> Plan {
            assert_ne!(self.0, "panic", "on purpose");
            let planned =
                crate::Planned { range: 7, action: Action::Evict, gain_ns: 0.0, cost_ns: 0.0, reason: Reason::Nothing };
            Plan { moves: vec![planned], reason: Reason::Nothing }
        }
    }
    fn guard(what: &'static str) -> Guard {
        let time = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&time);
        Guard::new(Arc::new(Bad(what, time)), 1_000_000, Arc::new(move || clock.load(Ordering::Relaxed)))
    }

    #[test]
    fn whatever_it_does_something_sound_is_decided_and_the_reason_shown() {
        let devices = devices();
        let incoming = Incoming::new(Durability::Async, 4096);
        for (what, word) in [("panic", "panicked: "), ("dawdle", "took"), ("nonsense", "no device d99")] {
            let guard = guard(what);
            for _ in 0..20 {
                let decision = guard.place(&devices, &incoming).unwrap();
                assert_eq!(decision.device(), devices[0].id);
                let said = decision.reason().to_string();
                assert!(said.contains(word) && said.contains("`bad`"), "{what}: {said}");
            }
            assert!(guard.is_given_up() && guard.failure().unwrap().contains(word));
            guard.forgive();
            assert!(!guard.is_given_up() && guard.failure().is_none());
            let plan = guard.plan(&devices, &[], &Limits::default());
            assert!(plan.moves.is_empty());
            assert!(guard.failure().is_some());
        }
        assert_eq!(guard("refuse").place(&devices, &incoming).unwrap().device(), devices[0].id);
        assert_eq!(guard("fine").place(&devices, &incoming).unwrap().device(), devices[3].id);
    }
}
