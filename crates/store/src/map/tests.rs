//! An extent map beside a plain vector that holds the owner of each granule.

use std::collections::HashMap;
use std::sync::Arc;

use cenote_workload::property::{Held, Plan, hold, plans};
use cenote_workload::{Rng, Step};
use proptest::{prop_assert, prop_assert_eq};

use super::*;
use crate::map::DeviceIndex;
use crate::space::for_units;
use crate::sums::UNIT;
use cenote_model::Birth;

/// Bytes that the plain vector takes together.
const GRANULE: u64 = 1024;
const SPAN: usize = 1024;

/// A map, the counts of its shared units, and the place of each granule's bytes.
struct Pair {
    map: ExtentMap,
    shared: Shared,
    plain: Vec<Option<u64>>,
    written: u64,
}

impl Pair {
    /// Makes a run of its own for each write.
    fn ext(&mut self, granules: usize) -> Ext {
        self.written += 1;
        let len = granules as u32 * GRANULE as u32;
        let units = len.div_ceil(UNIT) as usize;
        let run = (units > 1).then(|| Arc::new(Run { sums: vec![0; units], ..Run::default() }));
        let run_offset = self.written * u64::from(UNIT) * 16;
        Ext {
            birth: Birth(self.written),
            run,
            run_len: len,
            len,
            ..Ext::at(&Replica { dev: 0, base: run_offset, packed: None })
        }
    }
    /// Writes or punches granules; takes it back if it is to be reverted.
    fn change(&mut self, first: usize, granules: usize, writes: bool, reverts: bool) {
        let (from, to) = (first as u64 * GRANULE, (first + granules) as u64 * GRANULE);
        let mut out = Pieces::None;
        let splits = self.map.cut_out(from, to, &mut self.shared, &mut out);
        let ext = writes.then(|| self.ext(granules));
        if let Some(ext) = &ext {
            self.map.insert(from, ext.clone());
        }
        if reverts {
            if writes {
                self.map.remove(from);
            }
            self.map.put_back(from, to, out, splits, &mut self.shared);
            return;
        }
        for (_, gone) in out {
            for_units(&gone, |dev, unit| {
                self.shared.release(dev, unit);
            });
        }
        for (n, granule) in (0..).zip(&mut self.plain[first..first + granules]) {
            *granule = ext.as_ref().map(|ext| ext.run_offset + n * GRANULE);
        }
    }
    fn compare(&self) -> Held {
        prop_assert_eq!(self.map.check(), Ok(()));
        let mut found = vec![None; SPAN];
        let mut touched: HashMap<(DeviceIndex, u64), u32> = HashMap::new();
        for (at, ext) in self.map.iter() {
            for n in 0..u64::from(ext.len) / GRANULE {
                found[(at / GRANULE + n) as usize] = Some(ext.run_offset + u64::from(ext.skip) + n * GRANULE);
            }
            for_units(ext, |dev, unit| *touched.entry((dev, unit)).or_default() += 1);
        }
        prop_assert!(found == self.plain);
        touched.retain(|_, count| *count > 1);
        prop_assert_eq!(touched.len(), self.shared.len());
        prop_assert!(touched.keys().all(|(dev, unit)| self.shared.is_shared(*dev, *unit)));
        Ok(())
    }
}

fn follow(plan: &Plan) -> Held {
    let mut rng = Rng::new(plan.seed);
    let mut both = Pair { map: ExtentMap::Empty, shared: Shared::default(), plain: vec![None; SPAN], written: 0 };
    let scale = rng.between(1, 7) as usize;
    plan.each(|step| {
        let first = step.ordinal() as usize * scale % SPAN;
        let granules = (rng.size(200) as usize).min(SPAN - first);
        let reverts = rng.chance(250);
        both.change(first, granules, matches!(step, Step::Put(_)), reverts);
        both.compare()
    })
}

#[test]
fn writes_and_holes_in_all_orders() {
    hold("extent map", 40, plans(60, 8), follow);
}
