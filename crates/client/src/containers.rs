//! The containers of a store: found, listed, renamed and deleted, by label or by id.

use cenote_model::{
    ContainerId, ContainerInfo, ContainerSpec, Error, ErrorKind, HomeId, Request, Response, Result, Update,
};

use crate::answer::surprise;
use crate::answered::{Answered, each_home};
use crate::container::Container;
use crate::content;
use crate::directory::{self, Directory};
use crate::link::Link;
use crate::session::Session;
use crate::store::{Store, check_label};

/// Containers per request.
const PAGE: u32 = 1000;

impl Store {
    /// Opens an existing container.
    pub fn container(&self, label: &str) -> Result<Container> {
        let session = self.session()?;
        check_label(label)?;
        let answer = match Directory::of(&session) {
            None => session.root().request(Request::ContainerByLabel { label: label.into() })?,
            Some(directory) => {
                let id = directory.find(label)?.ok_or_else(|| directory::unknown(label))?;
                let link = session.home(id);
                let told = link.request(Request::ContainerById { id });
                relabelled(
                    told.map_err(|error| if link.channel.is_lost() { lost(label, &error) } else { error })?,
                    label,
                )
            }
        };
        match answer {
            Response::Container(info) => Ok(Container::new(self, &session, &info)),
            other => Err(surprise("a container", &other)),
        }
    }
    /// Opens an existing container by its id, which a rename keeps.
    pub fn container_by_id(&self, id: ContainerId) -> Result<Container> {
        let info = self.container_info(id)?;
        Ok(Container::new(self, &*self.session()?, &info))
    }
    /// Returns the state of a container.
    pub(crate) fn container_info(&self, id: ContainerId) -> Result<ContainerInfo> {
        let session = self.session()?;
        let mut answer = session.home(id).request(Request::ContainerById { id })?;
        if let Some(directory) = Directory::of(&session).filter(|directory| !directory.is_its(id)) {
            // A snapshot has no label there: it is not found by one.
            if let Some(label) = directory.label_of(id)? {
                answer = relabelled(answer, &label);
            }
        }
        match answer {
            Response::Container(info) => Ok(info),
            other => Err(surprise("a container", &other)),
        }
    }
    /// Opens the container of that label, or creates it if it does not exist.
    pub fn open_container(&self, label: &str, spec: &ContainerSpec) -> Result<Container> {
        match self.container(label) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            result => return result,
        }
        match self.create_container(label, spec) {
            Err(error) if error.kind() == ErrorKind::Exists => self.container(label), // another process was faster
            result => result,
        }
    }
    /// Returns a handle of no container: its content is never found. For views of data outside of a store.
    pub fn nowhere(&self, label: &str) -> Container {
        Container::nowhere(self, label)
    }
    /// Returns all containers whose label begins with `prefix`, in label order. Those that were lost with a node are not among
    /// them ([`Store::lost_containers`]).
    pub fn containers(&self, prefix: &str) -> Result<Vec<ContainerInfo>> {
        self.containers_answered(prefix)?.of_all()
    }
    /// The same of the homes that answer: see [`Answered`]. The containers of the others are in [`Store::labels`].
    pub fn containers_answered(&self, prefix: &str) -> Result<Answered<ContainerInfo>> {
        let session = self.session()?;
        let Some(directory) = Directory::of(&session) else { return Ok(list(session.root(), prefix)?.into()) };
        let labels = directory.walk(prefix)?;
        let has_some = |home| labels.iter().any(|(_, id)| id.home() == home);
        let told = each_home(&session, has_some, |_, link| list(link, ""));
        Ok(Answered { found: directory::join(labels, told.found), silent: told.silent })
    }
    /// Returns the labels that begin with `prefix`, in order, with their containers. Only the home that keeps the labels of the
    /// cluster is asked: those of homes that are away or lost are among them.
    pub fn labels(&self, prefix: &str) -> Result<Vec<(String, ContainerId)>> {
        let session = self.session()?;
        match Directory::of(&session) {
            Some(directory) => directory.walk(prefix),
            None => Ok(list(session.root(), prefix)?.into_iter().map(|info| (info.label, info.id)).collect()),
        }
    }
    /// Returns the containers whose content is lost for good, since a node of the cluster was given up: label and id, in label
    /// order. Their labels are taken until they are deleted.
    pub fn lost_containers(&self, prefix: &str) -> Result<Vec<(String, ContainerId)>> {
        let session = self.session()?;
        let Some(directory) = Directory::of(&session) else { return Ok(Vec::new()) };
        let mut labels = directory.walk(prefix)?;
        let homes = session.links.homes();
        labels.retain(|(_, id)| !homes.contains(&id.home()) || session.home(*id).channel.is_lost());
        Ok(labels)
    }
    /// Returns the labels of the containers of one home of the cluster, in order. Does not ask the home: it may be away.
    pub fn labels_of(&self, home: HomeId) -> Result<Vec<String>> {
        let session = self.session()?;
        let Some(directory) = Directory::of(&session) else { return Ok(Vec::new()) };
        let labels = directory.walk("")?.into_iter().filter(|(_, id)| id.home() == home);
        Ok(labels.map(|(label, _)| label).collect())
    }
    /// Renames a container.
    pub fn rename_container(&self, from: &str, to: &str) -> Result<()> {
        check_label(to)?;
        let id = self.container(from)?.id();
        self.rename_container_by_id(id, to)
    }
    /// Renames a container, whatever its current label.
    pub fn rename_container_by_id(&self, id: ContainerId, to: &str) -> Result<()> {
        check_label(to)?;
        let session = self.session()?;
        match Directory::of(&session) {
            Some(directory) => directory.rename(id, to),
            None => self.change(Update::ContainerRename { id, label: to.into() }, || format!("container `{to}`")),
        }
    }
    /// Deletes a container and its whole content atomically, whatever its label.
    pub fn delete_container_by_id(&self, id: ContainerId) -> Result<()> {
        self.delete(id, || format!("container {}", id.0))
    }
    /// Deletes a container and its whole content atomically. Of one that was lost with a node, the label goes.
    pub fn delete_container(&self, label: &str) -> Result<()> {
        let id = match self.container(label) {
            Ok(container) => container.id(),
            Err(error) => self.lost_container(label)?.ok_or(error)?,
        };
        self.delete(id, || format!("container `{label}`"))
    }
    /// The container of that label, if its home was found to be lost.
    fn lost_container(&self, label: &str) -> Result<Option<ContainerId>> {
        let session = self.session()?;
        let Some(directory) = Directory::of(&session) else { return Ok(None) };
        Ok(directory.find(label)?.filter(|id| session.home(*id).channel.is_lost()))
    }
    fn delete(&self, id: ContainerId, subject: impl Fn() -> String) -> Result<()> {
        let session = self.session()?;
        let gone = without_label(&session, id, || self.change(Update::ContainerDelete { id }, subject));
        if session.home(id).channel.is_lost() { Ok(()) } else { gone }
    }
}

