//! Why unmodified h5py works: the first words of every handle.
//!
//! h5py uses HDF5's older calls (`H5Literate1`, `H5Oget_info1`, `H5Oopen_by_addr`, `H5Rcreate`, …). libhdf5 carries them out
//! through the connector like all others, but only if the connector says that it is the native one. It then reads one number
//! from what it takes for its own file structure: the size of an object's address.
//! So for open objects this connector names the native class as its terminal class ([`super::introspect`]). Each handle begins
//! with words that lead, however libhdf5 follows them from any kind of object, to a block that begins with bytes of 8:
//! addresses have 8 bytes, and the flags say "no write intent". The rest of the block is zeros: the lowest format version.
//! Object numbers serve as addresses. In place of the structure's metadata cache there is one that can only fail ([`trap`]).
//! The older calls about region references, which read and write a file's heap, ask for the structure by `get_object` and get a
//! real one ([`crate::regions`]).

mod trap;

pub use trap::reset;

use std::sync::LazyLock;

/// The first words of a handle.
pub type Facade = [usize; 16];

/// A block that stands for libhdf5's shared file structure.
#[repr(align(16))]
struct Shared([u8; 16_384]);
/// Words at which the structure has its page buffer, its cache, and one more, for versions whose layout differs a little.
const CACHE_WORDS: std::ops::Range<usize> = 104..128;
static SHARED: LazyLock<Shared> = LazyLock::new(|| {
    // The size of an address is at byte 64, since 1.14 at least; the format versions come after a kilobyte.
    let mut block = [0; 16_384];
    block[..256].fill(8);
    let cache = trap::block();
    if cache != 0 {
        for word in block[CACHE_WORDS].chunks_exact_mut(8) {
            word.copy_from_slice(&cache.to_ne_bytes());
        }
    }
    Shared(block)
});

/// A block in place of libhdf5's file structure: every word leads to [`SHARED`].
struct FilePart(Facade);
static FILE: LazyLock<FilePart> = LazyLock::new(|| FilePart([SHARED.0.as_ptr() as usize; 16]));

/// The words of a file's handle, which itself is taken for a file structure.
pub fn of_file() -> Facade {
    [SHARED.0.as_ptr() as usize; 16]
}

/// The word of a datatype that leads to the state shared by its copies, in every version since 1.14.
const TYPE_WORD: usize = 5;
/// That state: first a count, then the state of the type, "committed and open".
static TYPE: [u64; 64] = {
    let mut block = [0; 64];
    block[1] = 4;
    block
};

/// The words of a committed datatype's handle: one leads to its state, another is taken for a pointer to a file structure.
pub fn of_datatype() -> Facade {
    let mut words = of_object();
    words[TYPE_WORD] = TYPE.as_ptr() as usize;
    words
}

/// The words of any other handle: one of them is taken for a pointer to a file structure.
pub fn of_object() -> Facade {
    [(&raw const FILE.0) as usize; 16]
}
