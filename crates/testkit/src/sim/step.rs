//! One random step.

use cenote_model::{Arrange, ArrangeTarget, DeviceKind, ErrorKind, FlushTarget, ObjectKey, Request};

use super::client::Goal;
use super::{Check, Pinned, Sim, draw_device, trace};

/// Errors that such a request may return when the store is small and in use.
pub(super) const CROWDED: &[ErrorKind] = &[
    ErrorKind::Full,
    ErrorKind::NotFound,
    ErrorKind::Exists,
    ErrorKind::Busy,
    ErrorKind::InvalidInput,
    ErrorKind::Conflict,
    ErrorKind::LimitExceeded,
];

impl Sim {
    pub(super) fn step(&mut self) -> Check {
        if self.oracle.current().containers.is_empty() && self.any_client().is_some() {
            self.change_container()?;
            return self.take_answers();
        }
        if self.rng.chance(self.profile.crash_permille) {
            return self.step_crash();
        }
        let background = self.profile.background;
        let choice = self.rng.weighted(&[
            60,
            15,
            6,
            4,
            4,
            8, // apply, read, cached, reader begin and end, index
            5,
            3,
            2,
            4,
            3,
            1, // flush, resend, unlease, containers, clients, devices
            3,
            1,
            2,
            3, // other requests, everything, faults, cached
            background,
            background,
            background,
            background,
            background, // tick, job, run, finish, clock
            self.profile.snapshots,
            self.profile.weather,
            self.profile.weather,
        ]);
        match choice {
            0 => self.apply()?,
            1 => self.read()?,
            2 | 15 => self.read_cached()?,
            3 => self.reader_begin()?,
            4 => self.reader_end()?,
            5 => self.read_index()?,
            6 => self.flush()?,
            7 => self.resend()?,
            8 => self.unlease()?,
            9 => self.change_container()?,
            10 => self.step_clients()?,
            11 if self.berth.is_alone() => self.step_devices()?, // of several engines none may
            11 => {}
            12 => self.step_other()?,
            13 => self.look_at_everything()?,
            14 => self.step_faults()?,
            16 => self.tick()?,
            17 => self.job_take(),
            18 => self.job_run(),
            19 => self.job_finish()?,
            21 => self.step_snapshot()?,
            22 => self.step_move()?,
            23 => self.step_weather()?,
            _ => {
                let ns = *self.rng.pick(&[100_000, 3_000_000, 11_000_000, 1_500_000_000]);
                self.world.clock.advance_ns(ns);
            }
        }
        self.take_answers()
    }
    pub(super) fn tick(&mut self) -> Check {
        trace!(self.trace, "tick");
        self.engine().tick();
        self.audit()?;
        self.take_answers()
    }
    /// Checks that the state in memory is consistent.
    pub(super) fn audit(&mut self) -> Check {
        match self.engine().audit().first() {
            None => Ok(()),
            Some(contradiction) => Err(format!("memory contradicts itself: {contradiction}")),
        }
    }
    pub(super) fn job_take(&mut self) {
        if let Some(job) = self.engine().next_job() {
            trace!(self.trace, "job taken");
            self.jobs.push(job);
        }
        self.note_death();
    }
    pub(super) fn job_run(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        let at = self.rng.index(self.jobs.len());
        let job = self.jobs.swap_remove(at);
        trace!(self.trace, "job runs");
        self.summary.jobs += 1;
        self.jobs_done.push(job.run());
        self.note_death();
    }
    pub(super) fn job_finish(&mut self) -> Check {
        if self.jobs_done.is_empty() {
            return Ok(());
        }
        let at = self.rng.index(self.jobs_done.len());
        let done = self.jobs_done.swap_remove(at);
        trace!(self.trace, "job finishes");
        self.engine().finish_job(done);
        self.audit()?;
        self.take_answers()
    }
    pub(super) fn flush(&mut self) -> Check {
        let Some(at) = self.any_client() else { return Ok(()) };
        let (target, container) = match (self.rng.below(3), self.any_object()) {
            (0, Some(key)) if self.oracle.current().object(key).is_some() => {
                (FlushTarget::Object(key), Some(key.container))
            }
            (1, Some(key)) => (FlushTarget::Container(key.container), Some(key.container)),
            _ => (FlushTarget::Store, None),
        };
        trace!(self.trace, "c{} flushes {target:?}", self.clients[at].info.nonce);
        let goal = Goal::Flush { container, upto: self.oracle.len() };
        self.ask(at, &Request::Flush { target }, &goal)
    }
    /// Sends a request and judges an immediate answer.
    pub(super) fn ask(&mut self, at: usize, request: &Request, goal: &Goal) -> Check {
        match self.send(at, request.clone(), goal.clone()) {
            Some(response) => self.judge(at, goal, request, response),
            None => Ok(()),
        }
    }
    fn step_clients(&mut self) -> Check {
        let at = self.rng.index(self.clients.len().max(1));
        match self.rng.below(3) {
            0 if self.clients.len() < 5 => self.client_open()?,
            1 if at < self.clients.len() && self.clients[at].alive => self.client_die(at),
            2 if at < self.clients.len() && !self.clients[at].alive => self.client_bury(at),
            _ => {}
        }
        if self.any_client().is_none() && !self.died {
            self.client_open()?;
        }
        Ok(())
    }
    fn step_devices(&mut self) -> Check {
        let Some(at) = self.any_client() else { return Ok(()) };
        let goal = Goal::Other { may_fail: CROWDED };
        let request = match self.rng.below(3) {
            0 if self.next_device < 8 => {
                let kind = *self.rng.pick(&[
                    DeviceKind::SharedMemory,
                    DeviceKind::PersistentMemory,
                    DeviceKind::File,
                    DeviceKind::Directory,
                ]);
                let spec = draw_device(&mut self.rng, self.next_device, kind);
                self.next_device += 1;
                Request::DeviceAdd { spec }
            }
            1 => Request::DeviceDrain { name: format!("tier{}", self.rng.below(self.next_device)) },
            _ => Request::DeviceRemove { name: format!("tier{}", self.rng.below(self.next_device)) },
        };
        trace!(self.trace, "c{} asks {request:?}", self.clients[at].info.nonce);
        self.ask(at, &request, &goal)
    }
    fn step_other(&mut self) -> Check {
        let (Some(at), Some(key)) = (self.any_client(), self.any_object()) else { return Ok(()) };
        let request = match self.rng.below(12) {
            7 | 10 | 11 => self.draw_arrangement(key),
            8 | 9 => {
                let ranges = vec![(self.rng.below(1 << 16), 1 + self.rng.below(1 << 18))];
                Request::Fetch { key, ranges, ahead: self.rng.chance(300), must: self.rng.chance(300) }
            }
            0 => Request::Verify { target: FlushTarget::Store },
            1 => Request::Verify { target: FlushTarget::Container(key.container) },
            2 => Request::Explain { key },
            3 => Request::Stats,
            4 => Request::Checkpoint,
            5 => Request::Devices,
            _ => Request::ObjectStat { key },
        };
        trace!(self.trace, "c{} asks {request:?}", self.clients[at].info.nonce);
        let moves = matches!(request, Request::Arrange { .. } | Request::Fetch { .. });
        self.ask(at, &request, &Goal::Other { may_fail: if moves { CROWDED } else { &[ErrorKind::NotFound] } })
    }
    pub(super) fn draw_arrangement(&mut self, key: ObjectKey) -> Request {
        let pins_all = self.rng.chance(250);
        let target = match if pins_all { 3 } else { self.rng.below(4) } {
            0 => ArrangeTarget::Object(key),
            1 => ArrangeTarget::Range { key, offset: self.rng.below(1 << 16), len: self.rng.below(1 << 17) },
            2 => {
                let text = self.rng.pick(&["size>=16KiB", "tier=tier0 or not copy=\"\"", "pinned=yes", "age<1h"]);
                ArrangeTarget::Query { container: Some(key.container), text: (*text).to_owned() }
            }
            _ => ArrangeTarget::Container(key.container),
        };
        let to = self.rng.chance(500).then(|| format!("tier{}", self.rng.below(self.next_device)));
        let what = match self.rng.below(8) {
            _ if pins_all && self.rng.chance(700) => Arrange::Pin { to: None },
            0 => Arrange::Promote { to },
            1 => Arrange::Demote { to },
            2 => Arrange::Pin { to },
            3 | 4 => Arrange::Unpin,
            5 => Arrange::Archive { to },
            6 => Arrange::Release { to },
            _ => Arrange::Evict,
        };
        let dry_run = self.rng.chance(200);
        if let (Arrange::Pin { .. } | Arrange::Unpin, ArrangeTarget::Container(id), false) = (&what, &target, dry_run) {
            let is_crossing = matches!(self.pinned.get(id), Some(Pinned::Asked | Pinned::Unknown));
            self.pinned.insert(*id, if is_crossing { Pinned::Unknown } else { Pinned::Asked });
        }
        Request::Arrange { target: Box::new(target), what, dry_run }
    }
    fn step_faults(&mut self) -> Check {
        if self.fails_at_random {
            trace!(self.trace, "I/O works again");
            self.world.faults.heal();
            self.fails_at_random = false;
        } else if self.profile.error_permille > 0 && self.rng.chance(500) {
            trace!(self.trace, "I/O fails in {} of 1000 cases", self.profile.error_permille);
            let rng = self.rng.fork();
            self.world.faults.fail_at_random(self.profile.error_permille, rng);
            self.fails_at_random = true;
        } else if self.profile.flips {
            self.flip()?;
        }
        Ok(())
    }
}
