//! Stores: opening, containers, tiers, and operations on the whole store.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cenote::{Mode, OpenOptions, StoreConfig};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::container::Container;
use crate::convert::{container_spec, tier, tiers};
use crate::errors::{invalid, raise};
use crate::files::Files;
use crate::info::{ContainerInfo, Explanation, StoreStats, TierInfo, VerifyReport};
use crate::object::Object;
use crate::transaction::Transaction;

/// Open the store in directory `dir`.
///
/// mode: "auto" (its daemon, else an engine in this process), "in-process" or "daemon".
/// create: make the store if it does not exist; create_new: fail if it exists.
/// tiers: tiers of a new store, fastest first: `Tier(...)` or text as on the command line.
#[pyfunction]
#[pyo3(signature = (dir, mode = "auto", create = true, read_only = false, tiers = None, *, create_new = false, writers = Vec::new(), readers = Vec::new()))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments in Python")]
pub fn open(
    py: Python<'_>,
    dir: PathBuf,
    mode: &str,
    create: bool,
    read_only: bool,
    tiers: Option<Vec<Bound<'_, PyAny>>>,
    create_new: bool,
    writers: Vec<u32>,
    readers: Vec<u32>,
) -> PyResult<Store> {
    let mode = match mode {
        "auto" => Mode::Auto,
        "in-process" => Mode::InProcess,
        "daemon" => Mode::Daemon,
        other => return Err(invalid(format!("mode {other:?}"), "it is not one of auto, in-process, daemon")),
    };
    let devices = tiers.map_or_else(|| Ok(Vec::new()), |values| self::tiers(&values))?;
    let config = StoreConfig { devices, writers, readers, ..StoreConfig::default() };
    // Reading needs an existing store.
    let create = create && !read_only;
    let options = OpenOptions { mode, create, create_new, read_only, config, ..OpenOptions::default() };
    py.detach(|| cenote::Store::open_with(&dir, &options)).map(Store::from).map_err(raise)
}

/// Ask the daemon that serves the store in `dir` to finish its work and exit. False if none serves it.
#[pyfunction]
pub fn stop(py: Python<'_>, dir: PathBuf) -> PyResult<bool> {
    py.detach(|| cenote::Store::stop_daemon(&dir)).map_err(raise)
}

/// Destroy the store in `dir`: its memory, the files of its tiers, its metadata, and its directory unless that contains other
/// files. Raises `Busy` while others use it, unless `force`.
#[pyfunction]
#[pyo3(signature = (dir, *, force = false))]
pub fn destroy(py: Python<'_>, dir: PathBuf, force: bool) -> PyResult<()> {
    py.detach(|| cenote::Store::destroy(&dir, force)).map(drop).map_err(raise)
}

/// The number of bytes in a text such as "64KiB" or "1.5GiB".
#[pyfunction]
pub fn parse_size(text: &str) -> PyResult<u64> {
    cenote::model::size::parse(text).map_err(|cause| invalid(format!("size {text:?}"), cause))
}

/// A size as text for people, such as "1.5 GiB".
#[pyfunction]
pub fn format_size(bytes: u64) -> String {
    cenote::model::size::human(bytes)
}

/// A store. Use it as a context manager, or call `close`. Safe to use after fork: the child gets its own session.
///
///     >>> disk = cenote.Tier("disk", "directory", "64MiB", f"{directory}/disk")
///     >>> with cenote.open(directory, tiers=[cenote.Tier("memory", "memory", "16MiB"), disk]) as store:
///     ...     obj = store.container("runs").create_object()
///     ...     obj.write(0, b"some bytes")
///     ...     obj.read()
///     b'some bytes'
#[pyclass(frozen, module = "cenote")]
pub struct Store(pub cenote::Store, PyOnceLock<Py<Files>>);

impl From<cenote::Store> for Store {
    fn from(store: cenote::Store) -> Self {
        Self(store, PyOnceLock::new())
    }
}

