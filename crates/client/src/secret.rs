//! A secret of a store for its owner alone, outside of the reach of its readers and writers.

use cenote_cluster::KEY_FILE;
use cenote_device::{StoreDir, store_dir};
use cenote_host::home::settings_dir;
use cenote_model::{Error, ErrorKind, Result};
use cenote_rpc::net::ClusterKey;

use crate::Store;
use crate::link::attach;

/// The file in the store's directory, with the mode 0600.
const FILE: &str = cenote_server::SECRET_FILE;

impl Store {
    /// Returns 32 random bytes that never change, drawn at the first request; in a cluster they follow from its key. Only processes of this user (and root)
    /// get them: content sealed with them can be kept in the store, in reach of every reader. For the owner of the
    /// store's directory they are in that directory; for another user they are in the user's own directory of settings.
    pub fn secret(&self) -> Result<[u8; 32]> {
        let (owner, me) = (StoreDir::look(self.dir())?.owner(), rustix::process::geteuid().as_raw());
        if attach::is_in_cluster(self.dir())? {
            let key = ClusterKey::from_file(&self.dir().join(KEY_FILE))?;
            return Ok(key.derive("what a store seals")); // the same on all nodes
        }
        if me == owner || me == 0 {
            return Self::secret_in(&StoreDir::open(self.dir())?, FILE);
        }
        let settings = settings_dir()?;
        store_dir::make_private_dir(&settings, rustix::fs::Mode::RWXU)
            .map_err(|error| Error::io(settings.display().to_string(), &error))?;
        Self::secret_in(&StoreDir::open(&settings)?, &format!("{FILE}-{}", self.id()))
    }
    fn secret_in(dir: &StoreDir, file: &str) -> Result<[u8; 32]> {
        if let Some(text) = dir.read_text(file)? {
            return decode(&text).ok_or_else(|| {
                Error::new(ErrorKind::Corrupt, dir.path().join(file).display().to_string())
                    .because("it does not hold 64 hexadecimal digits")
                    .try_next("restore it from a copy; without it what is sealed is lost: remove it, and make those keys anew")
            });
        }
        let mut drawn = [0; 32];
        let mut filled = 0;
        while filled < drawn.len() {
            filled += rustix::rand::getrandom(&mut drawn[filled..], rustix::rand::GetRandomFlags::empty())
                .map_err(|error| Error::io("random numbers", &error.into()))?;
        }
        let text: String = drawn
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .filter_map(|digit| char::from_digit(digit.into(), 16))
            .collect();
        if dir.write_new(file, &text)? { Ok(drawn) } else { Self::secret_in(dir, file) }
    }
}

fn decode(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> =
        text.trim().chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    bytes.try_into().ok().filter(|_| digits.len() == 64)
}
