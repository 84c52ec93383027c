//! Opening, creating and removing tiers of this kind: options, paths, and the marks of places.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_layout::Layout;
use cenote_model::{DeviceId, DeviceSpec, Error, ErrorKind, Result, StoreId, node_of_place};

use super::PlaceId;
use super::directory::{self, DirectoryPlace};
use super::part::{Owner, PartName};
use super::place::{self, Look, Pace, Place};
use super::service::RaidService;
use crate::object::service::{Answer, Patience, Refusal};
use crate::object::{ClaimNotes, ObjectDevices};
use crate::{Devices, OpenedDevice};

/// What is retried here is a matter of moments: a place that is away stays so for longer, and others are asked instead.
const PATIENCE: Patience = Patience { tries: 3, pause: Duration::from_millis(50), total: Duration::from_secs(2) };

/// Makes a place of a word of `path=` that is no directory's: one on a node of a cluster.
#[derive(Clone)]
pub struct PlaceMaker(Arc<MakePlace>);

/// Makes a place on the node of this name. The number of the place in the tier is given, too, from 1.
type MakePlace = dyn Fn(Owner, &str, u16) -> Result<Arc<dyn Place>> + Send + Sync;

impl std::fmt::Debug for PlaceMaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PlaceMaker")
    }
}

impl PlaceMaker {
    /// Makes places by this function of the tier, the node's name, and the number of the place in the tier, from 1.
    pub fn new(make: impl Fn(Owner, &str, u16) -> Result<Arc<dyn Place>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }
    /// Makes places of which none can be reached: what is on them goes with their nodes.
    pub fn unreachable() -> Self {
        Self::new(|_, node, number| {
            let who = format!("node `{node}`");
            Ok(Arc::new(Unreachable { who, number }))
        })
    }
}

/// Opens tiers of the kind `raid`.
#[derive(Clone, Default, Debug)]
pub struct RaidDevices {
    notes: Option<ClaimNotes>,
    pace: Pace,
    maker: Option<PlaceMaker>,
}

impl RaidDevices {
    /// Claims tiers for the directory of their store.
    #[must_use]
    pub fn noting(self, notes: Option<ClaimNotes>) -> Self {
        Self { notes, ..self }
    }
    /// Does things beside the calls of the device at this pace.
    #[must_use]
    pub fn at_pace(self, pace: Pace) -> Self {
        Self { pace, ..self }
    }
    /// Asks `maker` for places on nodes.
    #[must_use]
    pub fn with_places(self, maker: Option<PlaceMaker>) -> Self {
        Self { maker, ..self }
    }

    fn places(&self, owner: Owner, spec: &DeviceSpec) -> Result<Vec<Arc<dyn Place>>> {
        let paths = spec.paths();
        let refuse = |why: String| {
            Err(refused(spec, ErrorKind::InvalidInput, why)
                .try_next("write path=/disk1/cenote:/disk2/cenote:/disk3/cenote, each on a disk of its own"))
        };
        let mut seen: Vec<PathBuf> = Vec::new();
        let mut places: Vec<Arc<dyn Place>> = Vec::new();
        for (path, number) in paths.iter().zip(1..=u16::MAX) {
            if let Some(node) = node_of_place(path) {
                places.push(self.place_on(spec, owner, node, number)?);
                continue;
            }
            if let Err(why) = directory::check_path(path) {
                return refuse(why);
            }
            let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            if let Some(other) = seen.iter().find(|other| real.starts_with(other) || other.starts_with(&real)) {
                return refuse(format!(
                    "{} is the same directory as {}, or one is in the other",
                    path.display(),
                    other.display()
                ));
            }
            seen.push(real);
            places.push(Arc::new(DirectoryPlace::new(path.clone(), owner, number)));
        }
        Ok(places)
    }
    fn place_on(&self, spec: &DeviceSpec, owner: Owner, node: &str, number: u16) -> Result<Arc<dyn Place>> {
        let Some(PlaceMaker(make)) = &self.maker else {
            return Err(refused(spec, ErrorKind::Unsupported, format!("its place @{node} is on a node of a cluster"))
                .try_next("open the store by its daemon, as a node of that cluster: `cenote cluster start`"));
        };
        make(owner, node, number).map_err(|error| {
            let next = error.next_step().to_owned();
            refused(spec, error.kind(), format!("{}: {}", error.subject(), error.cause())).try_next(next)
        })
    }
    fn service(&self, owner: Owner, spec: &DeviceSpec) -> Result<(RaidService, Vec<Arc<dyn Place>>)> {
        let layout = layout_of(spec)?;
        let places = self.places(owner, spec)?;
        let service = RaidService::new(owner, layout, places.clone(), self.pace).map_err(|error| {
            let next = error.next_step().to_owned();
            refused(spec, error.kind(), format!("{}: {}", error.subject(), error.cause())).try_next(next)
        })?;
        Ok((service, places))
    }
    fn objects(
        &self,
        service: RaidService,
    ) -> ObjectDevices<impl Fn(&DeviceSpec) -> Result<Arc<RaidService>> + Send + Sync + use<>> {
        let service = Arc::new(service.working());
        ObjectDevices::new(move |_: &DeviceSpec| Ok(Arc::clone(&service)), self.pace.background, PATIENCE)
            .noting(self.notes.clone())
    }
}