/// Takes a container's label out of the cluster's directory, and deletes the container by `delete`. If that fails, it has its
/// label again.
pub(crate) fn without_label<T>(session: &Session, id: ContainerId, delete: impl FnOnce() -> Result<T>) -> Result<T> {
    let Some(directory) = Directory::of(session) else { return delete() };
    let label = directory.remove(id)?;
    let gone = delete();
    match (&gone, label) {
        (Err(error), Some(label)) if error.kind() != ErrorKind::NotFound && !session.home(id).channel.is_lost() => {
            directory.enter(&label, id).and(gone)
        }
        _ => gone,
    }
}

/// Deletes a container that got no label in the cluster's directory.
pub(crate) fn drop_container(session: &Session, id: ContainerId) {
    let gone = content::apply(session.home(id), vec![Update::ContainerDelete { id }], || format!("container {id}"));
    if let Err(error) = gone {
        tracing::warn!(%error, %id, "a container without a label is left");
    }
}

/// The containers of a home whose label begins with `prefix`, in label order.
fn list(link: &Link, prefix: &str) -> Result<Vec<ContainerInfo>> {
    let mut all = Vec::new();
    let mut after = None;
    loop {
        let request = Request::ContainerList { after: after.take(), limit: PAGE };
        let Response::Containers(page) = link.request(request)? else { return Ok(all) };
        let Some(last) = page.last() else { return Ok(all) };
        after = Some(last.label.clone());
        all.extend(page.into_iter().filter(|info| info.label.starts_with(prefix)));
    }
}

/// The error for a container whose home is lost.
#[cold]
fn lost(label: &str, why: &Error) -> Error {
    Error::new(why.kind(), format!("container `{label:.100}`"))
        .because(format!("{}: {}", why.subject(), why.cause()))
        .try_next("`cenote rm` takes its name away, so that it can be used again")
}

/// An answer about a container, with the label that people call it by.
fn relabelled(answer: Response, label: &str) -> Response {
    match answer {
        Response::Container(info) => Response::Container(ContainerInfo { label: label.into(), ..info }),
        other => other,
    }
}
