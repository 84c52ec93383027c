//! Containers: objects and indices under one policy.

use pyo3::prelude::*;

use crate::convert::{block_shift, durability, index_id, object_id, unexpected};
use crate::errors::raise;
use crate::index::Index;
use crate::info::{ContainerInfo, SnapshotInfo, VerifyReport};
use crate::object::{Object, Objects};
use crate::store::Store;

/// A labelled group of objects and indices with one policy.
///
///     >>> runs = store.container("runs")
///     >>> obj = runs.create_object()
///     >>> obj.id in runs, len(list(runs.objects()))
///     (True, 1)
///     >>> obj.write(0, b"before")
///     >>> runs.snapshot("monday")
///     >>> obj.write(0, b"behind")
///     >>> runs.open_snapshot("monday").object(obj.id).read()
///     b'before'
#[pyclass(frozen, module = "cenote")]
pub struct Container(pub cenote::Container);

#[pymethods]
impl Container {
    /// Its id, which a rename keeps.
    #[getter]
    fn id(&self) -> u64 {
        self.0.id().0
    }
    /// Its label.
    #[getter]
    fn label(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.0.info()).map(|info| info.label).map_err(raise)
    }
    /// Its store.
    #[getter]
    fn store(&self) -> Store {
        self.0.store().clone().into()
    }
    /// Its present state.
    fn info(&self, py: Python<'_>) -> PyResult<ContainerInfo> {
        py.detach(|| self.0.info()).map(ContainerInfo::from).map_err(raise)
    }
    /// Change settings; None leaves one unchanged.
    #[pyo3(signature = (durability = None, quota = None, policy = None, owner_uid = None, owner_gid = None, mode = None, weight = None))]
    #[allow(clippy::too_many_arguments, reason = "keywords of Python's")]
    fn set(
        &self,
        py: Python<'_>,
        durability: Option<&str>,
        quota: Option<u64>,
        policy: Option<String>,
        owner_uid: Option<u32>,
        owner_gid: Option<u32>,
        mode: Option<u16>,
        weight: Option<u16>,
    ) -> PyResult<()> {
        let durability = durability.map(self::durability).transpose()?;
        py.detach(|| {
            let mut spec = self.0.info()?.spec;
            spec.durability = durability.unwrap_or(spec.durability);
            spec.quota_bytes = quota.unwrap_or(spec.quota_bytes);
            spec.policy = policy.unwrap_or(spec.policy);
            spec.owner_uid = owner_uid.or(spec.owner_uid);
            spec.owner_gid = owner_gid.or(spec.owner_gid);
            spec.mode = mode.unwrap_or(spec.mode);
            spec.weight = weight.unwrap_or(spec.weight);
            self.0.set(&spec)
        })
        .map_err(raise)
    }
    /// Keep its present content for reading, under a name; no data are copied.
    #[pyo3(signature = (name, replace = false))]
    fn snapshot(&self, py: Python<'_>, name: &str, replace: bool) -> PyResult<()> {
        py.detach(|| if replace { self.0.replace_snapshot(name) } else { self.0.snapshot(name) }).map_err(raise)
    }
    /// Its snapshots, ordered by name.
    fn snapshots(&self, py: Python<'_>) -> PyResult<Vec<SnapshotInfo>> {
        let found = py.detach(|| self.0.snapshots()).map_err(raise)?;
        Ok(found.into_iter().map(SnapshotInfo::from).collect())
    }
    /// A snapshot, as a readable container.
    fn open_snapshot(&self, py: Python<'_>, name: &str) -> PyResult<Self> {
        py.detach(|| self.0.open_snapshot(name)).map(Self).map_err(raise)
    }
    /// Delete a snapshot.
    fn delete_snapshot(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        py.detach(|| self.0.delete_snapshot(name)).map_err(raise)
    }
    /// Restore its content to that of the snapshot.
    fn roll_back(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        py.detach(|| self.0.roll_back(name)).map_err(raise)
    }
    /// Make an object. By default the id is random and the block size the container's.
    #[pyo3(signature = (id = None, block_size = None))]
    fn create_object(&self, py: Python<'_>, id: Option<Bound<'_, PyAny>>, block_size: Option<u64>) -> PyResult<Object> {
        let id = id.as_ref().map(object_id).transpose()?;
        let shift = block_size.map(block_shift).transpose()?;
        py.detach(|| self.0.create_object(id, shift)).map(Object).map_err(raise)
    }
    /// Make many objects in one journal record; raises Exists if one exists (the others are made).
    #[pyo3(signature = (ids, block_size = None))]
    fn create_objects(
        &self,
        py: Python<'_>,
        ids: Vec<Bound<'_, PyAny>>,
        block_size: Option<u64>,
    ) -> PyResult<Vec<Object>> {
        let ids = ids.iter().map(object_id).collect::<PyResult<Vec<_>>>()?;
        let shift = block_size.map(block_shift).transpose()?;
        let codes = py.detach(|| self.0.create_objects(&ids, shift)).map_err(raise)?;
        if let Some(at) = codes.iter().position(|code| *code != cenote::KeyCode::Ok) {
            return Err(unexpected(codes[at], &format!("object {}", ids[at])));
        }
        Ok(ids.into_iter().map(|id| Object(self.0.object(id))).collect())
    }
    /// A handle without a round trip; a missing object is reported at first use.
    fn object(&self, id: Bound<'_, PyAny>) -> PyResult<Object> {
        Ok(Object(self.0.object(object_id(&id)?)))
    }
    /// Delete an object.
    fn delete_object(&self, py: Python<'_>, id: Bound<'_, PyAny>) -> PyResult<()> {
        let id = object_id(&id)?;
        py.detach(|| self.0.delete_object(id)).map_err(raise)
    }
    /// All objects, by ascending id, fetched during the iteration.
    #[pyo3(signature = (after = None))]
    fn objects(&self, after: Option<Bound<'_, PyAny>>) -> PyResult<Objects> {
        let after = after.as_ref().map(object_id).transpose()?;
        Ok(Objects::new(self.0.clone(), after))
    }
    fn __iter__(&self) -> Objects {
        Objects::new(self.0.clone(), None)
    }
    fn __contains__(&self, py: Python<'_>, id: Bound<'_, PyAny>) -> PyResult<bool> {
        let object = self.0.object(object_id(&id)?);
        match py.detach(|| object.stat()) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == cenote::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(raise(error)),
        }
    }
    /// The index with that id; made if it does not exist and `create` is true.
    #[pyo3(signature = (id, create = true))]
    fn index(&self, py: Python<'_>, id: Bound<'_, PyAny>, create: bool) -> PyResult<Index> {
        let id = index_id(&id)?;
        if create {
            return py.detach(|| self.0.open_index(id)).map(Index).map_err(raise);
        }
        Ok(Index(self.0.index(id)))
    }
    /// Make an index. By default the id is random.
    #[pyo3(signature = (id = None))]
    fn create_index(&self, py: Python<'_>, id: Option<Bound<'_, PyAny>>) -> PyResult<Index> {
        let id = id.as_ref().map(index_id).transpose()?;
        py.detach(|| self.0.create_index(id)).map(Index).map_err(raise)
    }
    /// Delete an index with its records.
    fn delete_index(&self, py: Python<'_>, id: Bound<'_, PyAny>) -> PyResult<()> {
        let id = index_id(&id)?;
        py.detach(|| self.0.delete_index(id)).map_err(raise)
    }
    /// Ids of all indices, ascending.
    fn indices(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        const PAGE: u32 = 4096;
        let list = || {
            let mut all: Vec<cenote::IndexId> = Vec::new();
            loop {
                let page = self.0.indices(all.last().copied(), PAGE)?;
                if page.is_empty() {
                    return Ok(all);
                }
                all.extend(page);
            }
        };
        let all = py.detach(list).map_err(raise)?;
        Ok(all.iter().map(ToString::to_string).collect())
    }
    /// Return when everything acknowledged so far in this container survives power loss.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.flush()).map_err(raise)
    }
    /// Read and check all its content.
    fn verify(&self, py: Python<'_>) -> PyResult<VerifyReport> {
        let report = py.detach(|| self.0.verify()).map_err(raise)?;
        VerifyReport::new(py, report)
    }
    fn __repr__(&self) -> String {
        format!("<cenote.Container {}>", self.0.id())
    }
}
