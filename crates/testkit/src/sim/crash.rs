//! Deaths of the daemon, power losses, reopening, and what clients do then.

use cenote_device::mem::Keep;
use cenote_model::Request;
use cenote_store::Engine;

use super::client::{Goal, Sent};
use super::read::MISSING;
use super::{Check, Sim, trace};
use crate::oracle::Outcome;

impl Sim {
    /// The daemon dies now, or at a later I/O, or closes cleanly.
    pub(super) fn step_crash(&mut self) -> Check {
        match self.rng.below(10) {
            0 => self.close_and_open(),
            1..=4 => {
                let power = self.rng.chance(self.profile.power_permille);
                self.crash(power)
            }
            _ => {
                let ahead = self.rng.below(12);
                trace!(self.trace, "the daemon will die {ahead} I/Os from here");
                let rng = self.rng.fork();
                self.world.faults.die_at(self.world.faults.count() + ahead, rng);
                Ok(())
            }
        }
    }
    fn close_and_open(&mut self) -> Check {
        for job in std::mem::take(&mut self.jobs) {
            self.jobs_done.push(job.run());
        }
        while !self.jobs_done.is_empty() && !self.died {
            self.job_finish()?;
        }
        trace!(self.trace, "close");
        let closed = self.engine().close();
        self.note_death();
        if let (Err(error), false, false) = (closed, self.died, self.hurt) {
            return Err(format!("close: {error:?}"));
        }
        self.crash(false)
    }
    /// Handles the end of the engine; `power`: of the machine too. Opens the store again and asks the
    /// oracle.
    pub(super) fn crash(&mut self, mut power: bool) -> Check {
        if !self.berth.is_alone() {
            // All engines of the process end with this one.
            (self.died, self.berth.wants_power) = (true, Some(power));
            return Ok(());
        }
        self.engine = None;
        self.jobs.clear();
        self.jobs_done.clear();
        self.lose(power);
        loop {
            if self.rng.chance(200) {
                let rng = self.rng.fork();
                let ahead = self.rng.below(40);
                trace!(self.trace, "and will die again within {ahead} I/Os");
                self.world.faults.die_at(self.world.faults.count() + ahead, rng);
            }
            let opened = Engine::open_tuned(self.world.seams(), self.profile.tuning);
            self.openings += 1;
            let dead = self.world.faults.is_dead();
            self.world.faults.heal();
            match opened {
                _ if dead => {
                    trace!(self.trace, "died while opening");
                    let again = self.rng.chance(self.profile.power_permille / 2);
                    self.lose(again);
                    power |= again;
                }
                Ok((engine, report)) => {
                    trace!(self.trace, "opened: {report:?}");
                    self.reopen(engine);
                    break;
                }
                Err(error) => {
                    let files = cenote_device::MetaDir::list(&self.world.meta).unwrap_or_default();
                    return Err(format!("open after a crash: {error:?} (there are {files:?})"));
                }
            }
        }
        self.after_crash(power)
    }
    /// Takes in an engine that was opened again.
    pub(super) fn reopen(&mut self, engine: Engine) {
        self.engine = Some(engine);
        self.died = false;
        self.hurt = false;
        self.fails_at_random = false;
        self.injected_seen = self.world.faults.injected() + self.world.weather.hits();
    }
    pub(super) fn after_crash(&mut self, power: bool) -> Check {
        if power { self.after_power_loss() } else { self.after_death() }
    }
    pub(super) fn lose(&mut self, power: bool) {
        self.world.faults.heal();
        if power {
            let keep = match self.rng.below(4) {
                0 => Keep::Nothing,
                1 => Keep::Everything,
                _ => Keep::Random(self.rng.next_u64()),
            };
            trace!(self.trace, "POWER LOSS {keep:?}");
            self.world.power_loss(keep);
            if self.profile.weather > 0 {
                self.world.clock.boot();
                // Only readable bytes tell to which of several states a container went back.
                self.calm();
            }
        } else {
            trace!(self.trace, "DAEMON DEATH");
            self.world.kill();
        }
    }
    fn after_power_loss(&mut self) -> Check {
        self.summary.power_losses += 1;
        self.clients.clear();
        self.readers.clear();
        self.slots_taken.clear();
        self.cached.clear();
        self.pinned.clear();
        for (session, _) in self.engine().sessions() {
            self.engine().session_close(session);
        }
        let found = self.survey()?;
        self.last_epoch = found.observed.epoch;
        self.oracle.after_power_loss(&found.observed)?;
        self.client_open()
    }
    fn after_death(&mut self) -> Check {
        self.summary.deaths += 1;
        for at in (0..self.clients.len()).rev() {
            if self.clients[at].alive {
                let info = self.clients[at].info.clone();
                let session = self.engine().session_open(info).map_err(|e| format!("session_open again: {e}"))?;
                if session != self.clients[at].session {
                    return Err(format!("nonce {} got another session", self.clients[at].info.nonce));
                }
            } else if self.rng.chance(700) {
                self.client_bury(at);
            }
        }
        // Sessions of dead processes whose end the journal did not accept.
        for (session, info) in self.engine().sessions() {
            if !self.clients.iter().any(|client| client.info.nonce == info.nonce) {
                self.engine().session_close(session);
            }
        }
        let found = self.survey()?;
        self.last_epoch = found.observed.epoch;
        let survived = self.oracle.after_process_death(&found.observed)?;
        self.check_pins()?;
        trace!(self.trace, "{survived} entries survived");
        self.send_rest(survived)
    }
    /// Each client resends its unanswered requests.
    fn send_rest(&mut self, survived: usize) -> Check {
        let mut order: Vec<usize> = (0..self.clients.len()).filter(|at| self.clients[*at].alive).collect();
        while !order.is_empty() {
            let next = order.swap_remove(self.rng.index(order.len()));
            for sent in std::mem::take(&mut self.clients[next].sent) {
                self.send_again(next, &sent, survived)?;
                if self.died {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
    fn send_again(&mut self, at: usize, sent: &Sent, survived: usize) -> Check {
        trace!(self.trace, "c{} sends #{} again: {:?}", self.clients[at].info.nonce, sent.seq, sent.goal);
        match (&sent.goal, &sent.request) {
            (Goal::Apply { entry: Some(entry), predicted }, request) if *entry < survived => {
                let goal = Goal::Apply { entry: Some(*entry), predicted: predicted.clone() };
                match self.send_as(at, sent.seq, request.clone(), goal) {
                    Some(response) => self.judge_applied(Some(*entry), predicted, response),
                    None => Ok(()),
                }
            }
            (Goal::Apply { predicted: Outcome::Refused(_) | Outcome::Conflict, .. }, _) => Ok(()),
            (Goal::Apply { .. }, Request::Apply { updates, .. }) => {
                debug_assert_eq!(updates.len(), sent.changes.len());
                self.send_apply(at, sent.seq, sent.request.clone(), &sent.changes)
            }
            (goal, request) => {
                let (mut goal, request) = (goal.clone(), request.clone());
                if matches!(goal, Goal::Records { .. }) {
                    goal = Goal::Other { may_fail: MISSING }; // they may have changed
                }
                if let Some(response) = self.send_as(at, sent.seq, request.clone(), goal.clone()) {
                    self.judge(at, &goal, &request, response)?;
                }
                Ok(())
            }
        }
    }
}