impl Devices for RaidDevices {
    fn open(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec, make: bool) -> Result<OpenedDevice> {
        let (service, places) = self.service(Owner { store, device: id }, spec)?;
        let made = if make { make_places(spec, &places)? } else { Vec::new() };
        service.enter().map_err(|refusal| cannot_enter(spec, &refusal))?;
        let opened = self.objects(service).open(store, id, spec, make);
        opened.inspect_err(|_| undo(&made))
    }
    fn remove(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec) -> Result<()> {
        let (service, places) = self.service(Owner { store, device: id }, spec)?;
        match service.enter() {
            Err(refusal) if refusal.kind == ErrorKind::NotFound => return Ok(()),
            // A removal that was interrupted has left marks alone.
            Err(_) if places.iter().all(|place| is_bare(place.as_ref())) => {}
            Err(refusal) => return Err(cannot_enter(spec, &refusal)),
            Ok(()) => self.objects(service).remove(store, id, spec)?,
        }
        for place in places {
            place.remove().map_err(|refusal| at_place(spec, place.as_ref(), &refusal))?;
        }
        Ok(())
    }
}

/// A place that is always away.
struct Unreachable {
    who: String,
    number: u16,
}

impl Unreachable {
    fn refuse<T>() -> Answer<T> {
        Err(place::away("it is not reached by this command"))
    }
}

impl Place for Unreachable {
    fn who(&self) -> String {
        self.who.clone()
    }
    fn id(&self) -> PlaceId {
        place::id_of(self.number)
    }
    fn look(&self) -> Answer<Look> {
        Self::refuse()
    }
    fn put(&self, _name: &str, _pieces: &[Bytes]) -> Answer<()> {
        Self::refuse()
    }
    fn get(&self, _name: &str, _from: u64, _len: u64) -> Answer<Bytes> {
        Self::refuse()
    }
    fn list(&self, _prefix: &str) -> Answer<Vec<String>> {
        Self::refuse()
    }
    fn delete(&self, _name: &str) -> Answer<()> {
        Self::refuse()
    }
    fn make(&self) -> Answer<()> {
        Self::refuse()
    }
    fn remove(&self) -> Answer<()> {
        Ok(()) // with its node
    }
}

/// Returns true if a place is away, or has no parts.
fn is_bare(place: &dyn Place) -> bool {
    match place.look() {
        Err(refusal) => refusal.kind == ErrorKind::Disconnected,
        Ok(_) => place.list("").is_ok_and(|names| !names.iter().any(|name| PartName::decode(name).is_some())),
    }
}

/// Takes the marks of places away again. What stays says whose it is.
fn undo(made: &[&Arc<dyn Place>]) {
    for place in made {
        let _ = place.remove();
    }
}

/// Marks the directories as places of the tier; all, or none.
fn make_places<'a>(spec: &DeviceSpec, places: &'a [Arc<dyn Place>]) -> Result<Vec<&'a Arc<dyn Place>>> {
    let mut made: Vec<&Arc<dyn Place>> = Vec::new();
    for place in places {
        let was_there = place.look().is_ok();
        if let Err(refusal) = place.make() {
            undo(&made);
            return Err(at_place(spec, place.as_ref(), &refusal));
        }
        if !was_there {
            made.push(place);
        }
    }
    Ok(made)
}

/// The layout of the options: every place is a domain of its own.
fn layout_of(spec: &DeviceSpec) -> Result<Layout> {
    let Some(layout) = spec.options.get("layout") else {
        return Err(refused(spec, ErrorKind::InvalidInput, "it has no layout")
            .try_next("write layout=mirror=2, or layout=2+1 for three directories, of which one may be lost"));
    };
    let unit = spec.options.get("unit").map_or_else(String::new, |unit| format!(",unit={unit}"));
    let domain = if layout.contains("domain=") { "" } else { ",domain=device" };
    format!("{layout}{unit}{domain}").parse::<Layout>().map_err(|error| {
        let next = error.next_step().to_owned();
        refused(spec, ErrorKind::InvalidInput, format!("{}: {}", error.subject(), error.cause())).try_next(next)
    })
}

fn refused(spec: &DeviceSpec, kind: ErrorKind, why: impl Into<String>) -> Error {
    Error::new(kind, format!("raid tier `{}` at {}", spec.name, spec.path.display())).because(why)
}

#[cold]
fn at_place(spec: &DeviceSpec, place: &dyn Place, refusal: &Refusal) -> Error {
    let next = match refusal.kind {
        ErrorKind::Exists => "give the tier empty directories, or ones that are not there yet",
        ErrorKind::PermissionDenied => "let this user write to that directory",
        ErrorKind::Full => "free some space on that file system",
        ErrorKind::Corrupt => "give each place of a tier a directory of its own; `cenote tier remove` empties them",
        _ => "make that directory, or mount its disk",
    };
    let kind = if refusal.kind == ErrorKind::Corrupt { ErrorKind::Exists } else { refusal.kind };
    refused(spec, kind, format!("{}: {}", place.who(), refusal.cause)).try_next(next)
}

#[cold]
fn cannot_enter(spec: &DeviceSpec, refusal: &Refusal) -> Error {
    let next = match refusal.kind {
        ErrorKind::Corrupt => {
            "mount the right disk there; or unmount what is there, and the tier works without that place".to_owned()
        }
        ErrorKind::NotFound => "mount its disks; they need the paths that they had".to_owned(),
        _ => format!(
            "bring places back; a new disk takes the place of a lost one when its directory is empty but for a file `{}`",
            directory::ACCEPT
        ),
    };
    refused(spec, refusal.kind, refusal.cause.clone()).try_next(next)
}
