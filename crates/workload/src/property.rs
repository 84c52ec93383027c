//! Plans that property tests draw, and shrink when they fail.

use std::cell::Cell;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use crate::{KeyShape, Order, Phase, Steps};

/// The result of testing one plan.
pub type Held = Result<(), TestCaseError>;

/// A history: the [`Steps`] of these phases, with keys of one shape.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of all other random choices.
    pub seed: u64,
    /// How ordinals become keys.
    pub shape: KeyShape,
    /// Consecutive phases.
    pub phases: Vec<Phase>,
}

impl Plan {
    /// Calls `each` with every step.
    pub fn each<E>(&self, mut each: impl FnMut(crate::Step) -> Result<(), E>) -> Result<(), E> {
        let mut steps = Steps::new(self.seed, 1);
        for phase in &self.phases {
            // Steps are few; the generator must not be borrowed while a step is carried out.
            for step in steps.run(*phase).collect::<Vec<_>>() {
                each(step)?;
            }
        }
        Ok(())
    }
}

/// Plans of up to four phases with at most `window_max` ordinals at a time and keys of at most `key_max` bytes.
pub fn plans(window_max: u32, key_max: u32) -> impl Strategy<Value = Plan> {
    let phase = (proptest::sample::select(&Order::ALL[..]), 1..window_max * 6, 1..=window_max);
    let phase = phase.prop_map(|(order, steps, window)| Phase { order, steps, window });
    let shape = proptest::sample::select(KeyShape::all(key_max).to_vec());
    (any::<u64>(), shape, vec(phase, 1..5)).prop_map(|(seed, shape, phases)| Plan { seed, shape, phases })
}

/// Compares a structure with its model: `follow` carries out a plan and reports the first difference.
///
/// Runs `cases` plans, unless `PROPTEST_CASES` sets another number; always the same ones, unless
/// `PROPTEST_RNG_SEED` is set.
///
/// # Panics
/// On a difference: with the smallest plan found, and how to reproduce it.
pub fn hold(name: &str, cases: u32, plans: impl Strategy<Value = Plan>, follow: impl Fn(&Plan) -> Held) {
    let number = |variable: &str| std::env::var(variable).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("PROPTEST_RNG_SEED").unwrap_or(0);
    let cases = number("PROPTEST_CASES").map_or(cases, |cases| cases as u32);
    let settings = Config { failure_persistence: None, rng_seed: RngSeed::Fixed(seed), cases, ..Config::default() };
    let steps = Cell::new(0);
    let outcome = TestRunner::new(settings).run(&plans, |plan| {
        steps.set(steps.get() + plan.phases.iter().map(|phase| u64::from(phase.steps)).sum::<u64>());
        follow(&plan)
    });
    match outcome {
        Ok(()) => println!("{name}: {cases} plans, {} steps, 0 differences (PROPTEST_RNG_SEED={seed})", steps.get()),
        Err(differs) => panic!("{name}: {differs}\nagain with PROPTEST_RNG_SEED={seed} PROPTEST_CASES={cases}"),
    }
}
