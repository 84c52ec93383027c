//! The tiers of a store, and what moves data between them: devices, arrangements, rules.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote_model::{
    Arrange, ArrangeProgress, ArrangeTarget, Arrangement, DeviceInfo, DeviceSpec, DeviceState, Error, ErrorKind,
    Explanation, HomeId, ObjectKey, PolicyState, Profile, Request, Response, Result,
};

use crate::answer::surprise;
use crate::answered::{Answered, each_home};
use crate::labels;
use crate::link::{Link, leaving};
use crate::session::Session;
use crate::store::Store;

/// Time limit for clients to give back their leases on a device that is being removed.
const LEAVING_PATIENCE: Duration = Duration::from_secs(5);

impl Store {
    /// Returns the devices of one home of the cluster. `Disconnected` if its node cannot be reached.
    pub fn devices_of(&self, home: HomeId) -> Result<Vec<DeviceInfo>> {
        devices(self.session()?.links.to(home))
    }
    /// Returns the devices, fastest first. Those of a cluster have their homes in their names, as in `n2/memory`.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>> {
        self.devices_answered()?.of_all()
    }
    /// The same of the homes that answer: see [`Answered`].
    pub fn devices_answered(&self) -> Result<Answered<DeviceInfo>> {
        let session = self.session()?;
        Ok(each_home(
            &session,
            |_| true,
            |home, link| {
                let mut some = devices(link)?;
                if home != HomeId(0) {
                    for device in &mut some {
                        device.spec.name = format!("{home}/{}", device.spec.name);
                    }
                }
                Ok(some)
            },
        ))
    }
    /// Returns the link to the home of a tier, and the tier's name there: that of this node, unless the name says another.
    fn tier<'a, 'b>(session: &'a Session, name: &'b str) -> (&'a Arc<Link>, &'b str) {
        let named = split_tier(session, name).map(|(home, rest)| (session.links.to(home), rest));
        named.unwrap_or((session.root(), name))
    }
    fn change_tier(&self, name: &str, request: impl FnOnce(&str) -> Request) -> Result<()> {
        let session = self.session()?;
        let (link, name) = Self::tier(&session, name);
        link.channel.check_writable()?;
        link.request(request(name)).map(drop)
    }
    /// Adds a device.
    pub fn add_device(&self, spec: &DeviceSpec) -> Result<()> {
        self.change_tier(&spec.name, |name| Request::DeviceAdd {
            spec: DeviceSpec { name: name.into(), ..spec.clone() },
        })
    }
    /// Moves everything off a device.
    pub fn drain_device(&self, name: &str) -> Result<()> {
        self.change_tier(name, |name| Request::DeviceDrain { name: name.into() })
    }
    /// Removes an empty device. Clients with leases on it have a moment to give them back.
    pub fn remove_device(&self, name: &str) -> Result<()> {
        let begin = Instant::now();
        loop {
            match self.change_tier(name, |name| Request::DeviceRemove { name: name.into() }) {
                Err(error)
                    if error.kind() == ErrorKind::Busy
                        && begin.elapsed() < LEAVING_PATIENCE
                        && self.is_being_left(name)? =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                done => return done,
            }
        }
    }
    /// Returns true if a device has only space that clients give back soon, or have given back since the refusal.
    fn is_being_left(&self, name: &str) -> Result<bool> {
        let session = self.session()?;
        let (link, name) = Self::tier(&session, name);
        if leaving::is_due(&link.space) {
            leaving::look(&link.space);
        }
        let devices = devices(link)?;
        let is_left = |device: &DeviceInfo| {
            let is_draining = device.state == DeviceState::Draining;
            let is_leased = device.leased_bytes > 0 && !is_draining;
            device.used_bytes == 0 && (device.reserved_bytes > 0 || is_draining) && !is_leased
        };
        Ok(devices.iter().any(|device| device.spec.name == name && is_left(device)))
    }
    /// Returns the measured performance of a device. Unless `measure` is zero, it is measured now for about this long,
    /// in free space of the device.
    pub fn profile(&self, name: &str, measure: Duration) -> Result<Profile> {
        let measure_ms = u32::try_from(measure.as_millis()).unwrap_or(u32::MAX);
        let session = self.session()?;
        let (link, name) = Self::tier(&session, name);
        match link.request(Request::Profile { name: name.into(), measure_ms })? {
            Response::Profile(profile) => Ok(profile),
            other => Err(surprise("a profile", &other)),
        }
    }
    /// Returns the location of each range of an object, and the reason for it.
    pub fn explain(&self, key: ObjectKey) -> Result<Explanation> {
        match self.session()?.home(key.container).request(Request::Explain { key })? {
            Response::Explanation(mut explanation) => {
                for note in &mut explanation.notes {
                    *note = labels::without_tails(note);
                }
                Ok(explanation)
            }
            other => Err(surprise("an explanation", &other)),
        }
    }
    /// Moves an object, a part of it or a container between tiers, and returns at the end of the move. With `dry_run`
    /// it moves nothing and only reports the moves with their cost and reason.
    pub fn arrange(&self, target: &ArrangeTarget, what: &Arrange, dry_run: bool) -> Result<Arrangement> {
        let session = self.session()?;
        if !dry_run {
            session.root().channel.check_writable()?;
        }
        let request = |what| Request::Arrange { target: Box::new(target.clone()), what, dry_run };
        let answer = match target.container() {
            Some(id) => session.home(id).request(request(Self::arrange_at(&session, id.home(), what)?))?,
            None => self.ask_all(&request(what.clone()))?,
        };
        match answer {
            Response::Arranged(arrangement) => Ok(*arrangement),
            other => Err(surprise("an arrangement", &other)),
        }
    }
    /// What is to be done at a home: a name like `n2/disk` is that of a tier there.
    fn arrange_at(session: &Session, home: HomeId, what: &Arrange) -> Result<Arrange> {
        let mut what = what.clone();
        if let Some(name) = what.device_mut()
            && let Some((of, rest)) = split_tier(session, name)
        {
            if of != home {
                return Err(Error::new(ErrorKind::Unsupported, format!("tier `{name}`"))
                    .because(format!("the data are at home {home}, and move between its own tiers only yet"))
                    .try_next(format!("name a tier of {home}: `cenote tiers`")));
            }
            *name = rest.to_owned();
        }
        Ok(what)
    }
    /// Returns the progress of all running arrangements, by any process.
    pub fn arrange_progress(&self) -> Result<Vec<ArrangeProgress>> {
        match self.ask_all(&Request::Progress)? {
            Response::Progress(all) => Ok(all),
            other => Err(surprise("progress", &other)),
        }
    }
    /// Sets the rules of the policy `user` and of the life cycle (`docs/policies.md` has the language); `None` removes
    /// them. Rules that do not fit the tiers are refused with every fault, and the old rules stay. With `dry_run` they
    /// are only checked.
    pub fn set_policy(&self, text: Option<&str>, dry_run: bool) -> Result<()> {
        let session = self.session()?;
        if !dry_run {
            session.root().channel.check_writable()?;
        }
        let request = Request::PolicySet { text: text.map(str::to_owned), dry_run };
        match self.ask_all(&request)? {
            Response::Done => Ok(()),
            other => Err(surprise("nothing", &other)),
        }
    }
    /// Returns the users' rules, their state, and the policies from plugins.
    pub fn policy(&self) -> Result<PolicyState> {
        match self.session()?.root().request(Request::PolicyShow)? {
            Response::Policy(state) => Ok(*state),
            other => Err(surprise("the policy", &other)),
        }
    }
    /// Returns the current actions of the life-cycle rules, without carrying them out.
    pub fn try_rules(&self) -> Result<Arrangement> {
        match self.ask_all(&Request::RulesTry)? {
            Response::Arranged(arrangement) => Ok(*arrangement),
            other => Err(surprise("an arrangement", &other)),
        }
    }
}

/// The home in a tier's name, and the rest of the name; `None` if it names no home of the cluster.
fn split_tier<'a>(session: &Session, name: &'a str) -> Option<(HomeId, &'a str)> {
    let (home, rest) = name.split_once('/')?;
    session.links.homes().into_iter().find(|it| it.to_string() == home).map(|home| (home, rest))
}

/// The devices of a home, fastest first.
pub(crate) fn devices(link: &Link) -> Result<Vec<DeviceInfo>> {
    match link.request(Request::Devices)? {
        Response::Devices(mut devices) => {
            devices.sort_by_key(|device| (device.spec.kind, device.id));
            Ok(devices)
        }
        other => Err(surprise("the devices", &other)),
    }
}
