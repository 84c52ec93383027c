//! Choice of the place to read an extent that has two: one rule for all readers.

use super::Core;
use crate::map::Ext;

impl Core {
    /// Returns an extent as it is to be read: at its first place if that is open, else at its copy. `at_copy`: reading
    /// the first place failed.
    ///
    /// A copy found bad is never read. While the first place is open, a copy on a tier that failed of late is not read.
    /// If the first place is away, the copy is read even there: tiers come back sooner than they are trusted again.
    pub fn readable(&self, ext: &Ext, at_copy: bool) -> Ext {
        let space = &self.state.space;
        let is_away = space.get(ext.dev).device.is_none();
        if !at_copy && !is_away {
            return ext.clone();
        }
        let is_open = |copy: &usize| {
            let place = ext.copy_place(*copy).filter(|_| is_away && !space.is_bad_copy(ext, *copy));
            place.is_some_and(|place| space.get(place.dev).device.is_some())
        };
        let best = space.readable_copy(ext).or_else(|| (0..ext.copy_count()).find(is_open));
        best.map_or_else(|| ext.clone(), |copy| ext.at_copy(copy))
    }
}

#[cfg(test)]
mod tests {
    use cenote_device::mem::MemClock;
    use cenote_model::{Birth, DeviceId, DeviceKind, Error, ErrorKind, Extent, StoreConfig, Sums};

    use super::*;
    use crate::engine::Engine;
    use crate::engine::filled::{seams, tier};
    use crate::map::NewPlace;

    #[test]
    fn a_copy_is_read_where_the_first_place_is_away_or_failed() {
        let devices = vec![tier("fast", DeviceKind::File, 4 << 20), tier("slow", DeviceKind::Directory, 4 << 20)];
        let mut engine = Engine::create(
            seams(&std::sync::Arc::<MemClock>::default()),
            &StoreConfig { devices, ..StoreConfig::default() },
        )
        .unwrap();
        let extent = Extent::whole(DeviceId(1), 8192, 100, Sums::from_slice(&[7]));
        let alone = Ext::from_model(&extent, 0, 0, Birth::default());
        let copied = alone.with_copy(NewPlace { dev: 1, base: 4096, birth: Birth::default(), packed: None }, None);
        let is_at_copy = |engine: &Engine, at_copy| engine.core.readable(&copied, at_copy).dev == 1;
        assert_eq!((is_at_copy(&engine, false), is_at_copy(&engine, true)), (false, true));
        assert_eq!(engine.core.readable(&alone, true).dev, 0);
        // After a failure of the copy's tier, retrying an open first place is better; without one, the copy is better
        // than nothing.
        engine.core.note_trouble(1, &Error::new(ErrorKind::Io, "a test"));
        assert_eq!((is_at_copy(&engine, false), is_at_copy(&engine, true)), (false, false));
        let first = engine.core.state.space.get_mut(0).device.take();
        assert_eq!((is_at_copy(&engine, false), is_at_copy(&engine, true)), (true, true));
        assert_eq!(engine.core.readable(&alone, false).dev, 0);
        // A copy that is known to be bad, or away too, is not read.
        engine.core.state.space.mark_bad_copy(&copied, 0);
        assert!(!is_at_copy(&engine, false));
        engine.core.state.space.unmark_bad_copy(&copied, 0);
        engine.core.state.space.get_mut(1).device = None;
        assert!(!is_at_copy(&engine, false));
        drop(first);
    }
}