fn handles(containers: &[Bound<'_, Container>]) -> Vec<cenote::Container> {
    containers.iter().map(|container| container.get().0.clone()).collect()
}

#[pymethods]
impl Store {
    /// The container with that label; made if it does not exist and `create` is true. The other arguments are for a new one.
    #[pyo3(signature = (label, create = true, durability = "async", block_size = 4096, quota = 0, policy = String::new()))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn container(
        &self,
        py: Python<'_>,
        label: &str,
        create: bool,
        durability: &str,
        block_size: u64,
        quota: u64,
        policy: String,
    ) -> PyResult<Container> {
        let spec = container_spec(durability, block_size, quota, policy)?;
        let open = || if create { self.0.open_container(label, &spec) } else { self.0.container(label) };
        py.detach(open).map(Container).map_err(raise)
    }
    /// Make a container; raises Exists if the label is taken.
    #[pyo3(signature = (label, durability = "async", block_size = 4096, quota = 0, policy = String::new()))]
    fn create_container(
        &self,
        py: Python<'_>,
        label: &str,
        durability: &str,
        block_size: u64,
        quota: u64,
        policy: String,
    ) -> PyResult<Container> {
        let spec = container_spec(durability, block_size, quota, policy)?;
        py.detach(|| self.0.create_container(label, &spec)).map(Container).map_err(raise)
    }
    /// All containers whose label begins with `prefix`, in label order.
    #[pyo3(signature = (prefix = ""))]
    fn containers(&self, py: Python<'_>, prefix: &str) -> PyResult<Vec<ContainerInfo>> {
        let found = py.detach(|| self.0.containers(prefix)).map_err(raise)?;
        Ok(found.into_iter().map(ContainerInfo::from).collect())
    }
    /// Rename a container.
    fn rename_container(&self, py: Python<'_>, old: &str, new: &str) -> PyResult<()> {
        py.detach(|| self.0.rename_container(old, new)).map_err(raise)
    }
    /// Delete a container with everything in it, atomically.
    fn delete_container(&self, py: Python<'_>, label: &str) -> PyResult<()> {
        py.detach(|| self.0.delete_container(label)).map_err(raise)
    }
    /// The directories and files of this store, by path: `/container/directory/file`.
    #[getter]
    fn files(&self, py: Python<'_>) -> PyResult<Py<Files>> {
        let files =
            self.1.get_or_try_init(py, || Py::new(py, Files::new(py, self, cenote_posix::Options::default())?))?;
        Ok(files.clone_ref(py))
    }
    /// Directories and files with other settings than those of `files`. container: paths start at this container's root, which
    /// is made if it does not exist; else they begin with a container's label. consistency: of new containers.
    #[pyo3(signature = (container = None, read_only = false, consistency = "strict"))]
    fn open_files(
        &self,
        py: Python<'_>,
        container: Option<String>,
        read_only: bool,
        consistency: &str,
    ) -> PyResult<Files> {
        Files::new(py, self, crate::files::options(container, read_only, consistency)?)
    }
    /// Begin a transaction: a context manager that commits at its end, and changes nothing if an exception ends it.
    ///
    /// detect_conflicts: fail with Conflict if others have changed anything read through it.
    #[pyo3(signature = (detect_conflicts = false))]
    fn transaction(&self, detect_conflicts: bool) -> Transaction {
        Transaction::begin(&self.0, detect_conflicts)
    }
    /// Keep the present content of several containers for reading, under a name, all at one moment; no data are copied. All
    /// of them get their snapshot, or none.
    ///
    ///     >>> store.snapshot([runs, fields], "monday")
    #[pyo3(signature = (containers, name, replace = false))]
    fn snapshot(
        &self,
        py: Python<'_>,
        containers: Vec<Bound<'_, Container>>,
        name: &str,
        replace: bool,
    ) -> PyResult<()> {
        let containers = handles(&containers);
        let make = if replace { cenote::Store::replace_snapshot } else { cenote::Store::snapshot };
        py.detach(|| make(&self.0, &containers, name)).map_err(raise)
    }
    /// Delete the snapshot of that name of several containers: of all, or of none.
    fn delete_snapshot(&self, py: Python<'_>, containers: Vec<Bound<'_, Container>>, name: &str) -> PyResult<()> {
        let containers = handles(&containers);
        py.detach(|| self.0.delete_snapshot(&containers, name)).map_err(raise)
    }
    /// Restore the content of several containers to that of their snapshots, all or none.
    fn roll_back(&self, py: Python<'_>, containers: Vec<Bound<'_, Container>>, name: &str) -> PyResult<()> {
        let containers = handles(&containers);
        py.detach(|| self.0.roll_back(&containers, name)).map_err(raise)
    }
    /// Return when everything acknowledged so far survives power loss.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.flush()).map_err(raise)
    }
    /// Write a checkpoint now, so that the next opening replays nothing.
    fn checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.checkpoint()).map_err(raise)
    }
    /// Wait for every launched operation.
    fn wait_all(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.wait_all()).map_err(raise)
    }
    /// Read and check everything.
    fn verify(&self, py: Python<'_>) -> PyResult<VerifyReport> {
        let report = py.detach(|| self.0.verify()).map_err(raise)?;
        VerifyReport::new(py, report)
    }
    /// Where each range of an object is, and why.
    fn explain(&self, py: Python<'_>, object: &Object) -> PyResult<Explanation> {
        let found = py.detach(|| self.0.explain(object.0.key())).map_err(raise)?;
        Explanation::new(py, found)
    }
    /// Counters.
    fn stats(&self, py: Python<'_>) -> PyResult<StoreStats> {
        py.detach(|| self.0.stats()).map(StoreStats::from).map_err(raise)
    }
    /// The users who have another weight than 1 on scarce tiers: numeric ids and weights.
    fn user_weights(&self, py: Python<'_>) -> PyResult<BTreeMap<u32, u16>> {
        let found = py.detach(|| self.0.user_weights()).map_err(raise)?;
        Ok(found.weights.users.into_iter().map(|user| (user.uid, user.weight)).collect())
    }
    /// Give a user a part of scarce tiers beside other users: 1, which all have at first, to 1000. Only the owner of the store and
    /// root may. Homes of a cluster that are away follow when they are back.
    fn set_user_weight(&self, py: Python<'_>, uid: u32, weight: u16) -> PyResult<()> {
        py.detach(|| self.0.set_user_weight(uid, weight)).map(drop).map_err(raise)
    }
    /// The tiers, fastest first.
    fn tiers(&self, py: Python<'_>) -> PyResult<Vec<TierInfo>> {
        let found = py.detach(|| self.0.devices()).map_err(raise)?;
        Ok(found.into_iter().map(TierInfo::from).collect())
    }
    /// Add a tier: `Tier(...)` or text as on the command line.
    #[pyo3(name = "add_tier")]
    fn tier_add(&self, py: Python<'_>, spec: Bound<'_, PyAny>) -> PyResult<()> {
        let spec = tier(&spec)?;
        py.detach(|| self.0.add_device(&spec)).map_err(raise)
    }
    /// Move everything off a tier.
    #[pyo3(name = "drain_tier")]
    fn tier_drain(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        py.detach(|| self.0.drain_device(name)).map_err(raise)
    }
    /// Forget an empty tier.
    #[pyo3(name = "remove_tier")]
    fn tier_remove(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        py.detach(|| self.0.remove_device(name)).map_err(raise)
    }
    /// The store's id, as 32 hexadecimal digits.
    #[getter]
    fn id(&self) -> String {
        self.0.id().to_string()
    }
    /// The directory in which it was opened.
    #[getter]
    fn dir(&self) -> PathBuf {
        self.0.dir().to_owned()
    }
    /// How the engine is reached at present: "in-process" or "daemon".
    #[getter]
    fn mode(&self) -> &'static str {
        if self.0.reached() == Mode::Daemon { "daemon" } else { "in-process" }
    }
    /// True once closed.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }
    /// End the session; containers, objects and indices of this store become unusable.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.close()).map_err(raise)
    }
    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.close(py)
    }
    fn __repr__(&self) -> String {
        format!("<cenote.Store {} in {}>", self.0.id(), self.0.dir().display())
    }
}
