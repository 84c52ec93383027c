//! Samples of a store's telemetry, no more often than a screen needs, however many clients there
//! are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote_model::{Error, ErrorKind, Result, StoreId, Telemetry};
use hyper::body::Bytes;
use tokio::sync::Mutex;

use crate::Source;

/// An answer serves all requests within this time.
const FRESH: Duration = Duration::from_millis(100);
/// Number of hot objects requested.
const HOT: u32 = 40;

/// A sample of the store, also as text.
pub struct Sample {
    pub telemetry: Telemetry,
    pub json: Bytes,
}

/// Takes samples from the source.
pub struct Sampler {
    source: Arc<dyn Source>,
    last: Mutex<Option<(Instant, Arc<Sample>)>>,
}

impl Sampler {
    pub fn new(source: Arc<dyn Source>) -> Self {
        Self { source, last: Mutex::new(None) }
    }
    pub fn store(&self) -> StoreId {
        self.source.store()
    }
    pub fn may_look(&self, uid: u32) -> bool {
        self.source.may_look(uid)
    }
    /// The present sample, or a recent one.
    pub async fn sample(&self) -> Result<Arc<Sample>> {
        let mut last = self.last.lock().await;
        if let Some((at, sample)) = &*last
            && at.elapsed() < FRESH
        {
            return Ok(sample.clone());
        }
        let source = self.source.clone();
        let ask = move || {
            let telemetry = source.telemetry(HOT)?;
            let json = cenote_telemetry::json(source.store(), &telemetry).to_string().into();
            Ok(Arc::new(Sample { telemetry, json }))
        };
        let gone = |_| Err(Error::new(ErrorKind::Busy, "store").because("it is being closed"));
        let sample = tokio::task::spawn_blocking(ask).await.unwrap_or_else(gone)?;
        *last = Some((Instant::now(), sample.clone()));
        Ok(sample)
    }
}
